"""Sweeps, for every database: what bookkeeping and messages lost (design 3.8).

A sweep asks a few sources in turn. Each source is a range of one index, read in the order (time, run, step), oldest first; a page goes on
where the one before ended, by that key (D12). The rows found are locked, those that another transaction holds are left for the next time,
and each has its send count and next-send time raised, so that a fleet does not amplify a backlog (D13).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Select, Table, bindparam, exists, or_, select, tuple_, update

from pikkuflow.adapters.sql.columns import text_of_time, time_of_text
from pikkuflow.adapters.sql.database import Transaction
from pikkuflow.adapters.sql.rows import message_of
from pikkuflow.adapters.sql.tables import run, step, sweep
from pikkuflow.domain.act import RunRef, StepMessage, SweepRequest, Swept
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import OPEN_RUN, SETTLED_RUN, RunStatus, StepKind, StepStatus, SuspendCode
from pikkuflow.domain.step import Place

__all__ = ["note_sweep", "put_off_delivery", "sweep_ages", "sweep_scheduled", "sweep_stalled", "sweep_undispatched"]

_FIRST_SECONDS: Final = 30
_LONGEST_SECONDS: Final = 600
_BACKSTOP_SECONDS: Final = 300

_OPEN: Final = sorted(OPEN_RUN)
_SETTLED: Final = sorted(SETTLED_RUN)
_WAITING: Final = (StepStatus.PENDING.value, StepStatus.SCHEDULED.value)
_SAME_RUN: Final = run.c.id == step.c.run_id
_IS_UNDO: Final = step.c.kind == StepKind.COMPENSATION.value
_MAY_BE_SENT: Final = or_(
    run.c.status.in_(_OPEN) & ~_IS_UNDO, (run.c.status == RunStatus.COMPENSATING.value) & _IS_UNDO
)
"""A worker would take it: a step of an open run, a compensation of one that unwinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A range of an index: rows of ``table`` by ``time`` up to ``before``, that meet ``where``."""

    table: Table
    time: Column[Any]
    before: datetime
    where: tuple[ColumnElement[bool], ...]
    is_backstop: bool = False

    @property
    def key(self) -> tuple[Column[Any], ...]:
        """What the index is sorted by."""
        return (self.time, run.c.id) if self.table is run else (self.time, step.c.run_id, step.c.name)

    def page(self, now: datetime, after: Sequence[Any] | None, limit: int) -> Select[Any]:
        """The next rows that may be driven now."""
        due = or_(self.table.c.next_send_at.is_(None), self.table.c.next_send_at <= now)
        wanted = select(*self._columns()).where(self.time <= self.before, due, *self.where)
        if self.table is step:
            wanted = wanted.join_from(step, run, _SAME_RUN)
        if after is not None:
            wanted = wanted.where(tuple_(*self.key) > tuple(after))
        return wanted.order_by(*self.key).limit(limit)

    def _columns(self) -> tuple[ColumnElement[Any], ...]:
        shared = (run.c.id, run.c.workflow, self.time.label("found_at"), self.table.c.send_count)
        if self.table is run:
            return shared
        return (
            *shared,
            step.c.run_id,
            step.c.name,
            step.c.attempt,
            step.c.task,
            step.c.queue,
            step.c.options,
            step.c.override,
            step.c.place,
            (step.c.status == StepStatus.RUNNING.value).label("is_worked"),
        )


def sweep_stalled(tx: Transaction, request: SweepRequest) -> Swept:
    """Runs with unseen news or a lapsed pass, and, as a backstop, runs that nothing will move."""
    now = tx.now()
    before = now - timedelta(seconds=request.older_than_seconds)
    # A run that lost too many passes opens for a resume only.
    can_open = ~(
        (run.c.status == RunStatus.SUSPENDED.value)
        & (run.c.code == SuspendCode.PASS_LOST.value)
        & run.c.code.is_not(None)
    )
    not_settled = run.c.status.not_in(_SETTLED)
    lapsed = _Source(table=run, time=run.c.pass_until, before=now, where=(not_settled,))
    unseen = _Source(
        table=run, time=run.c.news_at, before=before, where=(not_settled, run.c.pass_id.is_(None), can_open)
    )
    return _swept(tx, request, (lapsed, unseen, *_forgotten(now)))


def _forgotten(now: datetime) -> tuple[_Source, ...]:
    """Runs that nothing will move: no pass, news or time of their own, and no row that a message, a time or a child run will bring on."""
    child = run.alias()
    lives = exists().where(child.c.id == step.c.child_run_id, child.c.status.not_in(_SETTLED))
    moves = or_(step.c.place.startswith(Place.QUEUE, autoescape=True), step.c.due_at.is_not(None), lives)
    open_step = step.c.status.in_((*_WAITING, StepStatus.RUNNING.value))
    idle = (run.c.pass_id.is_(None), run.c.due_at.is_(None), run.c.news_at.is_(None))
    nothing = ~exists().where(_SAME_RUN, open_step, moves).correlate(run)
    before = now - timedelta(seconds=_BACKSTOP_SECONDS)
    return tuple(
        _Source(
            table=run,
            time=run.c.updated_at,
            before=before,
            where=(run.c.status == status.value, *idle, nothing),
            is_backstop=True,
        )
        for status in (RunStatus.RUNNING, RunStatus.COMPENSATING)
    )


def sweep_undispatched(tx: Transaction, request: SweepRequest) -> Swept:
    """Dispatched rows that no worker has."""
    now = tx.now()
    before = now - timedelta(seconds=request.older_than_seconds)
    is_open = _MAY_BE_SENT
    waiting = _Source(table=step, time=step.c.waiting_since, before=before, where=(is_open,))
    lapsed = _Source(table=step, time=step.c.lease_until, before=now, where=(is_open,))
    return _swept(tx, request, (lapsed, waiting))


def sweep_scheduled(tx: Transaction, request: SweepRequest) -> Swept:
    """Everything that is due: runs to wake, and messages for dispatched rows."""
    now = tx.now()
    before = now - timedelta(seconds=request.older_than_seconds)
    is_free = or_(run.c.pass_until.is_(None), run.c.pass_until <= now)
    not_settled = run.c.status.not_in(_SETTLED)
    runs = _Source(table=run, time=run.c.due_at, before=before, where=(not_settled, is_free))
    is_worked = step.c.status == StepStatus.RUNNING.value
    is_message = step.c.place.startswith(Place.QUEUE, autoescape=True) & _MAY_BE_SENT & ~is_worked
    # A message that left after the time came is the other sweep's to repeat.
    is_unsent = or_(step.c.sent_at.is_(None), step.c.sent_at < step.c.due_at)
    is_run_due = run.c.due_at.is_not(None) & (run.c.due_at <= before)
    # A row that a worker has is due when the time of its attempt is over: its run sees to that.
    is_timer = is_worked | ~step.c.place.startswith(Place.QUEUE, autoescape=True)
    is_timer = is_timer & is_free & not_settled & ~is_run_due
    steps = _Source(table=step, time=step.c.due_at, before=before, where=(or_(is_message & is_unsent, is_timer),))
    return _swept(tx, request, (runs, steps))


def _swept(tx: Transaction, request: SweepRequest, sources: Sequence[_Source]) -> Swept:
    """One page over the sources, driven."""
    number, after = _read_key(request.after)
    found: list[tuple[int, Mapping[str, Any]]] = []
    for index in range(number, len(sources)):
        source = sources[index]
        wanted = source.page(tx.now(), after if index == number else None, request.limit - len(found))
        rows = tx.all(wanted.with_for_update(key_share=True, skip_locked=True, of=source.table))
        _raise_sends(tx, source.table, rows)
        found += [(index, row) for row in rows]
        if len(found) >= request.limit:
            break
    is_full = len(found) >= request.limit
    overdue = {id(row) for index, row in found if sources[index].time is step.c.due_at and row["is_worked"]}
    page = _answer(found, overdue, last=_key_of(*found[-1]) if found and is_full else None)
    forgotten = (row for index, row in found if sources[index].is_backstop)
    return replace(page, forgotten=tuple(row["id"] for row in forgotten if not row["send_count"]))


def _answer(found: Sequence[tuple[int, Mapping[str, Any]]], overdue: AbstractSet[int], last: str | None) -> Swept:
    runs: dict[RunId, RunRef] = {}
    steps: list[StepMessage] = []
    for _, row in found:
        if "place" in row and Place.is_queue(row["place"]) and id(row) not in overdue:
            steps.append(message_of(row))
        else:
            runs[row["id"]] = RunRef(id=row["id"], workflow=row["workflow"])
    return Swept(runs=tuple(runs.values()), steps=tuple(steps), last=last)


def _raise_sends(tx: Transaction, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise the send count and the next-send time: 30 s, doubling, at most 10 min."""
    if not rows:
        return
    names = ("id",) if table is run else ("run_id", "name")
    same = [table.c[name] == bindparam(f"key_{name}") for name in names]
    raised = update(table).where(*same).values(send_count=table.c.send_count + 1, next_send_at=bindparam("next_at"))
    values = [
        {f"key_{name}": row[name] for name in names} | {"next_at": tx.now() + _wait(row["send_count"])} for row in rows
    ]
    tx.connection.execute(raised, values)


