"""Sweeps in memory: what bookkeeping and messages lost (design 3.8).

A page is found in the order of (run id, step name), a run's own row first, and driven row by row: each driven row gets its send count and
next-send time raised, so that a fleet does not amplify a backlog (D13).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from pikkuflow.adapters.memory.tables import RunRow, StepRow, Tables, wait_after
from pikkuflow.domain.act import DueRun, RunRef, StepMessage, SweepRequest, Swept, Upcoming
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import OPEN_RUN, RunStatus, StepKind, StepStatus
from pikkuflow.domain.step import Place

__all__ = ["SweepActs"]

_BACKSTOP: Final = timedelta(minutes=5)


class SweepActs:
    """The acts of ``RunStore`` that sweep. The contract of each is in ``pikkuflow.ports``."""

    _tables: Tables

    def sweep_stalled(self, request: SweepRequest) -> Swept:
        """Runs with unseen news or a lapsed pass, and, as a backstop, runs that nothing will move."""
        with self._tables.lock:
            page = _Page(request=request, now=self._tables.clock.now())
            for run in self._runs():
                if self._is_stalled(run, page):
                    page.drive_run(run, run)
                elif self._is_forgotten(run, page.now):
                    page.drive_forgotten(run)
            return page.swept()

    def sweep_undispatched(self, request: SweepRequest) -> Swept:
        """Dispatched rows that no worker has, as messages with the row's attempt."""
        with self._tables.lock:
            page = _Page(request=request, now=self._tables.clock.now())
            for run in self._runs():
                for row in self._rows(run.id):
                    if _may_be_sent(run, row) and _is_undispatched(row, page):
                        page.drive_step(row)
            return page.swept()

    def sweep_scheduled(self, request: SweepRequest) -> Swept:
        """Everything that is due: runs to wake for their own and their in-place rows' times, messages for dispatched rows."""
        with self._tables.lock:
            page = _Page(request=request, now=self._tables.clock.now())
            for run in self._runs():
                self._drive_due(run, page)
            return page.swept()

    def upcoming(self, within_seconds: float, limit: int, after: str | None = None) -> Upcoming:
        """Times of open runs and their waiting rows that are coming, soonest first."""
        with self._tables.lock:
            now = self._tables.clock.now()
            coming = sorted(
                (due_at.isoformat(), name, DueRun(run_id=run.id, in_seconds=(due_at - now).total_seconds()))
                for run in self._runs()
                for name, due_at in self._times(run)
                if now < due_at <= now + timedelta(seconds=within_seconds)
            )
            page = [(f"{at} {name}", due) for at, name, due in coming if after is None or f"{at} {name}" > after][
                :limit
            ]
            last = page[-1][0] if page and len(page) >= limit else None
            return Upcoming(due=tuple(due for _, due in page), last=last)

    def _times(self, run: RunRow) -> Iterable[tuple[str, datetime]]:
        if run.due_at is not None:
            yield run.id, run.due_at
        for row in self._rows(run.id):
            is_earlier = run.due_at is None or (row.due_at is not None and row.due_at < run.due_at)
            if not row.is_settled and row.due_at is not None and is_earlier:
                yield f"{run.id}\0{row.name}", row.due_at

    def _drive_due(self, run: RunRow, page: _Page) -> None:
        can_wake = not run.is_held(page.now) and not run.is_delayed(page.now)
        is_run_due = _is_past(run.due_at, page)
        if can_wake and is_run_due:
            page.drive_run(run, run)
        for row in self._rows(run.id):
            if row.is_settled or not _is_past(row.due_at, page):
                continue
            if row.status is StepStatus.RUNNING or not Place.is_queue(row.place):
                if can_wake and not is_run_due:
                    page.drive_run(run, row)
            elif _may_be_sent(run, row):
                page.drive_step(row)

    def note_sweep(self, kind: str) -> None:
        """Remember that a sweep of that kind ran now."""
        with self._tables.lock:
            self._tables.sweeps[kind] = self._tables.clock.now()

    def sweep_ages(self) -> Mapping[str, float]:
        """Seconds since each kind of sweep last ran."""
        with self._tables.lock:
            now = self._tables.clock.now()
            return {kind: (now - at).total_seconds() for kind, at in self._tables.sweeps.items()}

    def _runs(self) -> Iterable[RunRow]:
        return (run for _, run in sorted(self._tables.runs.items()) if not run.is_settled)

    def _rows(self, run_id: RunId) -> Iterable[StepRow]:
        return (row for _, row in sorted(self._tables.steps.get(run_id, {}).items()))

    def _is_stalled(self, run: RunRow, page: _Page) -> bool:
        if run.is_held(page.now) or run.is_delayed(page.now):
            return False
        if run.pass_id is not None:
            return True
        return run.has_unseen_news and run.news_at <= page.before

    def _is_forgotten(self, run: RunRow, now: datetime) -> bool:
        if run.status not in {RunStatus.RUNNING, RunStatus.COMPENSATING} or run.due_at is not None:
            return False
        if run.pass_id is not None or run.has_unseen_news:
            return False
        rows = tuple(self._rows(run.id))
        touched = max([run.updated_at, *(_touched_at(row) for row in rows)])
        return touched <= now - _BACKSTOP and not any(self._moves_by_itself(row) for row in rows)

    def _moves_by_itself(self, row: StepRow) -> bool:
        """Something other than a pass will bring this row on: a message, a time, a child run."""
        if row.is_settled:
            return False
        if Place.is_queue(row.place) or row.due_at is not None:
            return True
        child = self._tables.runs.get(row.child_run_id) if row.child_run_id is not None else None
        return child is not None and not child.is_settled


