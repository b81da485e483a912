"""A step message that reached a worker which does not know its task (D5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pikkuflow.domain.act import Closing, PassOpening, PassRef, PassRefusal
from pikkuflow.domain.history import History
from pikkuflow.domain.ids import PassId, RunId, StepName
from pikkuflow.domain.status import OPEN_RUN, StepStatus, SuspendCode
from pikkuflow.domain.step import Place, Step
from pikkuflow.domain.transitions import RunEvent, next_run_status
from pikkuflow.engine.break_off import unread_closing
from pikkuflow.engine.close_later import close_later
from pikkuflow.engine.close_pass import send_after
from pikkuflow.engine.describe_error import failure_of
from pikkuflow.engine.front_door import open_door
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.suspensions import backoff_seconds, unwind_backoff_seconds
from pikkuflow.engine.tell import warn
from pikkuflow.errors import StepFunctionMismatch, TaskNotFound

__all__ = ["suspend_for_missing_task"]

_PAUSES_SECONDS: Final = (0.1, 0.3, 0.6)


def suspend_for_missing_task(rt: Runtime, run_id: RunId, steps: Sequence[tuple[StepName, int]], task: str) -> None:
    """Make the steps pending again, spend no attempt, and suspend the run with TASK_NOT_FOUND and a time at which it is tried again.

    A run that is held goes on undisturbed. Most likely the pass that sent the message is just closing, so it is asked for a few times; a
    run that stays held gets its step sent again by a sweep. A run that is being undone stays so, and is tried again in the same way.

    Raises ``StepFunctionMismatch`` when the row names another task than the message, before anything is written (T6.15).
    """
    if not _is_wanted(rt, run_id, steps, task):
        return
    text = f"Step {steps[0][0]!r} needs task {task!r}, which is not registered on the worker that got its message."
    error = TaskNotFound(text, task, hint="Deploy it and resume the run, or wait: it is tried again.")
    warn(rt, str(error), run_id=run_id)
    for pause in _PAUSES_SECONDS:
        if _try_suspend(rt, run_id, steps, error):
            return
        rt.clock.sleep(pause)
    _try_suspend(rt, run_id, steps, error)


def _try_suspend(rt: Runtime, run_id: RunId, steps: Sequence[tuple[StepName, int]], error: TaskNotFound) -> bool:
    """False: the run is held."""
    pass_id = PassId(rt.ids.new_id())
    door = open_door(rt, run_id, pass_id)
    if door is None:
        return False
    try:
        return _suspend(rt, PassRef(run_id=run_id, pass_id=pass_id), steps, error)
    finally:
        door.close()


def _is_wanted(rt: Runtime, run_id: RunId, steps: Sequence[tuple[StepName, int]], task: str) -> bool:
    """Whether one of the steps still waits for a worker."""
    wanted = False
    for name, attempt in steps:
        row = rt.store.get_step(run_id, name)
        if row is not None and row.task != task:
            raise StepFunctionMismatch(
                f"A message asks for task {task!r} as step {name!r} of run {run_id!r}, which was recorded with {row.task!r}."
            )
        wanted = wanted or (row is not None and row.attempt == attempt and _waits(row))
    return wanted


def _waits(row: Step) -> bool:
    """A live claim is another worker's, which knows the task: the message was sent twice (T7.8)."""
    is_claimed = row.status is StepStatus.RUNNING and not row.is_lapsed
    return Place.is_queue(row.place) and not row.is_settled and not is_claimed


def _suspend(rt: Runtime, ref: PassRef, steps: Sequence[tuple[StepName, int]], error: TaskNotFound) -> bool:
    try:
        opened = rt.store.open_pass(
            PassOpening(
                run_id=ref.run_id,
                pass_id=ref.pass_id,
                holder=rt.holder(),
                lease_seconds=rt.settings.run_lease_seconds,
                passes_lost_limit=rt.settings.passes_lost,
            )
        )
    except Exception as unread:
        # It may have opened with its answer lost.
        close_later(rt, ref, unread_closing(unread))
        raise
    if isinstance(opened, PassRefusal):
        return opened is not PassRefusal.HELD
    closing = _closing(rt, opened, steps, error)
    try:
        closed = rt.store.close_pass(ref, closing)
    except Exception:
        close_later(rt, ref, closing)
        raise
    if closed is not None:
        send_after(rt, opened.run, closing, closed, due_seconds=closing.due_seconds)
    return True


def _closing(rt: Runtime, history: History, steps: Sequence[tuple[StepName, int]], error: TaskNotFound) -> Closing:
    code, returned = SuspendCode.TASK_NOT_FOUND, tuple(name for name, _ in steps)
    if history.run.status not in OPEN_RUN:
        # The unwind keeps its status and error; its next pass sends the compensation again.
        return Closing(due_seconds=unwind_backoff_seconds(rt, history), returned=returned)
    return Closing(
        status=next_run_status(history.run.status, RunEvent.SUSPEND),
        code=code,
        error=failure_of(error),
        due_seconds=backoff_seconds(rt, history, code),
        returned=returned,
    )
