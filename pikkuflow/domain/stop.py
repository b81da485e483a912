"""Stopping a run: the arguments and answers of the acts that cancel it and undo its children (design 3.7)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pikkuflow.domain.act import RunRef
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.status import RunStatus

__all__ = ["CANCEL_CODE", "NO_REASON", "Beat", "Cancellation", "StepStanding", "Stopped", "cancelled_failure"]

CANCEL_CODE: Final = "WORKFLOW_CANCELLED"
"""The code of a run that was called off, from outside or by its own body (spec 10.6)."""

NO_REASON: Final = "The run was cancelled."


def cancelled_failure(reason: str | None) -> Failure:
    """The error of a run that was called off: the reason is its message, through an unwind as well (T11.35)."""
    return Failure(type="pikkuflow.errors.RunCancelled", message=reason or NO_REASON, code=CANCEL_CODE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancellation:
    """A run is called off. ``error`` becomes the run's, and stays through its unwind; its code becomes the run's code.

    ``ending`` is the status that it has when there is nothing to undo.
    """

    run_id: RunId
    error: Failure
    ending: RunStatus = RunStatus.CANCELLED


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """What a cancel found and did.

    ``status`` is as it now is. ``is_stopped`` says that this very cancel stopped the run (again when its answer was lost). ``wake``: the
    run has to be undone and no live pass will see it. ``parent``: the parent's step was settled, and the parent wants a wake-up.
    ``children`` are live child runs that its rows wait for: to be cancelled next, one transaction each.
    """

    run: RunRef
    status: RunStatus
    is_stopped: bool
    wake: bool = False
    parent: RunRef | None = None
    children: tuple[RunId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """An attempt that is at work asks how it stands.

    ``details``, as the codec's text, are kept for the next attempt (None leaves what is there). ``lives`` makes it a heartbeat: the time
    that the attempt may go without one begins again.
    """

    run_id: RunId
    step: StepName
    attempt: int
    details: str | None = None
    lives: bool = False


class StepStanding(StrEnum):
    """What an attempt that is at work learns when it asks."""

    WORKING = "working"
    STOPPED = "stopped"
    """Its run was stopped: what it still does will be undone, if it can be."""
    OUTDATED = "outdated"
    """Another attempt has taken its place, or it is settled: its outcome will be refused."""
