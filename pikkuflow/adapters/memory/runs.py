"""Runs in memory: inserting, resuming, reading, deleting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from pikkuflow.adapters.memory.tables import RunRow, Tables, wait_after
from pikkuflow.domain.act import FoundRun
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.run import InsertedRun, NewRun, Run, RunFilter, RunKey
from pikkuflow.domain.step import Attempt, Step

__all__ = ["RunActs"]


class RunActs:
    """The acts and reads of ``RunStore`` that concern whole runs. The contract of each is in ``pikkuflow.ports``."""

    _tables: Tables

    def insert_runs(self, runs: Sequence[NewRun]) -> tuple[InsertedRun, ...]:
        """Insert each run unless its id is there; answers in the order given."""
        with self._tables.lock:
            return tuple(self._insert(new) for new in runs)

    def _insert(self, new: NewRun) -> InsertedRun:
        row = self._tables.runs.get(new.id)
        created = row is None
        if row is None:
            row = RunRow.of(new, self._tables.clock.now())
            self._tables.runs[new.id] = row
        return InsertedRun(id=row.id, created=created, workflow=row.workflow, input=row.input, status=row.status)

    def ask_pass(self, run_id: RunId, in_seconds: float) -> None:
        """``due_at`` becomes the earlier of the two. No news is raised."""
        with self._tables.lock:
            row = self._tables.runs.get(run_id)
            if row is None or row.is_settled:
                return
            at = self._tables.clock.now() + timedelta(seconds=in_seconds)
            row.due_at = at if row.due_at is None else min(row.due_at, at)

    def undelivered_runs(self, limit: int) -> tuple[Run, ...]:
        """Settled runs whose outcome is due to be handed on, those due longest first."""
        with self._tables.lock:
            now = self._tables.clock.now()
            due = sorted(
                (row.handover_at, row.id, row)
                for row in self._tables.runs.values()
                if row.handover_at is not None and row.handover_at <= now
            )
            return tuple(row.record() for _, _, row in due[:limit])

    def put_off_delivery(self, run_id: RunId) -> bool:
        """Have an outcome that is due handed on later. False: it is not due."""
        with self._tables.lock:
            row, now = self._tables.runs.get(run_id), self._tables.clock.now()
            if row is None or row.handover_at is None or row.handover_at > now:
                return False
            row.handover_at = now + wait_after(row.send_count)
            row.send_count += 1
            return True

    def mark_delivered(self, run_id: RunId) -> None:
        """The run's outcome was handed on (design 7)."""
        with self._tables.lock:
            row = self._tables.runs.get(run_id)
            if row is not None and row.delivered_at is None:
                row.delivered_at = self._tables.clock.now()
                row.handover_at = None

    def get_run(self, run_id: RunId) -> Run | None:
        """The run, or None."""
        with self._tables.lock:
            row = self._tables.runs.get(run_id)
            return None if row is None else row.record()

    def find_runs(self, run_ids: Sequence[RunId]) -> tuple[FoundRun, ...]:
        """Those of the runs that are there and not settled, and whether a live pass holds them."""
        with self._tables.lock:
            now = self._tables.clock.now()
            rows = (self._tables.runs.get(run_id) for run_id in dict.fromkeys(run_ids))
            return tuple(_found(row, now) for row in rows if row is not None and not row.is_settled)

    def list_runs(self, where: RunFilter, *, limit: int, after: RunKey | None = None) -> tuple[Run, ...]:
        """Newest first, by (created_at, id), after the key given."""
        with self._tables.lock:
            rows = [row for row in self._tables.runs.values() if _is_wanted(row, where)]
            if after is not None:
                rows = [row for row in rows if (row.created_at, row.id) < (after.created_at, after.id)]
            rows.sort(key=lambda row: (row.created_at, row.id), reverse=True)
            return tuple(row.record() for row in rows[:limit])

    def list_steps(self, run_id: RunId) -> tuple[Step, ...]:
        """The run's steps by ``seq``."""
        with self._tables.lock:
            now = self._tables.clock.now()
            rows = sorted(self._tables.steps.get(run_id, {}).values(), key=lambda row: row.seq)
            return tuple(row.record(now) for row in rows)

    def get_step(self, run_id: RunId, name: StepName) -> Step | None:
        """One step, or None."""
        with self._tables.lock:
            row = self._tables.steps.get(run_id, {}).get(name)
            return None if row is None else row.record(self._tables.clock.now())

    def list_attempts(self, run_id: RunId) -> tuple[Attempt, ...]:
        """Earlier attempts of the run's steps, ordered by step and attempt."""
        with self._tables.lock:
            attempts = self._tables.attempts.get(run_id, {})
            return tuple(attempts[key] for key in sorted(attempts))

    def get_state(self, run_id: RunId) -> Mapping[str, str]:
        """The run's key/value state as stored texts: a copy."""
        with self._tables.lock:
            return dict(self._tables.states.get(run_id, {}))

    def delete_run(self, run_id: RunId) -> bool:
        """Remove a settled run with all that hangs on it."""
        with self._tables.lock:
            row = self._tables.runs.get(run_id)
            if row is None or not row.is_settled:
                return False
            tables = self._tables
            for table in (tables.runs, tables.steps, tables.attempts, tables.fans, tables.states):
                table.pop(run_id, None)
            tables.gates.forget(run_id)
            return True


def _found(row: RunRow, now: datetime) -> FoundRun:
    if row.pass_until is None or not row.is_held(now):
        return FoundRun(ref=row.ref)
    held, left = now - (row.opened_at or now), row.pass_until - now
    return FoundRun(ref=row.ref, held_seconds=held.total_seconds(), left_seconds=left.total_seconds())


def _is_wanted(row: RunRow, where: RunFilter) -> bool:
    asked = (
        (where.workflow, row.workflow),
        (where.status, row.status),
        (where.owner, row.owner),
        (where.code, row.code),
    )
    if any(wanted is not None and wanted != found for wanted, found in asked):
        return False
    if where.since is not None and row.created_at < where.since:
        return False
    return where.until is None or row.created_at < where.until
