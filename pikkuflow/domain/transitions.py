"""The only places a status can go: two literal tables, and for runs a lookup that raises and changes nothing (spec 4.1, 4.3, D23).

A store guards the same moves with the status named in the statement. The engine asks here for its run's next status before it asks the
store; steps are moved by the stores alone, and the simulation holds every row to the table. What is absent from a row of a table
cannot happen: a settled run is left only by a parent that undoes its completed child, a settled step never.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.errors import PikkuFlowError

__all__ = [
    "RUN_TRANSITIONS",
    "STEP_TRANSITIONS",
    "ForbiddenTransition",
    "RunEvent",
    "StepEvent",
    "next_run_status",
]


class ForbiddenTransition(PikkuFlowError):
    """The status cannot make that move."""

    code = "FORBIDDEN_TRANSITION"


class RunEvent(StrEnum):
    """What can happen to a run."""

    PARK = "park"
    """A pass ended with something in flight."""
    SUSPEND = "suspend"
    RESUME = "resume"
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"
    """Stopped with nothing to undo, or an unwind of a cancelled run that undid nothing (D23)."""
    UNWIND = "unwind"
    """Undoing begins."""
    REST = "rest"
    """Undoing ended, at the start or at a milestone."""
    STICK = "stick"
    """Undoing ended with a compensation that failed for good."""


class StepEvent(StrEnum):
    """What can happen to a step's row."""

    SEND = "send"
    """Its message left."""
    RETURN = "return"
    """Its message came to a worker that does not know its task, so it waits as if never sent (D5)."""
    START = "start"
    SUCCEED = "succeed"
    FAIL = "fail"
    """It failed and no attempt is left (D2)."""
    RETRY = "retry"
    """It failed and the next attempt was written (D2)."""
    TAKE_OVER = "take_over"
    """Its worker was lost and the next attempt is opened in ``running`` (spec 5.1)."""
    SUSPEND = "suspend"
    """It waits for the outside."""
    CANCEL = "cancel"
    """It never started and its run was stopped or settled (design 3.7)."""


RUN_TRANSITIONS: Final[Mapping[RunStatus, Mapping[RunEvent, RunStatus]]] = MappingProxyType(
    {
        RunStatus.RUNNING: {
            RunEvent.PARK: RunStatus.RUNNING,
            RunEvent.SUSPEND: RunStatus.SUSPENDED,
            RunEvent.COMPLETE: RunStatus.COMPLETED,
            RunEvent.FAIL: RunStatus.FAILED,
            RunEvent.CANCEL: RunStatus.CANCELLED,
            RunEvent.UNWIND: RunStatus.COMPENSATING,
        },
        RunStatus.SUSPENDED: {
            RunEvent.PARK: RunStatus.RUNNING,
            RunEvent.SUSPEND: RunStatus.SUSPENDED,
            RunEvent.RESUME: RunStatus.RUNNING,
            RunEvent.COMPLETE: RunStatus.COMPLETED,
            RunEvent.FAIL: RunStatus.FAILED,
            RunEvent.CANCEL: RunStatus.CANCELLED,
            RunEvent.UNWIND: RunStatus.COMPENSATING,
        },
        RunStatus.COMPENSATING: {
            RunEvent.PARK: RunStatus.COMPENSATING,
            RunEvent.FAIL: RunStatus.FAILED,
            RunEvent.CANCEL: RunStatus.CANCELLED,
            RunEvent.REST: RunStatus.COMPENSATED,
            RunEvent.STICK: RunStatus.COMPENSATION_FAILED,
        },
        RunStatus.COMPLETED: {RunEvent.UNWIND: RunStatus.COMPENSATING},
        RunStatus.FAILED: {},
        RunStatus.CANCELLED: {},
        RunStatus.COMPENSATED: {},
        RunStatus.COMPENSATION_FAILED: {},
    }
)

STEP_TRANSITIONS: Final[Mapping[StepStatus, Mapping[StepEvent, StepStatus]]] = MappingProxyType(
    {
        # A step in place needs no recorded start, so its outcome may find the row pending (design 2).
        StepStatus.PENDING: {
            StepEvent.SEND: StepStatus.SCHEDULED,
            StepEvent.START: StepStatus.RUNNING,
            StepEvent.SUCCEED: StepStatus.SUCCEEDED,
            StepEvent.FAIL: StepStatus.FAILED,
            StepEvent.RETRY: StepStatus.PENDING,
            StepEvent.CANCEL: StepStatus.CANCELLED,
        },
        StepStatus.SCHEDULED: {
            StepEvent.RETURN: StepStatus.PENDING,
            StepEvent.START: StepStatus.RUNNING,
            StepEvent.SUCCEED: StepStatus.SUCCEEDED,
            StepEvent.FAIL: StepStatus.FAILED,
            StepEvent.CANCEL: StepStatus.CANCELLED,
        },
        StepStatus.RUNNING: {
            StepEvent.SUCCEED: StepStatus.SUCCEEDED,
            StepEvent.FAIL: StepStatus.FAILED,
            StepEvent.RETRY: StepStatus.PENDING,
            StepEvent.TAKE_OVER: StepStatus.RUNNING,
            StepEvent.SUSPEND: StepStatus.SUSPENDED,
        },
        StepStatus.SUSPENDED: {
            StepEvent.START: StepStatus.RUNNING,
            StepEvent.SUCCEED: StepStatus.SUCCEEDED,
            StepEvent.FAIL: StepStatus.FAILED,
            StepEvent.CANCEL: StepStatus.CANCELLED,
        },
        StepStatus.SUCCEEDED: {},
        StepStatus.FAILED: {},
        StepStatus.CANCELLED: {},
    }
)


def next_run_status(status: RunStatus, event: RunEvent) -> RunStatus:
    """The status after the event. Raises ``ForbiddenTransition`` when a run of that status cannot make the move."""
    after = RUN_TRANSITIONS[status].get(event)
    if after is None:
        raise ForbiddenTransition(f"A {status} run cannot {event}.")
    return after
