"""Closing a pass, for every database: the last write, which may settle the run and the step of its parent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import case, func, select, update

from pikkuflow.adapters.sql.database import Transaction
from pikkuflow.adapters.sql.endings import end_waiting, forget_fans, tell_parent
from pikkuflow.adapters.sql.news import more_news, wants_wake
from pikkuflow.adapters.sql.passes import record_all
from pikkuflow.adapters.sql.rows import ahead, ref_of, text_of
from pikkuflow.adapters.sql.tables import run, step
from pikkuflow.domain.act import Closed, Closing, PassRef
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.status import SETTLED_RUN, RunStatus, StepStatus

__all__ = ["close_pass", "closed_before"]

Row = Mapping[str, Any]

_WAITING = (StepStatus.PENDING.value, StepStatus.SCHEDULED.value)


def close_pass(tx: Transaction, ref: PassRef, closing: Closing) -> Closed | None:
    """The last write of a pass. Child before parent: the run's own row is locked first."""
    row = tx.lock_run(ref.run_id)
    if row is None:
        return None
    if row["pass_id"] is None and row["author"] == ref.pass_id:
        return closed_before(tx, row)
    if row["pass_id"] != ref.pass_id:
        return None
    written = record_all(tx, [(ref, write) for write in closing.outcomes])
    if not all(answer is not None and answer.written for answer in written):
        closing = Closing(raise_news=True)
    if _is_forgotten(tx, row, closing):
        closing = replace(closing, raise_news=True)
    _mark_sent(tx, row, closing)
    _mark_returned(tx, row, closing)
    moves = closing.moves(RunStatus(row["status"]))
    tx.do(update(run).where(run.c.id == ref.run_id).values(_closed_values(tx, row, closing, moves=moves)))
    status = RunStatus(closing.status if moves and closing.status is not None else row["status"])
    parent = None
    if moves and status in SETTLED_RUN:
        end_waiting(tx, row)
        error = Failure.from_json(row["error"]) if closing.unwinds and row["error"] else closing.error
        parent = tell_parent(tx, row, output=closing.output, error=error, status=status)
    is_unseen = row["news"] + closing.raise_news > row["seen"]
    if moves and status is RunStatus.COMPENSATING:
        end_waiting(tx, row)
        forget_fans(tx, row)
        is_unseen = True
    return Closed(wake=is_unseen and status not in SETTLED_RUN, status=status, parent=parent)


def closed_before(tx: Transaction, row: Row) -> Closed:
    """The answer was lost: what the first one said, as far as it still holds."""
    status = RunStatus(row["status"])
    parent = None
    if status in SETTLED_RUN and row["parent_run_id"] is not None:
        above = tx.first(select(run).where(run.c.id == row["parent_run_id"]))
        if above is not None and wants_wake(above, tx.now()):
            parent = ref_of(above)
    return Closed(wake=row["news"] > row["seen"] and status not in SETTLED_RUN, status=status, parent=parent)


def _is_forgotten(tx: Transaction, row: Row, closing: Closing) -> bool:
    """A row that the pass inserted is not there: the server died before it was on disk."""
    if not closing.expected:
        return False
    there = select(func.count()).where(step.c.run_id == row["id"], step.c.name.in_(closing.expected))
    return bool(tx.connection.execute(there).scalar_one() < len(closing.expected))


def _mark_sent(tx: Transaction, row: Row, closing: Closing) -> None:
    """Rows whose message left become ``scheduled``, unless a worker has opened another attempt since this pass did."""
    if not closing.sent:
        return
    is_of_pass = (step.c.author == row["pass_id"]) | (step.c.created_at <= row["opened_at"])
    sent = update(step).where(
        step.c.run_id == row["id"],
        step.c.name.in_(closing.sent),
        step.c.status == StepStatus.PENDING.value,
        is_of_pass,
    )
    now = tx.now()
    # A message may leave before its row's time has come; nobody can take it before that.
    since = case((step.c.due_at > now, step.c.due_at), else_=now)
    tx.do(sent.values(status=StepStatus.SCHEDULED.value, scheduled_at=now, sent_at=now, waiting_since=since))


def _mark_returned(tx: Transaction, row: Row, closing: Closing) -> None:
    """Rows whose message came to a worker without their task are pending again."""
    if closing.returned:
        sent = update(step).where(
            step.c.run_id == row["id"], step.c.name.in_(closing.returned), step.c.status == StepStatus.SCHEDULED.value
        )
        since = case((step.c.due_at > step.c.created_at, step.c.due_at), else_=step.c.created_at)
        tx.do(sent.values(status=StepStatus.PENDING.value, scheduled_at=None, sent_at=None, waiting_since=since))


def _closed_values(tx: Transaction, row: Row, closing: Closing, *, moves: bool) -> dict[str, Any]:
    """What the closing sets on the run's row."""
    now = tx.now()
    values: dict[str, Any] = {
        "pass_id": None,
        "pass_holder": None,
        "pass_until": None,
        "author": row["pass_id"],
        "updated_at": now,
        "send_count": 0,
        "next_send_at": None,
        "due_at": ahead(now, closing.due_seconds),
    }
    if closing.raise_news:
        values |= more_news(now)
    if closing.broke_off:
        values |= {"passes_lost": run.c.passes_lost + 1}
    if not moves or closing.status is None:
        return values
    values["status"] = closing.status.value
    if not closing.unwinds:
        is_running = closing.status is RunStatus.RUNNING
        values |= {
            "code": None if is_running else closing.code,
            "error": None if is_running else text_of(closing.error),
        }
    if closing.status is RunStatus.COMPENSATING:
        values |= {**more_news(now), "due_at": None}
    if closing.status in SETTLED_RUN:
        values |= {"output": closing.output, "finished_at": now, "due_at": None, "news_at": None}
        values |= {"handover_at": now if row["handover"] is not None else None}
    return values