def _wait(send_count: int) -> timedelta:
    return timedelta(seconds=min(_FIRST_SECONDS * 2 ** min(send_count, 10), _LONGEST_SECONDS))


def _key_of(index: int, row: Mapping[str, Any]) -> str:
    names = ("run_id", "name") if "run_id" in row else ("id",)
    return json.dumps([index, text_of_time(row["found_at"]), *(row[name] for name in names)])


def _read_key(text: str | None) -> tuple[int, Sequence[Any] | None]:
    if text is None:
        return 0, None
    index, moment, *names = json.loads(text)
    return index, (time_of_text(moment), *names)


def put_off_delivery(tx: Transaction, run_id: RunId) -> bool:
    """Have an outcome that is due handed on later. False: it is not due."""
    row, now = tx.lock_run(run_id), tx.now()
    if row is None or row["handover_at"] is None or row["handover_at"] > now:
        return False
    count = row["send_count"]
    tx.do(update(run).where(run.c.id == run_id).values(handover_at=now + _wait(count), send_count=count + 1))
    return True


def note_sweep(tx: Transaction, kind: str) -> None:
    """Remember that a sweep of that kind ran now."""
    now = tx.now()
    tx.add(sweep, {"kind": kind, "last_at": now})
    tx.do(update(sweep).where(sweep.c.kind == kind).values(last_at=now))


def sweep_ages(tx: Transaction) -> Mapping[str, float]:
    """Seconds since each kind of sweep last ran."""
    rows = tx.all(select(sweep.c.kind, sweep.c.last_at, tx.clock.label("now")))
    return {row["kind"]: (row["now"] - row["last_at"]).total_seconds() for row in rows}
