"""How a run ends, for every database, whoever ends it: what becomes of its waiting rows and of its parent's step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import delete, select, update

from pikkuflow.adapters.sql.database import Transaction
from pikkuflow.adapters.sql.news import count_down, outside_no, raise_news
from pikkuflow.adapters.sql.rows import ref_of, text_of
from pikkuflow.adapters.sql.tables import attempt, fan, step
from pikkuflow.domain import loss
from pikkuflow.domain.act import RunRef
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.recorded_names import UNDO_SUFFIX
from pikkuflow.domain.status import SETTLED_STEP, RunStatus, StepStatus
from pikkuflow.domain.step import Place

__all__ = ["end_waiting", "forget_fans", "tell_parent"]

Row = Mapping[str, Any]

_WAITING: Final = (StepStatus.PENDING.value, StepStatus.SCHEDULED.value, StepStatus.SUSPENDED.value)


def end_waiting(tx: Transaction, row: Row, *, worked_by: str | None = None) -> None:
    """Cancel rows that never started; fail rows with a past attempt, so that they stay candidates for undoing (design 3.7).

    A retry in place of the pass ``worked_by`` is left to it: it may be at work, and its outcome counts.
    """
    over = {
        "settled_at": tx.now(),
        "settled_no": outside_no(row),
        "due_at": None,
        "waiting_since": None,
        "gate_at": None,
    }
    waiting = (step.c.run_id == row["id"]) & step.c.status.in_(_WAITING)
    tx.do(update(step).where(waiting, step.c.attempt == 1).values(status=StepStatus.CANCELLED.value, **over))
    last_error = (
        select(attempt.c.error)
        .where(
            attempt.c.run_id == step.c.run_id, attempt.c.step == step.c.name, attempt.c.attempt == step.c.attempt - 1
        )
        .scalar_subquery()
    )
    if worked_by is not None:
        waiting &= step.c.place != Place.in_pass(worked_by)
    tx.do(update(step).where(waiting).values(status=StepStatus.FAILED.value, error=last_error, **over))


def forget_fans(tx: Transaction, row: Row) -> None:
    """From here on every outcome of the run is news: what is to be undone waits for each."""
    tx.do(delete(fan).where(fan.c.run_id == row["id"]))


def tell_parent(
    tx: Transaction, row: Row, *, output: str | None, error: Failure | None, status: RunStatus
) -> RunRef | None:
    """Settle the parent's step with what the child came to, or the step that undoes it; the parent's half may touch no row (D9)."""
    parent_id, name = row["parent_run_id"], row["parent_step"]
    above = None if parent_id is None else tx.lock_run(parent_id)
    if above is None:
        return None
    names = (name, f"{name}{UNDO_SUFFIX}")
    mine = (step.c.run_id == parent_id) & (step.c.child_run_id == row["id"])
    open_rows = select(step.c.name, step.c.fan_id).where(
        mine, step.c.name.in_(names), step.c.status.not_in(sorted(SETTLED_STEP))
    )
    found = {told["name"]: told for told in tx.locked(open_rows)}
    told = found.get(names[0]) or found.get(names[1])
    if told is None:
        return None
    is_undo = told["name"] == names[1]
    values = _undone(row, status) if is_undo else _ended(row, output, error, status)
    values |= {"settled_at": tx.now(), "settled_no": outside_no(above), "lease_until": None, "due_at": None}
    tx.do(update(step).where(mine, step.c.name == told["name"]).values(values))
    if not count_down(tx, parent_id, told["fan_id"]):
        return None
    return ref_of(above) if raise_news(tx, above) else None


def _ended(row: Row, output: str | None, error: Failure | None, status: RunStatus) -> dict[str, Any]:
    if status is RunStatus.COMPLETED:
        return {"status": StepStatus.SUCCEEDED.value, "result": output}
    failure = error or loss.child_ended(RunId(row["id"]), status)
    return {"status": StepStatus.FAILED.value, "error": text_of(failure)}


def _undone(row: Row, status: RunStatus) -> dict[str, Any]:
    if status is not RunStatus.COMPENSATION_FAILED:
        return {"status": StepStatus.SUCCEEDED.value, "result": "null"}
    failure = loss.child_ended(RunId(row["id"]), status)
    return {"status": StepStatus.FAILED.value, "error": text_of(failure)}
