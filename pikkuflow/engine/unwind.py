"""Undo a stopped run: one pass after another, each as far as it gets (spec 2.12).

The rows say how far it is, so a pass that dies is followed by one that goes on at the next compensation. What is undone and in which order
is the planner's (``domain.unwind``); this module waits for what is still at work, works compensations in place or sends them as their steps
were, asks completed children to undo themselves, and ends the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pikkuflow.domain import loss
from pikkuflow.domain.act import Closing, StepWrite
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus
from pikkuflow.domain.step import Place, Step
from pikkuflow.domain.stop import CANCEL_CODE
from pikkuflow.domain.transitions import RunEvent, next_run_status
from pikkuflow.domain.unwind import Candidate, ChildEnd, Unwinding, UnwindPlan
from pikkuflow.engine.cancel import cancel_run
from pikkuflow.engine.compensate import Compensator
from pikkuflow.engine.open_pass import OpenPass
from pikkuflow.engine.step_rows import step_of_row
from pikkuflow.replay.park import Parked, ParkReason
from pikkuflow.replay.recorder import recorded_failure

__all__ = ["unwind"]

_WAITS = frozenset({StepStatus.PENDING, StepStatus.SCHEDULED, StepStatus.SUSPENDED})


def unwind(p: OpenPass) -> Closing | None:
    """Undo as much as this pass can; its last write. None: another pass owns the run, or ``p.broken`` says what ended this one."""
    try:
        return _Unwind(p).work()
    except Parked as parked:
        return _parked(p, parked)


def _parked(p: OpenPass, parked: Parked) -> Closing | None:
    if parked.reason is ParkReason.SUPERSEDED or p.broken is not None:
        return None
    p.note_due(parked.due_seconds)
    is_yielded = parked.reason is ParkReason.YIELDED
    return Closing(sent=tuple(p.sent), due_seconds=p.due_seconds, raise_news=is_yielded)


class _Unwind:
    def __init__(self, p: OpenPass) -> None:
        self._p = p
        self._rows = {row.name: row for row in p.history.steps}
        self._cancelled: set[RunId] = set()
        self._ends: dict[StepName, ChildEnd] = {}

    def work(self) -> Closing:
        compensator = Compensator(self._p)
        self._read_again(self._end_forward())
        for row in self._rows.values():
            self._note_end(row)
        unwinding = Unwinding(self._rows, self._ends)
        while True:
            ready = unwinding.ready()
            if not ready and (plan := unwinding.plan).is_settled:
                return self._settled(plan)
            ended = compensator.advance(ready)
            if not ended:
                return Closing(sent=tuple(self._p.sent), due_seconds=self._p.due_seconds)
            for row in self._read_again(ended):
                self._note_end(row)
            self._p.yield_if_due()

    def _read_again(self, names: Sequence[StepName]) -> list[Step]:
        """Only what this pass has moved: what comes from elsewhere is news, and another pass'."""
        read = [self._p.ask(partial(self._p.rt.store.get_step, self._p.run.id, name)) for name in names]
        moved = [row for row in read if row is not None]
        self._rows.update((row.name, row) for row in moved)
        return moved

    # --- what is still at work --------------------------------------------------------------------------------------
    def _end_forward(self) -> list[StepName]:
        """End the steps that nobody works any more, and stop the children that are at work. The rows that have moved."""
        at_work = [row for row in self._rows.values() if row.kind is not StepKind.COMPENSATION and not row.is_settled]
        return [row.name for row in at_work if self._end_row(row)]

    def _end_row(self, row: Step) -> bool:
        if row.kind is StepKind.CHILD:
            return row.child_run_id is not None and self._stop_child(row.name, row.child_run_id)
        if row.status in _WAITS:
            self._write(row, *self._never_ended(row))
            return True
        if Place.is_queue(row.place) and not (row.is_lapsed or row.is_overdue):
            # Only what must be undone is worth waiting for; a lease that lapses, or a time that is over, is no news.
            if row.undo_task is not None:
                self._p.note_due(row.lease_seconds)
                self._p.note_due(row.due_in_seconds)
            return False
        lost = loss.overdue(row) if row.is_overdue else loss.lost_and_stopped(row)
        self._write(row, StepStatus.FAILED, lost)
        return True

    def _never_ended(self, row: Step) -> tuple[StepStatus, Failure | None]:
        if row.attempt == 1:
            return StepStatus.CANCELLED, None
        attempts = self._p.ask(lambda: self._p.rt.store.list_attempts(self._p.run.id))
        errors = [one.error for one in attempts if one.step == row.name and one.error is not None]
        return StepStatus.FAILED, errors[-1] if errors else recorded_failure(row)

    def _write(self, row: Step, status: StepStatus, error: Failure | None) -> None:
        step = step_of_row(row, place=row.place)
        self._p.record(StepWrite(step=step, attempt=row.attempt, status=status, error=error, no=self._p.next_no()))

    def _stop_child(self, name: StepName, child: RunId) -> bool:
        p = self._p
        if child not in self._cancelled:
            self._cancelled.add(child)
            reason = p.run.error.message if p.run.error is not None else None
            p.ask(lambda: cancel_run(p.rt, child, reason))
        if p.works_child is not None:
            works_child = p.works_child
            p.ask(lambda: works_child(child))
        now: Step | None = p.ask(lambda: p.rt.store.get_step(p.run.id, name))
        return now is not None and now.is_settled

    # --- children that unwound --------------------------------------------------------------------------------------
    def _note_end(self, row: Step) -> None:
        is_failed = row.kind is StepKind.CHILD and row.status is StepStatus.FAILED
        is_undone = row.kind is StepKind.COMPENSATION and row.is_settled
        if row.child_run_id is not None and (is_failed or is_undone):
            end = self._end_of(row.child_run_id)
            if end is not None:
                self._ends[row.name] = end

    def _end_of(self, child: RunId) -> ChildEnd | None:
        run = self._p.ask(lambda: self._p.rt.store.get_run(child))
        if run is None:
            return None
        output: dict[str, str] = {}
        if run.status is RunStatus.COMPENSATED and run.output is not None:
            output = self._p.ask(lambda: self._p.rt.codec.decode(run.output)) or {}
        return ChildEnd(status=run.status, rested_at=output.get("restedAt"))

    # --- the end ----------------------------------------------------------------------------------------------------
    def _settled(self, plan: UnwindPlan) -> Closing:
        if plan.stuck:
            stuck = [{"stepName": one.name, "error": _error_of(one)} for one in plan.stuck]
            return self._end(RunEvent.STICK, {"stuckSteps": stuck})
        if plan.candidates or plan.milestone is not None:
            rested_at = plan.rested_at
            return self._end(RunEvent.REST, None if rested_at is None else {"restedAt": rested_at})
        return self._end(RunEvent.CANCEL if self._p.run.code == CANCEL_CODE else RunEvent.FAIL, None)

    def _end(self, event: RunEvent, output: Any) -> Closing:
        p = self._p
        text = None if output is None else p.ask(lambda: p.rt.codec.encode(output, what="the end of the unwind"))
        return Closing(status=next_run_status(p.run.status, event), output=text, unwinds=True, sent=tuple(p.sent))


def _error_of(stuck: Candidate) -> str:
    return recorded_failure(stuck.forward if stuck.undo is None else stuck.undo).message
