"""Passes, for every database: opening, and the writes in the middle of one, each a short transaction that locks the run's row first.

PostgreSQL has statements of its own for these acts (``postgres_passes``); there these transactions serve the rare cases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, insert, select, update

from pikkuflow.adapters.sql.database import Transaction
from pikkuflow.adapters.sql.news import count_down
from pikkuflow.adapters.sql.rows import ahead, is_held, new_step_row, run_of, steps_of, text_of
from pikkuflow.adapters.sql.runs import add_run
from pikkuflow.adapters.sql.tables import attempt, fan, run, state, step
from pikkuflow.domain import loss
from pikkuflow.domain.act import EndedAttempt, PassNews, PassOpening, PassRef, PassRefusal, StepWrite
from pikkuflow.domain.history import History
from pikkuflow.domain.run import NewRun
from pikkuflow.domain.status import OPEN_RUN, SETTLED_RUN, SETTLED_STEP, RunStatus, StepKind, StepStatus, SuspendCode
from pikkuflow.domain.step import NewStep, Place

__all__ = ["copied", "insert_steps", "keep_attempt", "open_pass", "record", "record_all", "start_child"]

Row = Mapping[str, Any]


# --- opening ----------------------------------------------------------------------------------------------------------


def open_pass(tx: Transaction, opening: PassOpening) -> History | PassRefusal:
    """Take the run, lock first and read second."""
    row = tx.lock_run(opening.run_id)
    if row is None:
        return PassRefusal.MISSING
    now = tx.now()
    refusal = _refusal(row, opening, now)
    if refusal is not None:
        return refusal
    was_lost = row["pass_id"] not in {None, opening.pass_id}
    passes_lost = row["passes_lost"] + was_lost
    if was_lost and passes_lost >= opening.passes_lost_limit and row["status"] in OPEN_RUN:
        _suspend_lost(tx, row, passes_lost)
        return PassRefusal.LOST
    tx.do(update(run).where(run.c.id == opening.run_id).values(_taken(row, opening, now, passes_lost=passes_lost)))
    taken = tx.first(select(run).where(run.c.id == opening.run_id))
    if taken is None:
        return PassRefusal.MISSING
    steps = tx.all(select(step).where(step.c.run_id == opening.run_id).order_by(step.c.seq, step.c.name))
    return History(pass_id=opening.pass_id, run=run_of(taken), steps=steps_of(steps, now))


def _refusal(row: Row, opening: PassOpening, now: datetime) -> PassRefusal | None:
    if row["status"] in SETTLED_RUN:
        return PassRefusal.SETTLED
    if row["pass_id"] == opening.pass_id:
        return None
    if is_held(row, now):
        return PassRefusal.HELD
    if row["starts_at"] is not None and row["starts_at"] > now:
        return PassRefusal.NOT_DUE
    if row["status"] == RunStatus.SUSPENDED and row["code"] == SuspendCode.PASS_LOST:
        return PassRefusal.LOST
    return None


def _suspend_lost(tx: Transaction, row: Row, passes_lost: int) -> None:
    """Suspend a run that ends every process which passes over it; only a resume opens it again."""
    tx.do(
        update(run)
        .where(run.c.id == row["id"])
        .values(
            status=RunStatus.SUSPENDED.value,
            code=SuspendCode.PASS_LOST.value,
            error=loss.passes_lost(passes_lost).to_json(),
            lost=True,
            passes_lost=passes_lost,
            seen=run.c.news,
            news_at=None,
            pass_id=None,
            pass_holder=None,
            pass_until=None,
            due_at=None,
            updated_at=tx.now(),
        )
    )


def _taken(row: Row, opening: PassOpening, now: datetime, *, passes_lost: int) -> dict[str, Any]:
    is_same = row["pass_id"] == opening.pass_id
    return {
        "pass_id": opening.pass_id,
        "pass_holder": opening.holder,
        "pass_until": ahead(now, opening.lease_seconds),
        "opened_at": row["opened_at"] if is_same else now,
        "seen": run.c.news,
        "news_at": None,
        "lost": row["lost"] or passes_lost > row["passes_lost"],
        "passes_lost": passes_lost,
        "updated_at": now,
    }


# --- one in-place row --------------------------------------------------------------------------------------------------


def record(tx: Transaction, ref: PassRef, write: StepWrite) -> PassNews | None:
    """Write one in-place row. A row that the write may not change leaves it unwritten."""
    return _record(tx, ref, write, _held(tx, ref))


def record_all(tx: Transaction, writes: Sequence[tuple[PassRef, StepWrite]]) -> tuple[PassNews | None, ...]:
    """Write in-place rows of one run or of several; the runs are locked first, in the order of their ids."""
    held = {ref: _held(tx, ref) for ref in sorted({ref for ref, _ in writes}, key=lambda ref: ref.run_id)}
    return tuple([_record(tx, ref, write, held[ref]) for ref, write in writes])


def _record(tx: Transaction, ref: PassRef, write: StepWrite, held: Row | None) -> PassNews | None:
    if held is None:
        return None
    is_start = write.status is StepStatus.RUNNING
    if is_start and not _may_begin(held, write.step.kind):
        return _news(held, written=False)
    if not _write(tx, ref, write):
        return _news(held, written=False)
    if write.state is not None:
        _remember(tx, ref, write.state)
    if not is_start and (held["lost"] or held["passes_lost"]):
        tx.do(update(run).where(run.c.id == ref.run_id).values(lost=False, passes_lost=0))
    return _news(held)


def _held(tx: Transaction, ref: PassRef) -> Row | None:
    """The run's row, locked, if the pass still owns it."""
    row = tx.lock_run(ref.run_id)
    return row if row is not None and row["pass_id"] == ref.pass_id else None