@dataclass(slots=True, kw_only=True)
class _Page:
    """A page in the making; it is full at its limit."""

    request: SweepRequest
    now: datetime
    runs: dict[RunId, RunRef] = field(default_factory=dict)
    steps: list[StepMessage] = field(default_factory=list)
    forgotten: list[RunId] = field(default_factory=list)
    found: int = 0
    last: str | None = None

    @property
    def before(self) -> datetime:
        """What happened up to here is older than the threshold."""
        return self.now - timedelta(seconds=self.request.older_than_seconds)

    def drive_run(self, run: RunRow, row: RunRow | StepRow) -> None:
        """Wake the run for this row."""
        if self._admits(row):
            self.runs[run.id] = run.ref

    def drive_forgotten(self, run: RunRow) -> None:
        """Wake the run that nothing else would."""
        is_first = not run.send_count
        self.drive_run(run, run)
        if is_first and run.send_count:
            self.forgotten.append(run.id)

    def drive_step(self, row: StepRow) -> None:
        """Send this row's message."""
        if self._admits(row):
            self.steps.append(row.message())

    def swept(self) -> Swept:
        """The page; a page that is not full is the last one."""
        return Swept(
            runs=tuple(self.runs.values()),
            steps=tuple(self.steps),
            forgotten=tuple(self.forgotten),
            last=self.last if self.found >= self.request.limit else None,
        )

    def _admits(self, row: RunRow | StepRow) -> bool:
        key = row.id if isinstance(row, RunRow) else f"{row.run_id}\0{row.name}"
        if self.found >= self.request.limit or (self.request.after is not None and key <= self.request.after):
            return False
        if row.next_send_at is not None and row.next_send_at > self.now:
            return False
        self.found += 1
        self.last = key
        row.next_send_at = self.now + wait_after(row.send_count)
        row.send_count += 1
        return True


def _may_be_sent(run: RunRow, row: StepRow) -> bool:
    """A worker would take it: a step of an open run, a compensation of one that unwinds."""
    if row.kind is StepKind.COMPENSATION:
        return run.status is RunStatus.COMPENSATING
    return run.status in OPEN_RUN


def _is_undispatched(row: StepRow, page: _Page) -> bool:
    if not Place.is_queue(row.place):
        return False
    if row.status is StepStatus.RUNNING:
        return row.is_lapsed(page.now)
    if not row.is_waiting or not row.is_due(page.now):
        return False
    since = max(at for at in (row.opened_at, row.sent_at, row.due_at) if at is not None)
    return since <= page.before


def _is_past(due_at: datetime | None, page: _Page) -> bool:
    return due_at is not None and due_at <= page.before


def _touched_at(row: StepRow) -> datetime:
    times = (row.opened_at, row.running_at, row.scheduled_at, row.settled_at)
    return max(at for at in times if at is not None)
