"""Suspend a run that meets code which is not here: it is tried again with backoff, like a timer (design 3.10, D5)."""

from __future__ import annotations

from typing import Final

from pikkuflow.domain.history import History
from pikkuflow.domain.status import RunStatus, SuspendCode
from pikkuflow.engine.describe_error import failure_of
from pikkuflow.engine.open_pass import OpenPass
from pikkuflow.engine.runtime import Runtime
from pikkuflow.errors import TaskNotFound
from pikkuflow.replay.park import Parked, ParkReason

__all__ = ["backoff_seconds", "missing_task", "unwind_backoff_seconds"]

_FIRST_SECONDS: Final = 5.0
_LONGEST_SECONDS: Final = 600.0


def backoff_seconds(rt: Runtime, history: History, code: SuspendCode) -> float:
    """How long until the run is tried again.

    5 s at first; then as long as the run has made no headway, which doubles the wait each time, up to 10 min. No counter is stored.
    """
    run = history.run
    if run.status is not RunStatus.SUSPENDED or run.code != code:
        return _FIRST_SECONDS
    return _without_headway(rt, history)


def unwind_backoff_seconds(rt: Runtime, history: History) -> float:
    """The same for a run that is being undone, which is never shown as suspended; at most until the time that it waits for anyway."""
    run, seconds = history.run, _without_headway(rt, history)
    if run.due_at is None or run.due_at <= run.updated_at:
        return seconds
    return min(seconds, (run.due_at - run.updated_at).total_seconds())


def _without_headway(rt: Runtime, history: History) -> float:
    headway = max([history.run.created_at, *(step.settled_at or step.created_at for step in history.steps)])
    idle = (rt.clock.now() - headway).total_seconds()
    return min(_LONGEST_SECONDS, max(_FIRST_SECONDS, idle))


def missing_task(p: OpenPass, error: TaskNotFound) -> Parked:
    """The park of a pass that met a task which this worker does not know; it spends no attempt."""
    code = SuspendCode.TASK_NOT_FOUND
    return Parked(
        ParkReason.SUSPENDED,
        code=code,
        failure=failure_of(error),
        due_seconds=backoff_seconds(p.rt, p.history, code),
    )
