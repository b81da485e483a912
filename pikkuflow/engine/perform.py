"""Answer what the body reaches: one move for each call, decided by the tables of ``domain.reach`` (spec 16.1).

Everything that can be wrong with the calls (arguments that do not fit or cannot be stored) comes out before a row is written. Then rows go
in with one insert, messages with one publish, and what is worked here is worked in the order of the calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from pikkuflow.domain import loss
from pikkuflow.domain.act import StepMessage, StepWrite
from pikkuflow.domain.command import PlannedCall, Reach, Recorded, Waiting
from pikkuflow.domain.ids import FanId, RunId, StepName
from pikkuflow.domain.reach import Move, move_for_new, move_for_row, needs_recorded_start, stays_here
from pikkuflow.domain.run import NewRun
from pikkuflow.domain.status import StepKind, StepStatus
from pikkuflow.domain.step import NewStep, Place, Step
from pikkuflow.engine.child_runs import begin_child, begin_detached, child_of, work_child
from pikkuflow.engine.gates import pass_gate
from pikkuflow.engine.in_place import Assignment, work_in_place
from pikkuflow.engine.open_pass import OpenPass
from pikkuflow.engine.overdue import end_overdue
from pikkuflow.engine.send import SOON_SECONDS, message_of, send_steps
from pikkuflow.engine.step_rows import new_step, step_of_row
from pikkuflow.engine.suspensions import missing_task
from pikkuflow.engine.tell import tell_step_lost, warn
from pikkuflow.errors import TaskNotFound
from pikkuflow.ports import Route, StepLost
from pikkuflow.replay.recorder import recorded_failure

__all__ = ["Performer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """A call with its move. ``step`` is the row to insert, or the one that is there as it was made."""

    call: PlannedCall
    move: Move
    step: NewStep | None = None
    child: NewRun | None = None
    missing: TaskNotFound | None = None


class Performer:
    """The ``perform`` of a replay, for one pass."""

    def __init__(self, p: OpenPass) -> None:
        self._p = p
        self._in_pass = Place.in_pass(p.ref.pass_id)

    def __call__(self, reach: Reach) -> tuple[Recorded | Waiting, ...]:
        """An answer for each call, in order.

        Raises ``Parked`` when the pass must end, and into the body what is wrong with its calls: ``TypeError`` or a task's own validation
        error, ``PayloadError``, ``DurationError``, ``WorkflowDefinitionError``.
        """
        self._p.yield_if_due()
        planned = [self._plan(call, reach) for call in reach.calls]
        if any(item.move is not Move.WORK for item in planned):
            self._p.flush()
        self._insert(planned, joined=reach.joined)
        self._warn_of_length(reach)
        self._refuse_missing(planned)
        is_sent = self._send(planned, chunk=1 if any(_travels_alone(item) for item in planned) else reach.chunk)
        answers = tuple([self._answer(item, is_sent=is_sent) for item in planned])
        self._p.has_in_flight = self._p.has_in_flight or any(isinstance(answer, Waiting) for answer in answers)
        return answers

    # --- decide -----------------------------------------------------------------------------------------------------
    def _plan(self, call: PlannedCall, reach: Reach) -> _Planned:
        if call.row is not None:
            return self._plan_row(call, call.row)
        self._p.leaves_a_mark = self._p.leaves_a_mark or call.call.leaves_a_mark
        kind = call.call.kind
        if kind is not StepKind.TASK:
            return self._plan_own(call)
        try:
            route = self._p.rt.runner.route(call.call, self._p.run.workflow)
        except TaskNotFound as error:
            return self._plan_missing(call, error)
        return self._plan_task(call, route, together=reach.together)

    def _plan_own(self, call: PlannedCall) -> _Planned:
        move = move_for_new(call.call.kind, here=True)
        if move is Move.START_CHILD:
            return _Planned(call=call, move=move, child=child_of(self._p, call))
        return _Planned(call=call, move=move, step=new_step(self._p, call, None, place=self._in_pass))

    def _plan_task(self, call: PlannedCall, route: Route, *, together: bool) -> _Planned:
        if route.leaves == "unknown" and not self._p.rt.has_broker:
            return self._plan_missing(call, _unknown(call.name, call.call.task))
        here = stays_here(
            StepKind.TASK,
            call.call.dispatch or self._p.wish,
            route.leaves or ("timeout" if call.call.has_deadline else None),
            together=together,
            inline=self._p.run.inline,
        )
        place = self._in_pass if here else Place.QUEUE
        step = new_step(self._p, call, route, place=place)
        return _Planned(call=call, move=move_for_new(StepKind.TASK, here=here), step=step)

    def _plan_row(self, call: PlannedCall, row: Step) -> _Planned:
        move = move_for_row(row, resend=self._p.resends)
        missing = None
        if (
            move in {Move.WORK, Move.TAKE_BACK}
            and row.kind is StepKind.TASK
            and not self._p.rt.runner.is_known(row.task or "")
        ):
            missing = _unknown(row.name, row.task)
        return _Planned(call=call, move=move, step=step_of_row(row, place=self._in_pass), missing=missing)

    def _plan_missing(self, call: PlannedCall, error: TaskNotFound) -> _Planned:
        """D5: its row is there, pending, so that a person sees what the run waits for."""
        return _Planned(
            call=call, move=Move.WORK, step=new_step(self._p, call, None, place=self._in_pass), missing=error
        )

    # --- write and send ---------------------------------------------------------------------------------------------
    def _insert(self, planned: Sequence[_Planned], *, joined: bool) -> None:
        leaving = [item.step for item in planned if item.move is Move.DISPATCH and item.step is not None]
        others = [item.step for item in planned if self._goes_in(item)]
        if leaving:
            joined = joined and len(leaving) > 1
            if joined:
                fan = FanId(leaving[0].name)
                leaving = [replace(step, fan_id=fan) for step in leaving]
            # Nobody works them before a claim, which waits for the disk.
            self._p.insert(leaving, joined=joined, lightly=True)
        if others:
            self._p.insert([step for step in others if step is not None])

    @staticmethod
    def _goes_in(item: _Planned) -> bool:
        if item.call.row is not None:
            return False
        return (
            item.missing is not None or _is_delayed(item) or (item.move is Move.SLEEP and bool(item.call.call.seconds))
        )

    def _refuse_missing(self, planned: Sequence[_Planned]) -> None:
        for item in planned:
            if item.missing is not None:
                raise missing_task(self._p, item.missing)

    def _send(self, planned: Sequence[_Planned], *, chunk: int) -> bool:
        messages: list[StepMessage] = []
        unsent = []
        for item in planned:
            message = self._message(item)
            if message is None:
                continue
            messages.append(message)
            if item.call.row is None or item.call.row.status is StepStatus.PENDING:
                unsent.append(message.name)
        if self._p.resends and messages:
            # The run is suspended until this pass is closed, and workers take steps of running runs only.
            self._p.late.append((messages, chunk))
            return True
        if not send_steps(self._p.rt, messages, chunk=chunk):
            return False
        self._p.sent.extend(unsent)
        return True

    def _message(self, item: _Planned) -> StepMessage | None:
        row, step = item.call.row, item.step
        if item.move is Move.SEND and row is not None:
            return cast("StepMessage", self._p.ask(lambda: message_of(self._p.rt, row)))
        if item.move is not Move.DISPATCH or step is None or step.delay_seconds:
            return None
        return StepMessage(
            run_id=self._p.run.id,
            name=step.name,
            attempt=1,
            task=step.task or "",
            queue=step.queue,
            options=step.options,
        )

    # --- answer -----------------------------------------------------------------------------------------------------
    def _answer(self, item: _Planned, *, is_sent: bool) -> Recorded | Waiting:
        row, step = item.call.row, item.step
        if item.child is not None and item.call.call.detached:
            return begin_detached(self._p, item.call, item.child)
        if item.child is not None:
            begin_child(self._p, item.call, item.child)
            return self._work_child(item, item.child.id)
        if step is None:
            raise AssertionError(f"no row for {item.call.name!r}")
        if item.move is Move.GATE:
            return pass_gate(self._p, item.call, step)
        if item.move is Move.DISPATCH or item.move is Move.SEND:
            self._note_expiry(step, row)
            return self._waiting(SOON_SECONDS if not is_sent else step.delay_seconds)
        if item.move is Move.SLEEP:
            return self._sleep(item, step)
        if row is None:
            return self._waiting(step.delay_seconds) if _is_delayed(item) else self._work_new(item, step)
        return self._go_on(item.move, row, item)

    def _go_on(self, move: Move, row: Step, item: _Planned) -> Recorded | Waiting:
        step = step_of_row(row, place=self._in_pass)
        if move is Move.WORK:
            return self._work(
                Assignment(
                    call=item.call.call, step=step, attempt=row.attempt, override=row.override, details=row.details
                )
            )
        if move is Move.TAKE_BACK:
            return self._take_back(item, step, row)
        if move is Move.EXHAUST:
            return self._exhaust(step, row)
        if move is Move.OVERDUE:
            return end_overdue(self._p, row)
        if move is Move.WAKE:
            return self._succeed(step, row.attempt)
        if move is Move.KNOWN:
            return self._known(row)
        if row.child_run_id is not None:
            return self._work_child(item, row.child_run_id)
        self._note_expiry(step, row)
        # A message that left for a row that was due brings it on: another pass would find the same, at once and again.
        return self._waiting(None if row.is_due else row.due_in_seconds)

    def _work_new(self, item: _Planned, step: NewStep) -> Recorded | Waiting:
        call = item.call.call
        is_charged = self._p.is_lost and not needs_recorded_start(
            retries=step.retries, compensable=call.undo_task is not None, asked=call.record_start, lost=False
        )
        if is_charged:
            # The pass that was lost may have died over this very step, unseen (design 2).
            self._lost(step, 1, exhausted=False)
        return self._work(Assignment(call=call, step=step, attempt=2 if is_charged else 1))

    def _take_back(self, item: _Planned, step: NewStep, row: Step) -> Recorded | Waiting:
        self._lost(step, row.attempt, exhausted=False)
        return self._work(
            Assignment(
                call=item.call.call,
                step=step,
                attempt=row.attempt + 1,
                expects=row.attempt,
                starts=True,
                override=row.override,
                details=row.details,
            )
        )

    def _work(self, assignment: Assignment) -> Recorded | Waiting:
        self._p.yield_if_due()
        return work_in_place(self._p, assignment)

    def _exhaust(self, step: NewStep, row: Step) -> Recorded:
        failure = loss.lease_expired(step.name, row.attempt)
        self._lost(step, row.attempt, exhausted=True)
        write = StepWrite(step=step, attempt=row.attempt, status=StepStatus.FAILED, error=failure, no=self._p.next_no())
        news = self._p.record(write)
        self._p.stop_if_told(news)
        return Recorded(failure=failure, attempts=row.attempt)

    def _sleep(self, item: _Planned, step: NewStep) -> Recorded | Waiting:
        if not item.call.call.seconds:
            return self._succeed(step, 1)
        return self._waiting(step.delay_seconds)

    def _succeed(self, step: NewStep, attempt: int) -> Recorded:
        write = StepWrite(step=step, attempt=attempt, status=StepStatus.SUCCEEDED, result="null", no=self._p.next_no())
        news = self._p.record(write)
        self._p.stop_if_told(news)
        return Recorded(attempts=attempt)

    def _known(self, row: Step) -> Recorded:
        if row.status is StepStatus.SUCCEEDED:
            return Recorded(
                value=self._p.ask(lambda: self._p.rt.codec.decode(row.result or "null")), attempts=row.attempt
            )
        return Recorded(failure=recorded_failure(row), attempts=row.attempt)

    def _work_child(self, item: _Planned, child: RunId) -> Recorded | Waiting:
        settled = work_child(self._p, item.call.name, child)
        return self._waiting(None) if settled is None else self._known(settled)

    def _waiting(self, due_seconds: float | None) -> Waiting:
        self._p.note_due(due_seconds)
        return Waiting(due_in_seconds=due_seconds)

    def _note_expiry(self, step: NewStep, row: Step | None) -> None:
        """A queue that nobody consumes gives no news: the pass that comes then ends the step."""
        if row is None:
            self._p.note_due(step.expires_seconds)
        elif row.is_waiting:
            self._p.note_due(row.expires_in_seconds)

    def _lost(self, step: NewStep, attempt: int, *, exhausted: bool) -> None:
        event = StepLost(run_id=self._p.run.id, step=step.name, attempt=attempt, exhausted=exhausted)
        tell_step_lost(self._p.rt, event)

    def _warn_of_length(self, reach: Reach) -> None:
        threshold = self._p.rt.settings.history_warning_steps
        if any(call.row is None and call.seq + 1 == threshold for call in reach.calls):
            warn(
                self._p.rt,
                f"{threshold} steps: every pass replays all of them. Split the work into child runs.",
                run_id=self._p.run.id,
            )


def _is_delayed(item: _Planned) -> bool:
    """A step in place with a countdown: its row waits for its time."""
    return item.move is Move.WORK and item.step is not None and bool(item.step.delay_seconds)


def _travels_alone(item: _Planned) -> bool:
    """A chunk is claimed whole: the time an attempt may take begins then, and a process that dies spends an attempt of each member."""
    return item.call.call.has_deadline or (item.step is not None and item.step.retries == 0)


def _unknown(name: StepName, task: str | None) -> TaskNotFound:
    return TaskNotFound(
        f"Step {name!r} needs task {task!r}, which is not registered here.",
        task or "",
        hint="Deploy it and resume the run, or wait: the run is tried again.",
    )
