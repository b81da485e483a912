"""Stopping runs in memory: cancelling one, and undoing a completed child (design 3.7)."""

from __future__ import annotations

from datetime import datetime

from pikkuflow.adapters.memory.endings import begin_unwind, end_run, tell_parent
from pikkuflow.adapters.memory.tables import RunRow, StepRow, Tables
from pikkuflow.domain.act import PassNews, PassRef
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.run import Run
from pikkuflow.domain.status import OPEN_RUN, RunStatus, StepKind, StepStatus
from pikkuflow.domain.step import NewStep, Place
from pikkuflow.domain.stop import Beat, Cancellation, StepStanding, Stopped
from pikkuflow.domain.unwind import may_need_undoing

__all__ = ["StoppingActs"]


class StoppingActs:
    """The acts of ``RunStore`` that stop a run. The contract of each is in ``pikkuflow.ports``."""

    _tables: Tables

    def cancel_run(self, request: Cancellation) -> Stopped | None:
        """Call a run off with one status write. None: there is no such run."""
        with self._tables.lock:
            now = self._tables.clock.now()
            run = self._tables.runs.get(request.run_id)
            if run is None:
                return None
            if run.status in OPEN_RUN:
                return self._stop(run, request, now)
            wake = run.status is RunStatus.COMPENSATING and run.has_unseen_news and not run.is_held(now)
            return Stopped(
                run=run.ref, status=run.status, is_stopped=False, wake=wake, children=self._live_children(run)
            )

    def _stop(self, run: RunRow, request: Cancellation, now: datetime) -> Stopped:
        rows = tuple(row.record(now) for row in self._tables.steps_of(run.id).values())
        run.error = request.error
        run.code = request.error.code
        run.updated_at = now
        wake, parent = False, None
        if run.pass_id is not None or may_need_undoing(rows):
            wake = begin_unwind(self._tables, run, now, worked_by=run.pass_id) or not run.is_held(now)
        else:
            run.status = request.ending
            end_run(self._tables, run, now)
            parent = tell_parent(self._tables, run, now)
        return Stopped(
            run=run.ref,
            status=run.status,
            is_stopped=True,
            wake=wake,
            parent=parent,
            children=self._live_children(run),
        )

    def overdue_runs(self, limit: int) -> tuple[Run, ...]:
        """Open runs whose deadline is past, those overdue longest first."""
        with self._tables.lock:
            now = self._tables.clock.now()
            late = (run.record() for run in self._tables.runs.values() if run.status in OPEN_RUN)
            found = [
                (run.deadline_at, run.id, run) for run in late if run.deadline_at is not None and run.deadline_at <= now
            ]
            return tuple(run for *_, run in sorted(found, key=lambda one: one[:2])[:limit])

    def _live_children(self, run: RunRow) -> tuple[RunId, ...]:
        return tuple(
            row.child_run_id
            for row in sorted(self._tables.steps_of(run.id).values(), key=lambda row: row.seq)
            if row.kind is StepKind.CHILD and row.child_run_id is not None and not row.is_settled
        )

    def beat(self, beat: Beat) -> StepStanding:
        """Say how an attempt stands, and keep its details."""
        with self._tables.lock:
            run = self._tables.runs.get(beat.run_id)
            row = self._tables.steps_of(beat.run_id).get(beat.step)
            if run is None or (row is not None and (row.attempt != beat.attempt or row.is_settled)):
                return StepStanding.OUTDATED
            if row is not None and beat.details is not None:
                row.details = beat.details
            if row is not None and beat.lives and row.due_at is not None and row.status is StepStatus.RUNNING:
                row.sign_of_life(self._tables.clock.now())
            is_undo = row is not None and row.kind is StepKind.COMPENSATION
            works = run.status is RunStatus.COMPENSATING if is_undo else run.status in OPEN_RUN
            return StepStanding.WORKING if works else StepStanding.STOPPED

    def unwind_child(self, ref: PassRef, step: NewStep, child: RunId) -> PassNews | None:
        """Set a completed child compensating, with the row that waits for it; idempotent by step. None: fenced."""
        with self._tables.lock:
            now = self._tables.clock.now()
            run = self._tables.runs.get(ref.run_id)
            if run is None or run.pass_id != ref.pass_id:
                return None
            if run.status is not RunStatus.COMPENSATING:
                return PassNews(news=run.news, status=run.status, written=False)
            rows = self._tables.steps_of(run.id)
            if step.name not in rows:
                row = StepRow.of(run.id, step, StepStatus.RUNNING, ref.pass_id, now)
                row.place = Place.child(child)
                row.child_run_id = child
                row.running_at = now
                rows[step.name] = row
                self._begin_child(run, row, child, now)
            return PassNews(news=run.news, status=run.status)

    def _begin_child(self, run: RunRow, row: StepRow, child: RunId, now: datetime) -> None:
        below = self._tables.runs.get(child)
        if below is None or below.status is not RunStatus.COMPLETED:
            row.settle(StepStatus.SUCCEEDED, now, no=run.outside_no, result="null")
            return
        below.finished_at = None
        below.error = run.error
        below.code = run.code
        begin_unwind(self._tables, below, now)
