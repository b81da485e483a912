"""Work a step in place: the outcome is committed with one statement before the body sees it (design 2).

Holding the run is the claim. The start is recorded before the work only where it must be; for other steps the watch records it once they
have worked for a while. Only a step that its author calls quick may have its success kept, to be written with those after it
(``kept_outcomes``); any other begins once what it may rest on is stored.

An attempt that fails with attempts left is written together with the next one; a delay of 0 goes on here at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from pikkuflow.domain import loss
from pikkuflow.domain.act import EndedAttempt, PassNews, StepWrite
from pikkuflow.domain.command import Recorded, StepCall, Waiting
from pikkuflow.domain.graph_step import NodeStep
from pikkuflow.domain.reach import needs_recorded_start
from pikkuflow.domain.status import StepKind, StepStatus
from pikkuflow.domain.step import NewStep, Place
from pikkuflow.engine.beat import beat_of, details_of
from pikkuflow.engine.current_step import step_context
from pikkuflow.engine.end_attempt import Ending, Tried, ending_of
from pikkuflow.engine.graph_steps import node_step
from pikkuflow.engine.open_pass import OpenPass
from pikkuflow.engine.own_values import own_value
from pikkuflow.engine.send import SOON_SECONDS, message_of_new, routed, send_steps
from pikkuflow.engine.step_rows import given_to, options_of
from pikkuflow.engine.suspensions import missing_task
from pikkuflow.engine.tell import warn
from pikkuflow.engine.watch_starts import WATCH
from pikkuflow.errors import TaskNotFound
from pikkuflow.ports import Attempted, AttemptEnd, StepWork
from pikkuflow.replay.park import Parked

__all__ = ["Assignment", "work_in_place"]

_TRAVELS: Final = ("queue", "exchange", "routing_key", "time_limit", "soft_time_limit")
"""Options that only a message can carry out."""

_TASKS: Final = frozenset({StepKind.TASK, StepKind.COMPENSATION})
"""Steps that are a Celery task; the others are calls of the workflow's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """An attempt to be worked here.

    ``expects`` is the attempt that the row shows when this one supersedes it. ``starts`` says that its start is recorded whatever the
    policy says (it was taken back, or is charged for a lost pass). ``override`` is what the task's own ``retry`` changed, ``details`` what
    an attempt said last.
    """

    call: StepCall
    step: NewStep
    attempt: int = 1
    expects: int | None = None
    starts: bool = False
    override: str | None = None
    details: str | None = None


def work_in_place(p: OpenPass, assignment: Assignment) -> Recorded | Waiting:
    """Work the step until it has an outcome or waits for its next attempt.

    Raises ``Parked`` when the pass must end: fenced, stopped, due to yield, its task unknown here, or the store away.
    """
    while True:
        attempt = _Attempt(p, assignment)
        ending = attempt.work()
        if ending.is_last:
            return _recorded(p, assignment, ending)
        if attempt.leaves and not ending.delay_seconds:
            return _sent_elsewhere(p, assignment, ending)
        if ending.delay_seconds:
            p.note_due(ending.delay_seconds)
            return Waiting(due_in_seconds=ending.delay_seconds)
        assignment = replace(
            assignment,
            attempt=assignment.attempt + 1,
            expects=None,
            starts=False,
            override=ending.override,
            details=attempt.details,
        )
        p.yield_if_due()


def _recorded(p: OpenPass, assignment: Assignment, ending: Ending) -> Recorded:
    if ending.error is not None:
        return Recorded(failure=ending.error, attempts=assignment.attempt)
    value = p.ask(lambda: p.rt.codec.decode(ending.result or "null"))
    return Recorded(value=value, attempts=assignment.attempt, branch=ending.branch)


def _sent_elsewhere(p: OpenPass, assignment: Assignment, ending: Ending) -> Waiting:
    """The next attempt was asked to travel, and leaves at once."""
    step = assignment.step
    message = message_of_new(p.run.id, step, attempt=assignment.attempt + 1, override=ending.override)
    due = None
    if send_steps(p.rt, [p.ask(lambda: routed(p.rt, message))]):
        p.sent.append(step.name)
    else:
        due = SOON_SECONDS
        p.note_due(due)
    return Waiting(due_in_seconds=due)


class _Attempt:
    """One attempt: start, work, record."""

    def __init__(self, p: OpenPass, assignment: Assignment) -> None:
        self._p = p
        self._assigned = assignment
        self._ending: Ending | None = None
        self._news: PassNews | None = None
        self._is_quick = False
        self._is_told = False
        """What the attempt did reached ``commit``: nothing may be recorded for it any more."""
        self.leaves = False
        """The task asked that its next attempt be worked elsewhere: its row becomes a dispatched one."""
        self.details = assignment.details
        """What this attempt said last at a heartbeat, or else one before it."""
        self._started_at = p.rt.clock.monotonic()
        self._node: NodeStep | None = None

    def work(self) -> Ending:
        """The recorded end of the attempt."""
        recorded = self._starts_recorded()
        self._is_quick = not recorded and self._p.keeps(self._assigned.call)
        if recorded:
            self._p.record(self._start())
        elif not self._is_quick:
            self._p.flush()
        self._started_at = self._p.rt.clock.monotonic()
        key = None if recorded else self._watched()
        try:
            self._run()
        finally:
            if key is not None:
                WATCH.end(key)
        if self._ending is None:
            raise AssertionError("an attempt was told and not recorded")
        if self._news is not None:
            self._p.stop_if_told(self._news)
        return self._ending

    # --- the work ---------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        work: StepWork = self._p.ask(self._step_work)
        try:
            if self._assigned.step.kind in _TASKS:
                self._p.rt.runner.run(work, self._commit)
            else:
                self._call(work)
        except Parked:
            raise
        except TaskNotFound as error:
            raise missing_task(self._p, error) from error
        except BaseException as error:  # noqa: BLE001 - SystemExit too is an attempt that ended
            self._escaped(error)
        if not self._is_told:
            self._commit(
                Attempted(end=AttemptEnd.RAISED, error=RuntimeError("The task's runner ended without a word."))
            )

    def _call(self, work: StepWork) -> None:
        call = self._assigned.call
        function: Callable[[], Any] = call.function or own_value(self._p.rt, call.name)
        try:
            with step_context(work):
                attempted = Attempted(end=AttemptEnd.SUCCEEDED, value=function())
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            final = isinstance(error, call.no_retry_on)
            attempted = Attempted(end=AttemptEnd.GAVE_UP if final else AttemptEnd.RAISED, error=error)
        self._commit(attempted)

    def _escaped(self, error: BaseException) -> None:
        """The runner let something out. An attempt without an outcome failed by it; what is not an ``Exception`` also ends the pass."""
        if not self._is_told:
            self._commit(Attempted(end=AttemptEnd.RAISED, error=error))
        elif isinstance(error, Exception):
            warn(self._p.rt, f"Step {self._assigned.step.name!r}: {error!r} after its outcome.", run_id=self._p.run.id)
        if not isinstance(error, Exception):
            self._p.break_off(error)

    def _commit(self, attempted: Attempted) -> bool:
        self._is_told = True
        attempted = self._in_time(attempted)
        if self._node is not None and (said := self._node.said):
            attempted = replace(attempted, said=said)
        ending: Ending = self._p.ask(lambda: ending_of(self._p.rt, self._tried(), attempted))
        self.leaves = not ending.is_last and self._goes_elsewhere(ending)
        if self._is_quick and ending.status is StepStatus.SUCCEEDED:
            self._news = self._p.keep(self._outcome(ending), began_at=self._started_at)
        else:
            self._news = self._p.record(self._outcome(ending))
        self._ending = ending
        return ending.answer_to(attempted)

    def _in_time(self, attempted: Attempted) -> Attempted:
        """A late outcome is refused. Here nobody else could have seen the time pass: the step is worked in its run's own pass."""
        limit, took = self._assigned.call.timeout_seconds, self._seconds()
        if limit is None or took <= limit:
            return attempted
        error = TimeoutError(loss.timed_out(self._assigned.step.name, limit, self._assigned.attempt).message)
        return Attempted(end=AttemptEnd.RAISED, error=error)

    # --- records ----------------------------------------------------------------------------------------------------
    def _starts_recorded(self) -> bool:
        call, assigned = self._assigned.call, self._assigned
        return (
            assigned.starts
            or self._p.is_light
            or self._p.rt.settings.record_start_seconds <= 0
            or needs_recorded_start(
                retries=assigned.step.retries,
                compensable=call.undo_task is not None,
                asked=call.record_start,
                lost=self._p.is_lost,
            )
        )

    def _start(self, started_seconds_ago: float = 0.0) -> StepWrite:
        assigned = self._assigned
        return StepWrite(
            step=assigned.step,
            attempt=assigned.attempt,
            status=StepStatus.RUNNING,
            expects=assigned.expects,
            override=assigned.override,
            started_seconds_ago=started_seconds_ago,
        )

    def _outcome(self, ending: Ending) -> StepWrite:
        assigned, ago = self._assigned, self._seconds()
        if ending.is_last:
            is_set = assigned.step.kind is StepKind.STATE and ending.result is not None
            return StepWrite(
                step=assigned.step,
                attempt=assigned.attempt,
                status=ending.status,
                result=ending.result,
                error=ending.error,
                override=ending.override,
                started_seconds_ago=ago,
                state=(assigned.call.state_key or "", ending.result or "null") if is_set else None,
                no=self._p.next_no(),
            )
        return StepWrite(
            step=replace(assigned.step, place=Place.QUEUE) if self.leaves else assigned.step,
            attempt=assigned.attempt + 1,
            status=StepStatus.PENDING,
            expects=assigned.attempt,
            delay_seconds=ending.delay_seconds,
            override=ending.override,
            ended=EndedAttempt(
                attempt=assigned.attempt, status=StepStatus.FAILED, error=ending.error, started_seconds_ago=ago
            ),
        )

    def _goes_elsewhere(self, ending: Ending) -> bool:
        """``retry(queue=…)``, or a time limit, holds for the next attempt, which cannot have either in this pass (design 1)."""
        p, step = self._p, self._assigned.step
        if ending.override is None or p.run.inline or p.works_child is not None or not p.rt.has_broker:
            return False
        override = ending.override
        changed = p.ask(lambda: p.rt.codec.decode(override)).get("options") or {}
        now = options_of(step)
        return any(changed[key] != now.get(key) for key in _TRAVELS if key in changed)

    def _watched(self) -> int:
        rt, after = self._p.rt, self._p.rt.settings.record_start_seconds

        def record() -> None:
            try:
                # A row must not be there before those of the steps that it came after.
                # Else not through the pass: its fences are for the thread that works.
                if self._p.flush_aside():
                    rt.store.record(self._p.ref, self._start(self._seconds()))
            except Exception as error:  # noqa: BLE001 - only a view of the step is lost, and it is told
                warn(
                    rt,
                    f"The start of step {self._assigned.step.name!r} was not recorded: {error}",
                    run_id=self._p.run.id,
                )

        return WATCH.begin(lambda: self._seconds() >= after, record, after_seconds=after)

    def _seconds(self) -> float:
        return self._p.rt.clock.monotonic() - self._started_at

    def _tried(self) -> Tried:
        assigned = self._assigned
        return Tried(
            run_id=self._p.run.id,
            step=assigned.step.name,
            attempt=assigned.attempt,
            retries=assigned.step.retries,
            retry_delay=assigned.step.retry_delay,
        )

    def _step_work(self) -> StepWork:
        assigned, run = self._assigned, self._p.run
        given = given_to(self._p.rt, run.id, assigned.step, assigned.override)
        options = options_of(assigned.step)
        self._node = node_step(self._p.rt, run, assigned.step.name, options, before=self._p.flush_aside)
        return StepWork(
            run_id=run.id,
            step=assigned.step.name,
            workflow=run.workflow,
            owner=run.owner,
            task=assigned.step.task or "",
            args=given.args,
            kwargs=given.kwargs,
            attempt=assigned.attempt,
            attempts_allowed=assigned.step.retries + 1,
            options=options,
            wire=run.wire,
            from_step=assigned.step.from_step,
            no_retry_on=assigned.call.no_retry_on,
            details=details_of(self._p.rt, assigned.details),
            beat=beat_of(self._p.rt, run.id, assigned.step, assigned.attempt, before=self._show_start),
            node=self._node,
        )

    def _show_start(self, details: str) -> None:
        self.details = details
        # As the watch does.
        if self._p.flush_aside():
            self._p.rt.store.record(self._p.ref, self._start(self._seconds()))
