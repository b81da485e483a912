"""What times that are over leave in the rows of steps."""

from __future__ import annotations

from pikkuflow.adapters.memory.tables import StepRow
from pikkuflow.domain import loss
from pikkuflow.domain.status import StepStatus
from tests.simulation.ledger import Execution, Ledger, Violation

__all__ = ["judge_in_time", "said_of_time"]

_ROUNDED_SECONDS = 0.001


def said_of_time(row: StepRow, ledger: Ledger, *, is_over: bool) -> set[str]:
    """What a failed step may say though its task did not: its time was over, or its attempt was told that it works in vain.

    As with other failures, a retry that never began ends with its run, by what the attempt before it said (design 3.7).
    """
    said = {f"Run {row.run_id!r} was stopped while step {row.name!r} worked."}
    for attempt in (row.attempt, row.attempt - 1) if is_over else (row.attempt,):
        ended = ledger.limits.ended.get((row.run_id, row.name, attempt))
        if ended is not None:
            said.add(ended)
        if any(_took(done) + _ROUNDED_SECONDS > (row.timeout_seconds or 0.0) for done in _here(row, ledger, attempt)):
            said.add(loss.timed_out(row.name, row.timeout_seconds or 0.0, attempt).message)
    return said


def judge_in_time(row: StepRow, ledger: Ledger) -> None:
    """A step that its own pass worked has succeeded in time: nobody else could see it pass, so its late outcome is refused there."""
    if row.timeout_seconds is None or row.status is not StepStatus.SUCCEEDED or not row.place.startswith("pass:"):
        return
    worked = [done for done in _here(row, ledger, row.attempt) if done.ended]
    if worked and all(_took(done) > row.timeout_seconds + _ROUNDED_SECONDS for done in worked):
        raise Violation("a late outcome is refused", f"{row.run_id} {row.name} attempt {row.attempt}")


def _here(row: StepRow, ledger: Ledger, attempt: int) -> list[Execution]:
    """Executions of that attempt in passes."""
    if row.timeout_seconds is None:
        return []
    key = (row.run_id, row.name, attempt)
    return [
        done
        for done in ledger.executions
        if (done.run_id, done.step, done.attempt) == key and done.place.startswith("pass ")
    ]


def _took(done: Execution) -> float:
    return 0.0 if done.until is None else done.until - done.at
