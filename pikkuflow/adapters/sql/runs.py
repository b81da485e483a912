"""Acts on whole runs and everything that only reads, for every database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Select, delete, select, tuple_, update

from pikkuflow.adapters.sql.database import Transaction
from pikkuflow.adapters.sql.rows import ahead, attempt_of, new_run_row, run_of, step_of, steps_of
from pikkuflow.adapters.sql.tables import attempt, decision, fan, run, signal, state, step
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.run import InsertedRun, NewRun, Run, RunFilter, RunKey
from pikkuflow.domain.status import SETTLED_RUN, RunStatus
from pikkuflow.domain.step import Attempt, Step

__all__ = [
    "add_run",
    "ask_pass",
    "delete_run",
    "get_run",
    "get_state",
    "get_step",
    "insert_runs",
    "inserted_of",
    "list_attempts",
    "list_runs",
    "list_steps",
    "mark_delivered",
    "undelivered_runs",
]


def insert_runs(tx: Transaction, runs: Sequence[NewRun], author: str) -> tuple[InsertedRun, ...]:
    """Insert each run unless its id is there. A row with this ``author`` is one of ours, also when the answer was lost."""
    now = tx.now()
    for new in sorted(runs, key=lambda new: new.id):
        add_run(tx, new, author, now)
    columns = (run.c.id, run.c.workflow, run.c.input, run.c.status, run.c.author)
    ids = {new.id for new in runs}
    found = {row["id"]: row for row in tx.all(select(*columns).where(run.c.id.in_(ids)))}
    first: set[RunId] = set()
    answers = []
    for new in runs:
        answers.append(inserted_of(found[new.id], author, is_first=new.id not in first))
        first.add(new.id)
    return tuple(answers)


def inserted_of(row: Mapping[str, Any], author: str, *, is_first: bool) -> InsertedRun:
    """What an insert found; of several with one id in the same act only the first created it."""
    return InsertedRun(
        id=row["id"],
        created=is_first and row["author"] == author,
        workflow=row["workflow"],
        input=row["input"],
        status=RunStatus(row["status"]),
    )


def add_run(tx: Transaction, new: NewRun, author: str, now: datetime) -> None:
    """Insert a run unless its id is there."""
    tx.add(run, new_run_row(new, author, now))


def ask_pass(tx: Transaction, run_id: RunId, in_seconds: float) -> None:
    """``due_at`` becomes the earlier of the two."""
    row = tx.lock_run(run_id)
    if row is None or row["status"] in SETTLED_RUN:
        return
    at = ahead(tx.now(), in_seconds)
    is_later = run.c.due_at.is_(None) | (run.c.due_at > at)
    tx.do(update(run).where(run.c.id == run_id, is_later).values(due_at=at))


def undelivered_runs(tx: Transaction, limit: int) -> tuple[Run, ...]:
    """Settled runs whose outcome is due to be handed on, those due longest first."""
    wanted = select(run).where(run.c.handover_at <= tx.now()).order_by(run.c.handover_at, run.c.id).limit(limit)
    return tuple(run_of(row) for row in tx.all(wanted))


def mark_delivered(tx: Transaction, run_id: RunId) -> None:
    """The run's outcome was handed on."""
    fresh = update(run).where(run.c.id == run_id, run.c.delivered_at.is_(None))
    tx.do(fresh.values(delivered_at=tx.now(), handover_at=None))


def get_run(tx: Transaction, run_id: RunId) -> Run | None:
    """The run, or None."""
    row = tx.first(select(run).where(run.c.id == run_id))
    return None if row is None else run_of(row)


def list_runs(tx: Transaction, where: RunFilter, *, limit: int, after: RunKey | None) -> tuple[Run, ...]:
    """Newest first, after the key given."""
    wanted = _filtered(select(run), where)
    if after is not None:
        wanted = wanted.where(tuple_(run.c.created_at, run.c.id) < (after.created_at, after.id))
    newest = wanted.order_by(run.c.created_at.desc(), run.c.id.desc()).limit(limit)
    return tuple(run_of(row) for row in tx.all(newest))


def _filtered(wanted: Select[Any], where: RunFilter) -> Select[Any]:
    for name in ("workflow", "status", "owner", "code"):
        value = getattr(where, name)
        if value is not None:
            wanted = wanted.where(run.c[name] == str(value))
    if where.since is not None:
        wanted = wanted.where(run.c.created_at >= where.since)
    if where.until is not None:
        wanted = wanted.where(run.c.created_at < where.until)
    return wanted


def list_steps(tx: Transaction, run_id: RunId) -> tuple[Step, ...]:
    """The run's steps by ``seq``."""
    rows = tx.all(select(step).where(step.c.run_id == run_id).order_by(step.c.seq, step.c.name))
    return steps_of(rows, tx.now())


def get_step(tx: Transaction, run_id: RunId, name: StepName) -> Step | None:
    """One step, or None."""
    row = tx.first(select(step).where(step.c.run_id == run_id, step.c.name == name))
    return None if row is None else step_of(row, tx.now())


def list_attempts(tx: Transaction, run_id: RunId) -> tuple[Attempt, ...]:
    """Earlier attempts of the run's steps."""
    wanted = select(attempt).where(attempt.c.run_id == run_id).order_by(attempt.c.step, attempt.c.attempt)
    return tuple(attempt_of(row) for row in tx.all(wanted))


def get_state(tx: Transaction, run_id: RunId) -> Mapping[str, str]:
    """The run's key/value state as stored texts."""
    return {row["key"]: row["value"] for row in tx.all(select(state).where(state.c.run_id == run_id))}


def delete_run(tx: Transaction, run_id: RunId) -> bool:
    """Remove a settled run and all that hangs on it."""
    row = tx.lock_run(run_id)
    if row is None or row["status"] not in SETTLED_RUN:
        return False
    for table in (step, attempt, fan, state, signal, decision):
        tx.do(delete(table).where(table.c.run_id == run_id))
    tx.do(delete(run).where(run.c.id == run_id))
    return True
