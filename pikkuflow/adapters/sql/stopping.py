"""Stopping runs, for every database: cancelling one, and undoing a completed child (design 3.7)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import insert, select, update

from pikkuflow.adapters.sql.database import Database, Transaction
from pikkuflow.adapters.sql.endings import end_waiting, forget_fans, tell_parent
from pikkuflow.adapters.sql.news import more_news, outside_no, wants_wake
from pikkuflow.adapters.sql.rows import ahead, is_held, new_step_row, ref_of, run_of, steps_of, text_of
from pikkuflow.adapters.sql.tables import run, step
from pikkuflow.domain.act import PassNews, PassRef
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.run import Run
from pikkuflow.domain.status import OPEN_RUN, SETTLED_STEP, RunStatus, StepKind, StepStatus
from pikkuflow.domain.step import NewStep, Place, Step, attempt_seconds
from pikkuflow.domain.stop import Beat, Cancellation, StepStanding, Stopped
from pikkuflow.domain.unwind import may_need_undoing

__all__ = ["StoppingActs", "cancel_run", "keep_details", "overdue_runs", "standing_of", "unwind_child"]

Row = Mapping[str, Any]


class StoppingActs:
    """The acts of ``RunStore`` that stop a run. The contract of each is in ``pikkuflow.ports``."""

    database: Database

    def cancel_run(self, request: Cancellation) -> Stopped | None:
        """Call a run off with one status write."""
        author = str(uuid.uuid4())
        return self.database.write(lambda tx: cancel_run(tx, request, author))

    def overdue_runs(self, limit: int) -> tuple[Run, ...]:
        """Open runs whose deadline is past."""
        return self.database.read(lambda tx: overdue_runs(tx, limit))

    def beat(self, beat: Beat) -> StepStanding:
        """Say how an attempt stands, and keep its details."""
        if beat.details is None and not beat.lives:
            return self.database.read(lambda tx: standing_of(tx, beat))
        return self.database.write(lambda tx: keep_details(tx, beat))

    def unwind_child(self, ref: PassRef, step: NewStep, child: RunId) -> PassNews | None:
        """Ask a completed child to undo itself."""
        return self.database.write(lambda tx: unwind_child(tx, ref, step, child))


def cancel_run(tx: Transaction, request: Cancellation, author: str) -> Stopped | None:
    """Call a run off. A row with this ``author`` was stopped by us, and the answer was lost."""
    row = tx.lock_run(request.run_id)
    if row is None:
        return None
    rows = tx.all(select(step).where(step.c.run_id == request.run_id).order_by(step.c.seq, step.c.name))
    steps = steps_of(rows, tx.now())
    if row["status"] in OPEN_RUN:
        return _stop(tx, row, steps, request, author)
    status = RunStatus(row["status"])
    return Stopped(
        run=ref_of(row),
        status=status,
        is_stopped=row["author"] == author,
        wake=status is RunStatus.COMPENSATING and wants_wake(row, tx.now()),
        children=_live_children(steps),
    )


def _stop(tx: Transaction, row: Row, steps: Sequence[Step], request: Cancellation, author: str) -> Stopped:
    now = tx.now()
    undoes = row["pass_id"] is not None or may_need_undoing(steps)
    status = RunStatus.COMPENSATING if undoes else request.ending
    values: dict[str, Any] = {
        "status": status.value,
        "error": text_of(request.error),
        "code": request.error.code,
        "due_at": None,
        "author": author,
        "updated_at": now,
        "send_count": 0,
        "next_send_at": None,
    }
    if undoes:
        values |= more_news(now)
    else:
        values |= {"finished_at": now, "news_at": None, "handover_at": now if row["handover"] is not None else None}
    tx.do(update(run).where(run.c.id == row["id"]).values(values))
    end_waiting(tx, row, worked_by=row["pass_id"])
    if undoes:
        forget_fans(tx, row)
    parent = None if undoes else tell_parent(tx, row, output=None, error=request.error, status=status)
    return Stopped(
        run=ref_of(row),
        status=status,
        is_stopped=True,
        wake=undoes and not is_held(row, now),
        parent=parent,
        children=_live_children(steps),
    )


def overdue_runs(tx: Transaction, limit: int) -> tuple[Run, ...]:
    """Open runs whose deadline is past, those overdue longest first."""
    late = select(run).where(run.c.status.in_(sorted(OPEN_RUN)), run.c.deadline_at <= tx.now())
    return tuple(run_of(row) for row in tx.all(late.order_by(run.c.deadline_at, run.c.id).limit(limit)))


def _live_children(steps: Sequence[Step]) -> tuple[RunId, ...]:
    return tuple(
        one.child_run_id
        for one in steps
        if one.kind is StepKind.CHILD and one.child_run_id is not None and not one.is_settled
    )


def standing_of(tx: Transaction, beat: Beat) -> StepStanding:
    """How the attempt stands, by one read."""
    mine = (step.c.run_id == run.c.id) & (step.c.name == beat.step)
    columns = (run.c.status, step.c.kind, step.c.attempt, step.c.status.label("step_status"))
    row = tx.first(select(*columns).select_from(run.outerjoin(step, mine)).where(run.c.id == beat.run_id))
    if row is None:
        return StepStanding.OUTDATED
    if row["kind"] is not None and (row["attempt"] != beat.attempt or row["step_status"] in SETTLED_STEP):
        return StepStanding.OUTDATED
    is_undo = row["kind"] == StepKind.COMPENSATION
    works = row["status"] == RunStatus.COMPENSATING if is_undo else row["status"] in OPEN_RUN
    return StepStanding.WORKING if works else StepStanding.STOPPED


def keep_details(tx: Transaction, beat: Beat) -> StepStanding:
    """Keep what the attempt says, and that it lives, if the step is still its own; only the step's row is touched."""
    standing = standing_of(tx, beat)
    mine = (step.c.run_id == beat.run_id) & (step.c.name == beat.step) & (step.c.attempt == beat.attempt)
    columns = (step.c.running_at, step.c.timeout_seconds, step.c.heartbeat_seconds, step.c.due_at)
    row = tx.first(select(*columns).where(mine, step.c.status == StepStatus.RUNNING.value))
    if standing is StepStanding.OUTDATED or row is None:
        return standing
    values: dict[str, Any] = {} if beat.details is None else {"details": beat.details}
    if beat.lives and row["heartbeat_seconds"] is not None and row["due_at"] is not None:
        worked = (tx.now() - row["running_at"]).total_seconds()
        values["due_at"] = ahead(tx.now(), attempt_seconds(row["timeout_seconds"], row["heartbeat_seconds"], worked))
    if values:
        tx.do(update(step).where(mine, step.c.status == StepStatus.RUNNING.value).values(values))
    return standing


