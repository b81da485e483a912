"""Passes that are previewed and never opened, for every database (``docs/decisions/unopened-passes.md``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select, update

from pikkuflow.adapters.sql.database import Transaction
from pikkuflow.adapters.sql.passes import open_fans
from pikkuflow.adapters.sql.rows import ahead, new_step_row, run_of, steps_of
from pikkuflow.adapters.sql.tables import run, step
from pikkuflow.domain.act import Advance, PassRef
from pikkuflow.domain.history import History
from pikkuflow.domain.ids import PassId, RunId
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.domain.step import Step

__all__ = ["advance", "preview_pass", "previewed"]

Row = Mapping[str, Any]


def preview_pass(tx: Transaction, run_id: RunId, pass_id: PassId) -> History | None:
    """What an opening would read, with nothing written."""
    row = tx.first(select(run).where(run.c.id == run_id))
    now = tx.now()
    if row is None or not _is_free(row) or (row["starts_at"] is not None and row["starts_at"] > now):
        return None
    steps = tx.all(select(step).where(step.c.run_id == run_id).order_by(step.c.seq, step.c.name))
    return previewed(row, pass_id, now, steps_of(steps, now))


def previewed(row: Row, pass_id: PassId, now: datetime, steps: tuple[Step, ...]) -> History:
    """The history as an opening would show it."""
    return History(pass_id=pass_id, run=replace(run_of(row), seen=row["news"], updated_at=now), steps=steps)


def advance(tx: Transaction, ref: PassRef, advance_: Advance) -> bool:
    """Open, insert and close. False: the run has moved."""
    row = tx.lock_run(ref.run_id)
    if row is None:
        return False
    if row["author"] == ref.pass_id:
        # Done before, with its answer lost.
        return True
    if not _is_free(row) or row["news"] != advance_.news:
        return False
    now = tx.now()
    if advance_.steps:
        rows = [new_step_row(ref.run_id, new, ref.pass_id, now) for new in advance_.steps]
        tx.connection.execute(
            insert(step), [_as_sent(one, now) if one["name"] in advance_.sent else one for one in rows]
        )
        open_fans(tx, ref, advance_.steps)
    tx.do(
        update(run)
        .where(run.c.id == ref.run_id)
        .values(
            seen=row["news"],
            news_at=None,
            author=ref.pass_id,
            updated_at=now,
            send_count=0,
            next_send_at=None,
            due_at=ahead(now, advance_.due_seconds),
        )
    )
    return True


def _is_free(row: Row) -> bool:
    """It runs, has unseen news, and no pass has it: not even one that lapsed, which an opening must count as lost."""
    return bool(row["status"] == RunStatus.RUNNING and row["pass_id"] is None and row["seen"] < row["news"])


def _as_sent(row: dict[str, Any], now: datetime) -> dict[str, Any]:
    return row | {"status": StepStatus.SCHEDULED.value, "scheduled_at": now, "sent_at": now}
