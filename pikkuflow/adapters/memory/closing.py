"""Closing a pass in memory: the last write, which may settle the run and its parent's step."""

from __future__ import annotations

from datetime import datetime, timedelta

from pikkuflow.adapters.memory.endings import begin_unwind, end_run, tell_parent
from pikkuflow.adapters.memory.passes import PassActs
from pikkuflow.adapters.memory.tables import RunRow
from pikkuflow.domain.act import Closed, Closing, PassRef, RunRef
from pikkuflow.domain.status import SETTLED_RUN, RunStatus, StepStatus

__all__ = ["ClosingActs"]


class ClosingActs(PassActs):
    """The act of ``RunStore`` that closes a pass. Its contract is in ``pikkuflow.ports``."""

    def close_pass(self, ref: PassRef, closing: Closing) -> Closed | None:
        """The last write of a pass. None: fenced, nothing written."""
        with self._tables.lock:
            now = self._tables.clock.now()
            run = self._tables.runs.get(ref.run_id)
            if run is None:
                return None
            if run.pass_id is None and run.author == ref.pass_id:
                return self._closed_before(run, now)
            if run.pass_id != ref.pass_id:
                return None
            written = self.record_all([(ref, write) for write in closing.outcomes])
            if not all(answer is not None and answer.written for answer in written):
                closing = Closing(raise_news=True)
            self._mark_sent(run, closing, now)
            self._mark_returned(run, closing)
            rows = self._tables.steps_of(run.id)
            if closing.raise_news or any(name not in rows for name in closing.expected):
                run.raise_news(now)
            run.passes_lost += closing.broke_off
            parent = self._move(run, closing, now)
            run.pass_id = run.pass_holder = run.pass_until = None
            run.author = ref.pass_id
            run.updated_at = now
            run.send_count = 0
            run.next_send_at = None
            return _closed(run, parent)

    def _closed_before(self, run: RunRow, now: datetime) -> Closed:
        """The answer was lost: what the first one said, as far as it still holds."""
        parent = None
        if run.is_settled and run.parent is not None:
            above = self._tables.runs.get(run.parent.run_id)
            if above is not None and not above.is_settled and above.has_unseen_news and not above.is_held(now):
                parent = above.ref
        return _closed(run, parent)

    def _mark_sent(self, run: RunRow, closing: Closing, now: datetime) -> None:
        rows = self._tables.steps_of(run.id)
        for name in closing.sent:
            row = rows.get(name)
            # A worker may have failed meanwhile and opened the next attempt: the message that left was not for that one.
            if row is not None and row.status is StepStatus.PENDING and name not in run.retried:
                row.status = StepStatus.SCHEDULED
                row.scheduled_at = row.sent_at = now

    def _mark_returned(self, run: RunRow, closing: Closing) -> None:
        rows = self._tables.steps_of(run.id)
        for name in closing.returned:
            row = rows.get(name)
            if row is not None and row.status is StepStatus.SCHEDULED:
                row.return_message()

    def _move(self, run: RunRow, closing: Closing, now: datetime) -> RunRef | None:
        run.due_at = None if closing.due_seconds is None else now + timedelta(seconds=closing.due_seconds)
        if closing.status is None or not closing.moves(run.status):
            return None
        run.status = closing.status
        if not closing.unwinds:
            is_running = closing.status is RunStatus.RUNNING
            run.code = None if is_running else closing.code
            run.error = None if is_running else closing.error
        if closing.status is RunStatus.COMPENSATING:
            begin_unwind(self._tables, run, now)
        if closing.status not in SETTLED_RUN:
            return None
        run.output = closing.output
        end_run(self._tables, run, now)
        return tell_parent(self._tables, run, now)


def _closed(run: RunRow, parent: RunRef | None) -> Closed:
    return Closed(wake=run.has_unseen_news and not run.is_settled, status=run.status, parent=parent)
