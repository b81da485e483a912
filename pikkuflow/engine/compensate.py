"""Undo steps: each by a durable step of its own, worked where the step itself was worked (spec 2.12, D20)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pikkuflow.domain import loss
from pikkuflow.domain.act import RunRef, StepMessage, StepWrite
from pikkuflow.domain.command import Recorded, StepCall
from pikkuflow.domain.ids import StepName
from pikkuflow.domain.reach import Move, move_for_row
from pikkuflow.domain.status import StepKind, StepStatus
from pikkuflow.domain.step import NewStep, Place, Step
from pikkuflow.domain.unwind import Candidate, may_need_undoing
from pikkuflow.engine.in_place import Assignment, work_in_place
from pikkuflow.engine.open_pass import OpenPass
from pikkuflow.engine.send import SOON_SECONDS, message_of, message_of_new, send_steps, wake_runs
from pikkuflow.engine.step_rows import step_of_row, undo_step
from pikkuflow.engine.tell import tell_step_lost, warn
from pikkuflow.ports import StepLost

__all__ = ["Compensator"]

_UNKNOWN_SECONDS: Final = 30.0
"""When another worker, which may know the compensation, is given a try."""


class Compensator:
    """Brings the compensations that may begin now as far as they get in this pass."""

    def __init__(self, p: OpenPass) -> None:
        self._p = p
        self._in_pass = Place.in_pass(p.ref.pass_id)
        self._reached: set[StepName] = set()
        """What was brought as far as it gets: the plan asks for it again as long as it has not ended."""
        self._next_seq = max((row.seq for row in p.history.steps), default=-1) + 1

    def advance(self, ready: Sequence[Candidate]) -> list[StepName]:
        """Send those that travel, then work the others, newest first. The compensations that have ended: the plan is another now.

        Raises ``Parked`` when the pass must end.
        """
        fresh = [one for one in ready if one.name not in self._reached]
        self._reached.update(one.name for one in fresh)
        away = [one for one in fresh if self._travels(one)]
        self._send(away)
        sent = {one.name for one in away}
        return [one.undo_name for one in fresh if one.name not in sent and self._undo(one)]

    def _undo(self, one: Candidate) -> bool:
        return self._undo_child(one) if one.forward.kind is StepKind.CHILD else self._undo_here(one)

    def _travels(self, one: Candidate) -> bool:
        if one.forward.kind is StepKind.CHILD or self._p.works_child is not None or not self._p.rt.has_broker:
            return False
        return Place.is_queue(one.forward.place if one.undo is None else one.undo.place)

    # --- by message -------------------------------------------------------------------------------------------------
    def _send(self, away: Sequence[Candidate]) -> None:
        fresh = [self._row(one.forward, Place.QUEUE) for one in away if one.undo is None]
        if fresh:
            self._p.insert(fresh)
        messages = [message_of_new(self._p.run.id, step) for step in fresh]
        for one in away:
            if one.undo is not None:
                messages += self._message_again(one.undo)
        if send_steps(self._p.rt, messages):
            self._p.sent.extend(message.name for message in messages)
        elif messages:
            self._p.note_due(SOON_SECONDS)

    def _message_again(self, row: Step) -> list[StepMessage]:
        if move_for_row(row) is Move.SEND:
            return [message_of(self._p.rt, row)]
        self._p.note_due(row.lease_seconds if row.is_due else row.due_in_seconds)
        return []

    def _row(self, forward: Step, place: str) -> NewStep:
        step = undo_step(self._p, forward, seq=self._next_seq, place=place)
        self._next_seq += 1
        return step

    # --- in place ---------------------------------------------------------------------------------------------------
    def _undo_here(self, one: Candidate) -> bool:
        row, task = one.undo, one.forward.undo_task or ""
        if not self._p.rt.runner.is_known(task):
            self._wait_for_code(one, task)
            return False
        if row is None:
            return self._work(Assignment(call=_call(task), step=self._row(one.forward, self._in_pass), starts=True))
        return self._go_on(row, step_of_row(row, place=self._in_pass))

    def _go_on(self, row: Step, step: NewStep) -> bool:
        move = move_for_row(row)
        call = _call(row.task or "")
        if move is Move.TAKE_BACK:
            self._lost(row, exhausted=False)
            again = Assignment(
                call=call, step=step, attempt=row.attempt + 1, expects=row.attempt, starts=True, override=row.override
            )
            return self._work(again)
        if move is Move.EXHAUST:
            return self._exhaust(row, step)
        if move is Move.WORK:
            override = row.override
            return self._work(Assignment(call=call, step=step, attempt=row.attempt, starts=True, override=override))
        self._p.note_due(row.due_in_seconds)
        return False

    def _work(self, assignment: Assignment) -> bool:
        self._p.yield_if_due()
        return isinstance(work_in_place(self._p, assignment), Recorded)

    def _exhaust(self, row: Step, step: NewStep) -> bool:
        self._lost(row, exhausted=True)
        error = loss.lease_expired(row.name, row.attempt)
        self._p.record(
            StepWrite(step=step, attempt=row.attempt, status=StepStatus.FAILED, error=error, no=self._p.next_no())
        )
        return True

    def _lost(self, row: Step, *, exhausted: bool) -> None:
        event = StepLost(run_id=self._p.run.id, step=row.name, attempt=row.attempt, exhausted=exhausted)
        tell_step_lost(self._p.rt, event)

    def _wait_for_code(self, one: Candidate, task: str) -> None:
        """D5: its row is there, pending, so that a person sees what the unwind waits for; no attempt is spent."""
        if one.undo is None:
            self._p.insert([self._row(one.forward, self._in_pass)])
        warn(
            self._p.rt,
            f"Step {one.name!r} is undone by task {task!r}, which is not registered here; it is tried again.",
            run_id=self._p.run.id,
        )
        self._p.note_due(_UNKNOWN_SECONDS)

    # --- children ---------------------------------------------------------------------------------------------------
    def _undo_child(self, one: Candidate) -> bool:
        p, child = self._p, one.forward.child_run_id
        if child is None:
            return False
        if one.undo is None:
            below = p.ask(lambda: p.rt.store.list_steps(child))
            step = self._row(one.forward, Place.child(child))
            if not may_need_undoing(below):
                p.record(StepWrite(step=step, attempt=1, status=StepStatus.SUCCEEDED, result="null", no=p.next_no()))
                return True
            p.unwind_child(step, child)
            wake_runs(p.rt, [RunRef(id=child, workflow=one.forward.task or "")])
        return self._worked_below(one)

    def _worked_below(self, one: Candidate) -> bool:
        p, child = self._p, one.forward.child_run_id
        if p.works_child is None or child is None:
            return False
        works_child = p.works_child
        p.ask(lambda: works_child(child))
        run = p.ask(lambda: p.rt.store.get_run(child))
        return run is not None and bool(run.is_settled)


def _call(task: str) -> StepCall:
    return StepCall(name=task, kind=StepKind.COMPENSATION, task=task)