def _may_begin(held: Row, kind: StepKind) -> bool:
    """Work begins only in an open run; compensations only in one that unwinds."""
    if kind is StepKind.COMPENSATION:
        return bool(held["status"] == RunStatus.COMPENSATING)
    return held["status"] in OPEN_RUN


def _news(held: Row, *, written: bool = True) -> PassNews:
    return PassNews(news=held["news"], status=RunStatus(held["status"]), written=written)


def _write(tx: Transaction, ref: PassRef, write: StepWrite) -> bool:
    name = write.step.name
    mine = (step.c.run_id == ref.run_id) & (step.c.name == name)
    row = next(iter(tx.locked(select(step).where(mine))), None)
    now = tx.now()
    if row is None:
        tx.do(
            insert(step).values(new_step_row(ref.run_id, write.step, ref.pass_id, now) | _shown(ref, write, None, now))
        )
    elif row["attempt"] == write.attempt and row["status"] == write.status and row["author"] == ref.pass_id:
        return True
    elif row["status"] in SETTLED_STEP or row["attempt"] not in _expected(write, row["place"]):
        return False
    else:
        if row["attempt"] != write.attempt:
            keep_attempt(tx, _as_ended(copied(row), write.ended, now))
        tx.do(update(step).where(mine).values(_shown(ref, write, row, now)))
    if write.ended is not None:
        keep_attempt(tx, _never_stored(ref, write, write.ended, now))
    if write.status in SETTLED_STEP:
        count_down(tx, ref.run_id, write.step.fan_id)
    return True


def _expected(write: StepWrite, place: str) -> set[int]:
    """The attempts that the row may show before this write. The next attempt at a dispatched step is whoever's that opened it."""
    if Place.is_queue(place) and write.expects is not None:
        return {write.expects}
    return {shown for shown in (write.attempt, write.expects) if shown is not None and shown <= write.attempt}


def _shown(ref: PassRef, write: StepWrite, row: Row | None, now: datetime) -> dict[str, Any]:
    """What the row shows after the write; ``row`` is what it shows now."""
    is_same = row is not None and row["attempt"] == write.attempt
    started = now - timedelta(seconds=write.started_seconds_ago)
    is_pending = write.status is StepStatus.PENDING
    running_at: datetime | None = started
    if is_pending:
        running_at = None
    elif row is not None and is_same and write.status is not StepStatus.RUNNING:
        running_at = row["running_at"] or started
    return {
        "attempt": write.attempt,
        "status": write.status.value,
        "place": write.step.place,
        "result": write.result,
        "error": text_of(write.error),
        "override": write.override,
        "author": ref.pass_id,
        "claim_id": None,
        "claim_holder": None,
        "lease_until": None,
        "waiting_since": ahead(now, write.delay_seconds or 0.0)
        if is_pending and Place.is_queue(write.step.place)
        else None,
        "due_at": ahead(now, write.delay_seconds) if is_pending else None,
        "send_count": 0,
        "next_send_at": None,
        "created_at": row["created_at"] if row is not None and is_same else now,
        "running_at": running_at,
        "scheduled_at": row["scheduled_at"] if row is not None and is_same else None,
        "sent_at": row["sent_at"] if row is not None and is_same else None,
        "settled_at": now if write.status in SETTLED_STEP else None,
        "settled_no": write.no if write.status in SETTLED_STEP else None,
    }


def _remember(tx: Transaction, ref: PassRef, pair: tuple[str, str]) -> None:
    """Set one key of the run's state; the run's row is locked, so nobody writes between the two."""
    key, value = pair
    tx.do(delete(state).where(state.c.run_id == ref.run_id, state.c.key == key))
    tx.do(insert(state).values(run_id=ref.run_id, key=key, value=value))