def unwind_child(tx: Transaction, ref: PassRef, new: NewStep, child: RunId) -> PassNews | None:
    """Set a completed child compensating, with the row that waits for it. Child before parent, as everywhere."""
    below = tx.lock_run(child)
    row = tx.lock_run(ref.run_id)
    if row is None or row["pass_id"] != ref.pass_id:
        return None
    status = RunStatus(row["status"])
    if status is not RunStatus.COMPENSATING:
        return PassNews(news=row["news"], status=status, written=False)
    mine = (step.c.run_id == ref.run_id) & (step.c.name == new.name)
    if tx.first(select(step.c.name).where(mine)) is None:
        undoes = below is not None and below["status"] == RunStatus.COMPLETED
        tx.do(insert(step).values(_waiting_row(tx, row, new, child, undoes=undoes)))
        if undoes and below is not None:
            _begin_child(tx, row, below)
    return PassNews(news=row["news"], status=status)


def _waiting_row(tx: Transaction, row: Row, new: NewStep, child: RunId, *, undoes: bool) -> dict[str, Any]:
    now = tx.now()
    values = new_step_row(RunId(row["id"]), new, row["pass_id"], now) | {
        "status": StepStatus.RUNNING.value,
        "place": Place.child(child),
        "child_run_id": child,
        "running_at": now,
        "waiting_since": None,
    }
    if undoes:
        return values
    over = {"status": StepStatus.SUCCEEDED.value, "result": "null", "settled_at": now, "settled_no": outside_no(row)}
    return values | over


def _begin_child(tx: Transaction, row: Row, below: Row) -> None:
    values = {
        "status": RunStatus.COMPENSATING.value,
        "error": row["error"],
        "code": row["code"],
        "finished_at": None,
        "due_at": None,
        "send_count": 0,
        "next_send_at": None,
    }
    tx.do(update(run).where(run.c.id == below["id"]).values(**values, **more_news(tx.now())))
    end_waiting(tx, below)
    forget_fans(tx, below)
