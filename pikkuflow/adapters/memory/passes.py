"""Passes in memory: opening, and the writes in the middle of one. Every write requires the run to be held by its own pass (design 3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from pikkuflow.adapters.memory.tables import RunRow, StepRow, Tables
from pikkuflow.domain import loss
from pikkuflow.domain.act import EndedAttempt, PassNews, PassOpening, PassRef, PassRefusal, StepWrite
from pikkuflow.domain.history import History
from pikkuflow.domain.run import NewRun
from pikkuflow.domain.status import OPEN_RUN, SETTLED_STEP, RunStatus, StepKind, StepStatus, SuspendCode
from pikkuflow.domain.step import Attempt, NewStep, Place

__all__ = ["PassActs"]


class PassActs:
    """The acts of ``RunStore`` that open a pass and write during one. The contract of each is in ``pikkuflow.ports``."""

    _tables: Tables

    def open_pass(self, opening: PassOpening) -> History | PassRefusal:
        """Take the run, then read it and its steps."""
        with self._tables.lock:
            now = self._tables.clock.now()
            run = self._tables.runs.get(opening.run_id)
            if run is None:
                return PassRefusal.MISSING
            refusal = _refusal(run, opening, now)
            if refusal is not None:
                return refusal
            _take(run, opening, now)
            taken = run.record()
            self._tables.between_statements()
            rows = sorted(self._tables.steps_of(run.id).values(), key=lambda row: row.seq)
            read_at = self._tables.clock.now()
            return History(
                pass_id=opening.pass_id,
                run=taken,
                steps=tuple(row.record(read_at) for row in rows),
            )

    def record(self, ref: PassRef, write: StepWrite) -> PassNews | None:
        """Write one in-place row. None: fenced. A row that the write may not change leaves it unwritten."""
        with self._tables.lock:
            run = self._held(ref)
            if run is None:
                return None
            if write.status is StepStatus.RUNNING and not _may_begin(run, write.step.kind):
                return _news(run, written=False)
            now = self._tables.clock.now()
            if not self._write(ref, write, now):
                return _news(run, written=False)
            if write.state is not None:
                key, value = write.state
                self._tables.states.setdefault(run.id, {})[key] = value
            if write.status is not StepStatus.RUNNING:
                run.lost = False
                run.passes_lost = 0
            return _news(run)

    def record_all(self, writes: Sequence[tuple[PassRef, StepWrite]]) -> tuple[PassNews | None, ...]:
        """Write in-place rows of one run or of several, each judged by itself."""
        with self._tables.lock:
            return tuple([self.record(ref, write) for ref, write in writes])

    def insert_steps(
        self,
        ref: PassRef,
        steps: Sequence[NewStep],
        *,
        joined: bool = False,
        lightly: bool = False,  # noqa: ARG002 - the port's
    ) -> PassNews | None:
        """Insert pending (sleeps: scheduled) rows if the run is open; nothing here is on a disk. None: fenced."""
        with self._tables.lock:
            run = self._held(ref)
            if run is None:
                return None
            if not all(_may_begin(run, new.kind) for new in steps):
                return _news(run, written=False)
            now = self._tables.clock.now()
            rows = self._tables.steps_of(run.id)
            for new in steps:
                if new.name not in rows:
                    rows[new.name] = _fresh_row(ref, new, now)
            if joined:
                for fan_id in {new.fan_id for new in steps if new.fan_id is not None}:
                    members = sum(new.fan_id == fan_id for new in steps)
                    self._tables.fans.setdefault(run.id, {}).setdefault(fan_id, members)
            return _news(run)

    def start_child(self, ref: PassRef, step: NewStep, child: NewRun, *, result: str | None = None) -> PassNews | None:
        """Insert the child run and the parent's row, settled when there is a result; idempotent by step. None: fenced."""
        with self._tables.lock:
            run = self._held(ref)
            if run is None:
                return None
            if run.status not in OPEN_RUN:
                return _news(run, written=False)
            rows = self._tables.steps_of(run.id)
            if step.name not in rows:
                now = self._tables.clock.now()
                if child.id not in self._tables.runs:
                    self._tables.runs[child.id] = RunRow.of(child, now)
                row = StepRow.of(run.id, step, StepStatus.RUNNING, ref.pass_id, now)
                row.place = Place.child(child.id)
                row.child_run_id = child.id
                row.running_at = now
                if result is not None:
                    row.settle(StepStatus.SUCCEEDED, now, no=step.begun_no, result=result)
                rows[step.name] = row
            return _news(run)

    def _held(self, ref: PassRef) -> RunRow | None:
        run = self._tables.runs.get(ref.run_id)
        return run if run is not None and run.pass_id == ref.pass_id else None

    def _write(self, ref: PassRef, write: StepWrite, now: datetime) -> bool:
        rows = self._tables.steps_of(ref.run_id)
        row = rows.get(write.step.name)
        if row is None:
            row = StepRow.of(ref.run_id, write.step, write.status, ref.pass_id, now)
            row.attempt = write.attempt
            rows[row.name] = row
        elif row.attempt == write.attempt and row.status is write.status and row.author == ref.pass_id:
            return True
        elif row.is_settled or row.attempt not in _expected(write, row.place) or row.attempt > write.attempt:
            return False
        elif row.attempt != write.attempt:
            self._tables.keep_attempt(_ended(row, write.ended, now))
            row.next_attempt(write.attempt, now)
        if write.ended is not None:
            self._tables.keep_attempt(_never_stored(row, write.ended, now))
        if write.status in SETTLED_STEP:
            self._tables.count_down(ref.run_id, row.fan_id)
        _show(row, ref, write, now)
        return True