# --- earlier attempts ---------------------------------------------------------------------------------------------------


def copied(row: Row) -> dict[str, Any]:
    """The attempt that a step's row shows, as a row of the attempts table."""
    same = (
        "attempt",
        "status",
        "error",
        "result",
        "place",
        "author",
        "created_at",
        "running_at",
        "scheduled_at",
        "settled_at",
    )
    return {"run_id": row["run_id"], "step": row["name"]} | {name: row[name] for name in same}


def keep_attempt(tx: Transaction, row: Mapping[str, Any]) -> None:
    """Write an earlier attempt, unless it is there; the run's row is locked, so nobody writes between the two."""
    mine = (attempt.c.run_id == row["run_id"]) & (attempt.c.step == row["step"]) & (attempt.c.attempt == row["attempt"])
    if tx.first(select(attempt.c.attempt).where(mine)) is None:
        tx.do(insert(attempt).values(row))


def _as_ended(shown: dict[str, Any], ended: EndedAttempt | None, now: datetime) -> dict[str, Any]:
    """As it ended, or, when nobody knows how, as it was shown."""
    if ended is None or ended.attempt != shown["attempt"]:
        return shown
    return shown | {"status": ended.status.value, "error": text_of(ended.error), "settled_at": now}


def _never_stored(ref: PassRef, write: StepWrite, ended: EndedAttempt, now: datetime) -> dict[str, Any]:
    started = now - timedelta(seconds=ended.started_seconds_ago)
    return {
        "run_id": ref.run_id,
        "step": write.step.name,
        "attempt": ended.attempt,
        "status": ended.status.value,
        "error": text_of(ended.error),
        "result": None,
        "place": write.step.place,
        "author": ref.pass_id,
        "created_at": started,
        "running_at": started,
        "scheduled_at": None,
        "settled_at": now,
    }


# --- rows that others work ----------------------------------------------------------------------------------------------


def insert_steps(tx: Transaction, ref: PassRef, steps: Sequence[NewStep], *, joined: bool) -> PassNews | None:
    """Insert waiting rows with one multi-row insert, and their fans' counters."""
    held = _held(tx, ref)
    if held is None:
        return None
    if not all(_may_begin(held, new.kind) for new in steps):
        return _news(held, written=False)
    names = [new.name for new in steps]
    there = {
        row["name"] for row in tx.all(select(step.c.name).where(step.c.run_id == ref.run_id, step.c.name.in_(names)))
    }
    missing = [new for new in steps if new.name not in there]
    if missing:
        tx.connection.execute(insert(step), [new_step_row(ref.run_id, new, ref.pass_id, tx.now()) for new in missing])
    if joined:
        _open_fans(tx, ref, missing)
    return _news(held)


def _open_fans(tx: Transaction, ref: PassRef, inserted: Sequence[NewStep]) -> None:
    """Set each fan's counter to the rows inserted, or add them to it; a repeated act inserts none and so changes none."""
    for fan_id in sorted({new.fan_id for new in inserted if new.fan_id is not None}):
        members = sum(new.fan_id == fan_id for new in inserted)
        mine = (fan.c.run_id == ref.run_id) & (fan.c.fan_id == fan_id)
        if tx.first(select(fan.c.open).where(mine)) is None:
            tx.do(insert(fan).values(run_id=ref.run_id, fan_id=fan_id, open=members))
        else:
            tx.do(update(fan).where(mine).values(open=fan.c.open + members))


def start_child(tx: Transaction, ref: PassRef, new: NewStep, child: NewRun, *, result: str | None) -> PassNews | None:
    """Insert the child run and the parent's row, running and worked by the child, or settled with a result; idempotent by step."""
    held = _held(tx, ref)
    if held is None:
        return None
    if held["status"] not in OPEN_RUN:
        return _news(held, written=False)
    mine = (step.c.run_id == ref.run_id) & (step.c.name == new.name)
    if tx.first(select(step.c.name).where(mine)) is not None:
        return _news(held)
    now = tx.now()
    # Inserting locks no run that anyone else knows of, so the order "child before parent" is kept.
    add_run(tx, child, ref.pass_id, now)
    row = new_step_row(ref.run_id, new, ref.pass_id, now) | {
        "status": StepStatus.RUNNING.value,
        "place": Place.child(child.id),
        "child_run_id": child.id,
        "running_at": now,
        "waiting_since": None,
    }
    if result is not None:
        row |= {"status": StepStatus.SUCCEEDED.value, "result": result, "settled_at": now, "settled_no": new.begun_no}
    tx.do(insert(step).values(row))
    return _news(held)
