"""Statuses of runs and steps, and the sets the engine asks about (spec 4, D23)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

__all__ = [
    "GATE",
    "GATE_CODES",
    "MISSING_CODE",
    "OPEN_RUN",
    "SETTLED_RUN",
    "SETTLED_STEP",
    "Dispatch",
    "RunStatus",
    "StepKind",
    "StepStatus",
    "SuspendCode",
    "gate_code",
]


class RunStatus(StrEnum):
    """The eight statuses of a run (spec 4.1)."""

    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    COMPENSATING = "compensating"
    COMPENSATED = "compensated"
    COMPENSATION_FAILED = "compensation_failed"


OPEN_RUN: Final = frozenset({RunStatus.RUNNING, RunStatus.SUSPENDED})
"""A forward pass may write only while the run is one of these; anything else means it was stopped (design 3.7)."""

SETTLED_RUN: Final = frozenset(
    {
        RunStatus.COMPLETED,
        RunStatus.FAILED,
        RunStatus.CANCELLED,
        RunStatus.COMPENSATED,
        RunStatus.COMPENSATION_FAILED,
    }
)


class StepStatus(StrEnum):
    """The statuses of a step and of one attempt at it (spec 4.3)."""

    PENDING = "pending"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SUSPENDED = "suspended"
    CANCELLED = "cancelled"


SETTLED_STEP: Final = frozenset({StepStatus.SUCCEEDED, StepStatus.FAILED, StepStatus.CANCELLED})


class StepKind(StrEnum):
    """What a step is; recorded on its row."""

    TASK = "task"
    """A Celery task."""
    FUNCTION = "function"
    """An inline callable, remembered (also ``wf.now``, ``wf.uuid``, ``wf.random``)."""
    SLEEP = "sleep"
    CHILD = "child"
    """A run of another workflow."""
    STATE = "state"
    """``wf.state.set``."""
    MILESTONE = "milestone"
    """``wf.milestone``: an unwind goes back to the latest one."""
    COMPENSATION = "compensation"
    """What undoes another step (spec 2.12)."""
    SUSPEND = "suspend"
    """A gate that an explicit resume opens (spec 2.6)."""
    APPROVAL = "approval"
    """A gate that a person's decision opens (spec 2.7)."""
    SIGNAL = "signal"
    """A gate that a named signal opens."""


GATE: Final = frozenset({StepKind.SUSPEND, StepKind.APPROVAL, StepKind.SIGNAL})
"""Steps that wait for the outside: their rows are ``suspended`` until they are settled, and ``due_at`` is their time-out or expiry."""


class Dispatch(StrEnum):
    """Where a step is asked to be worked (design 2)."""

    AUTO = "auto"
    QUEUE = "queue"
    INLINE = "inline"


class SuspendCode(StrEnum):
    """Why a run is suspended; stored as the run's ``code`` (spec 10.6)."""

    TASK_NOT_FOUND = "TASK_NOT_FOUND"
    WORKFLOW_NOT_FOUND = "WORKFLOW_NOT_FOUND"
    VERSION_CONFLICT = "VERSION_CONFLICT"
    PASS_LOST = "PASS_LOST"  # noqa: S105 - a pass is no password
    WORKFLOW_SUSPENDED = "WORKFLOW_SUSPENDED"
    WAITING_FOR_APPROVAL = "WAITING_FOR_APPROVAL"
    WAITING_FOR_SIGNAL = "WAITING_FOR_SIGNAL"


MISSING_CODE: Final = frozenset(
    {SuspendCode.TASK_NOT_FOUND, SuspendCode.WORKFLOW_NOT_FOUND, SuspendCode.VERSION_CONFLICT}
)
"""The run met a worker without the code that it needs: it is tried again with backoff (design 3.10)."""

_GATE_CODES: Final = {
    StepKind.SUSPEND: SuspendCode.WORKFLOW_SUSPENDED,
    StepKind.APPROVAL: SuspendCode.WAITING_FOR_APPROVAL,
    StepKind.SIGNAL: SuspendCode.WAITING_FOR_SIGNAL,
}

GATE_CODES: Final = frozenset(_GATE_CODES.values())
"""The run waits for the outside and for nothing else: it is not tried again with backoff, and shows the author's own text (D30)."""


def gate_code(kind: StepKind) -> SuspendCode:
    """Why a run that waits at a gate of that kind is suspended."""
    return _GATE_CODES[kind]