def _expected(write: StepWrite, place: str) -> set[int | None]:
    """The attempts that the row may show before this write. The next attempt at a dispatched step is whoever's that opened it."""
    if Place.is_queue(place) and write.expects is not None:
        return {write.expects}
    return {write.attempt, write.expects}


def _may_begin(run: RunRow, kind: StepKind) -> bool:
    """Work begins only in an open run; compensations only in one that unwinds."""
    return run.status is RunStatus.COMPENSATING if kind is StepKind.COMPENSATION else run.status in OPEN_RUN


def _refusal(run: RunRow, opening: PassOpening, now: datetime) -> PassRefusal | None:
    if run.is_settled:
        return PassRefusal.SETTLED
    if run.pass_id == opening.pass_id:
        return None
    if run.is_held(now):
        return PassRefusal.HELD
    if run.is_delayed(now):
        return PassRefusal.NOT_DUE
    if run.code == SuspendCode.PASS_LOST and run.status is RunStatus.SUSPENDED:
        return PassRefusal.LOST
    return _count_lost(run, opening, now)


def _count_lost(run: RunRow, opening: PassOpening, now: datetime) -> PassRefusal | None:
    if run.pass_id is None:
        return None
    run.lost = True
    run.passes_lost += 1
    if run.passes_lost < opening.passes_lost_limit or run.status not in OPEN_RUN:
        return None
    run.status = RunStatus.SUSPENDED
    run.code = SuspendCode.PASS_LOST
    run.error = loss.passes_lost(run.passes_lost)
    run.pass_id = run.pass_holder = run.pass_until = run.due_at = None
    run.seen = run.news
    run.updated_at = now
    return PassRefusal.LOST


def _take(run: RunRow, opening: PassOpening, now: datetime) -> None:
    if run.pass_id != opening.pass_id:
        run.retried.clear()
        run.opened_at = now
    run.pass_id = run.author = opening.pass_id
    run.pass_holder = opening.holder
    run.pass_until = now + timedelta(seconds=opening.lease_seconds)
    run.seen = run.news
    run.updated_at = now


def _fresh_row(ref: PassRef, new: NewStep, now: datetime) -> StepRow:
    is_sleep = new.kind is StepKind.SLEEP
    row = StepRow.of(ref.run_id, new, StepStatus.SCHEDULED if is_sleep else StepStatus.PENDING, ref.pass_id, now)
    if is_sleep:
        row.scheduled_at = now
    return row


def _ended(row: StepRow, ended: EndedAttempt | None, now: datetime) -> Attempt:
    """The attempt that the row shows: as it ended, or, when nobody knows how, as it was shown."""
    if ended is not None and ended.attempt == row.attempt:
        row.status = ended.status
        row.error = ended.error
        row.settled_at = now
    return row.shown_attempt()


def _never_stored(row: StepRow, ended: EndedAttempt, now: datetime) -> Attempt:
    started = now - timedelta(seconds=ended.started_seconds_ago)
    return Attempt(
        run_id=row.run_id,
        step=row.name,
        attempt=ended.attempt,
        status=ended.status,
        error=ended.error,
        result=None,
        place=row.place,
        created_at=started,
        running_at=started,
        scheduled_at=None,
        settled_at=now,
    )


def _show(row: StepRow, ref: PassRef, write: StepWrite, now: datetime) -> None:
    row.status = write.status
    row.author = ref.pass_id
    row.place = write.step.place
    row.result = write.result
    row.error = write.error
    row.override = write.override
    row.claim_id = row.claim_holder = row.lease_until = None
    row.due_at = None
    if write.status is StepStatus.PENDING:
        row.running_at = None
        row.due_at = None if write.delay_seconds is None else now + timedelta(seconds=write.delay_seconds)
    elif write.status is StepStatus.RUNNING or row.running_at is None:
        row.running_at = now - timedelta(seconds=write.started_seconds_ago)
    if write.status in SETTLED_STEP:
        row.settled_at = now
        row.settled_no = write.no
    row.forget_sends()


def _news(run: RunRow, *, written: bool = True) -> PassNews:
    return PassNews(news=run.news, status=run.status, written=written)
