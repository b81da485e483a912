"""One pass over one run: door, opening, replay, closing, door, sending (design 2, 3.1, 3.5)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from pikkuflow.domain.act import Closed, Closing, PassOpening, PassRef, PassRefusal, RunRef
from pikkuflow.domain.definition import WorkflowDefinition
from pikkuflow.domain.history import History
from pikkuflow.domain.ids import PassId, RunId, StepName
from pikkuflow.domain.run import Run
from pikkuflow.domain.status import OPEN_RUN, SETTLED_RUN, RunStatus, SuspendCode
from pikkuflow.domain.transitions import RunEvent, next_run_status
from pikkuflow.engine.break_off import broken_closing, is_outage, unread_closing
from pikkuflow.engine.close_later import close_later
from pikkuflow.engine.close_pass import closing_of, outcome_of, overdue_closing, send_after
from pikkuflow.engine.describe_error import failure_of
from pikkuflow.engine.front_door import Door, open_door
from pikkuflow.engine.open_pass import OpenPass, WorkChild
from pikkuflow.engine.own_version import own_version
from pikkuflow.engine.perform import Performer
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.send import SOON_SECONDS, send_steps, wake_runs
from pikkuflow.engine.suspensions import backoff_seconds
from pikkuflow.engine.tell import tell_pass_ended, warn
from pikkuflow.engine.unwind import unwind
from pikkuflow.errors import WorkflowNotFound
from pikkuflow.ports import PassEnded, PassOutcome
from pikkuflow.replay.outcome import Failed, Outcome, ParkedOutcome
from pikkuflow.replay.park import Parked
from pikkuflow.replay.replay import replay

__all__ = ["PassEnd", "PassResult", "work_pass"]


class PassEnd(StrEnum):
    """How it went, for the caller that decides what is next."""

    SETTLED = "settled"
    """The run is settled (by this pass or before it)."""
    PARKED = "parked"
    SUSPENDED = "suspended"
    HELD = "held"
    """Someone else holds the run: nothing was done."""
    NOT_DUE = "not_due"
    MISSING = "missing"
    SUPERSEDED = "superseded"
    """The run was taken from this pass: nothing was written since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassResult:
    """How a pass went. ``again`` says that news moved while it worked; ``due_seconds`` when another one is worth it.

    ``hint_seconds``: when one is, at the latest, though nothing else comes: then, or when the run's own time is over.
    """

    end: PassEnd
    again: bool = False
    due_seconds: float | None = None
    hint_seconds: float | None = None


_REFUSED = {
    PassRefusal.MISSING: PassEnd.MISSING,
    PassRefusal.SETTLED: PassEnd.SETTLED,
    PassRefusal.HELD: PassEnd.HELD,
    PassRefusal.NOT_DUE: PassEnd.NOT_DUE,
    PassRefusal.LOST: PassEnd.SUSPENDED,
}


def work_pass(rt: Runtime, run_id: RunId, *, works_child: WorkChild | None = None, lightly: bool = False) -> PassResult:
    """Open a pass over the run, work it as far as it goes here, close it, and send what follows.

    ``works_child`` is given by a caller that waits for the whole run; it opens the next pass itself, so no wake-up is sent for this run.
    ``lightly``: the pass will hardly work anything itself, and its opening need not wait for the disk (``PassOpening``).

    Raises ``NoLeaseService``, ``StoreUnavailable``, and a ``BaseException`` that ended the pass (``SystemExit``): the run goes on.
    """
    pass_id = PassId(rt.ids.new_id())
    door = open_door(rt, run_id, pass_id)
    if door is None:
        return PassResult(end=PassEnd.HELD)
    try:
        return _Pass(rt, run_id, pass_id, door, works_child, lightly=lightly).work()
    finally:
        door.close()


class _Pass:
    def __init__(
        self, rt: Runtime, run_id: RunId, pass_id: PassId, door: Door, works_child: WorkChild | None, *, lightly: bool
    ) -> None:
        self._rt = rt
        self._run_id = run_id
        self._pass_id = pass_id
        self._door = door
        self._works_child = works_child
        self._lightly = lightly

    def work(self) -> PassResult:
        """Open, work, close."""
        rt = self._rt
        opening = PassOpening(
            run_id=self._run_id,
            pass_id=self._pass_id,
            holder=rt.holder(),
            lease_seconds=rt.settings.run_lease_seconds,
            passes_lost_limit=rt.settings.passes_lost,
            lightly=self._lightly,
        )
        try:
            opened = rt.store.open_pass(opening)
        except Exception as error:
            # It may have opened with its answer lost, and this process' holder is renewed as long as the process lives.
            closing = self._told(unread_closing(error), error)
            close_later(rt, PassRef(run_id=self._run_id, pass_id=self._pass_id), closing)
            raise
        if isinstance(opened, PassRefusal):
            return self._refused(opened)
        return self._work_opened(opened)

    def _refused(self, refusal: PassRefusal) -> PassResult:
        if refusal is PassRefusal.MISSING:
            warn(self._rt, "There is no such run.", run_id=self._run_id)
        if refusal is PassRefusal.LOST:
            lost = self._rt.settings.passes_lost
            warn(self._rt, f"{lost} passes in a row were lost: suspended until it is resumed.", run_id=self._run_id)
            self._rt.hints.announce(self._run_id)
        return PassResult(end=_REFUSED[refusal])

    def _work_opened(self, history: History) -> PassResult:
        rt, run = self._rt, history.run
        definition = rt.registry.find(run.workflow)
        p = self._opened(history, definition)
        if run.status not in OPEN_RUN:
            # What undoes a run is on its rows: its code is not asked for.
            return self._unwind(p)
        if p.is_overdue:
            return self._ended(p, overdue_closing(p))
        if definition is None:
            closing = _unknown_workflow(rt, history)
            return self._close(history, closing, due_seconds=closing.due_seconds)
        return self._replay(p, definition)

    def _opened(self, history: History, definition: WorkflowDefinition | None) -> OpenPass:
        p = OpenPass(self._rt, history, definition, self._works_child)
        p.is_light = self._lightly
        return p

    def _replay(self, p: OpenPass, definition: WorkflowDefinition) -> PassResult:
        outcome = self._outcome(p, definition)
        if isinstance(outcome, Failed) and not isinstance(outcome.error, Exception):
            p.broken = p.broken or outcome.error
        return self._ended(p, None if p.broken is not None or outcome is None else self._closing(p, outcome))

    def _unwind(self, p: OpenPass) -> PassResult:
        closing = None
        try:
            closing = unwind(p)
        except BaseException as error:  # noqa: BLE001 - it goes on its way once the run is let go
            p.broken = p.broken or error
        return self._ended(p, closing)

    def _ended(self, p: OpenPass, closing: Closing | None) -> PassResult:
        if p.broken is not None:
            self._let_go(p, p.broken)
            raise p.broken
        _tell(p, outcome_of(closing))
        if closing is None:
            warn(self._rt, "Another pass took the run; nothing more was written.", run_id=self._run_id)
            return PassResult(end=PassEnd.SUPERSEDED)
        closing = replace(closing, expected=p.expected)
        result = self._close(p.history, closing, due_seconds=p.due_seconds, seconds_left=p.seconds_left)
        if result.end is PassEnd.PARKED:
            self._send_late(p)
        return result

    def _send_late(self, p: OpenPass) -> None:
        """Their rows stay as they are: a message that gets lost is sent again like one that never left."""
        for messages, chunk in p.late:
            if not send_steps(self._rt, messages, chunk=chunk):
                self._rt.hints.leave(self._run_id, SOON_SECONDS)

    def _outcome(self, p: OpenPass, definition: WorkflowDefinition) -> Outcome | None:
        rt = self._rt
        try:
            own = own_version(rt, p.history, definition)
            if isinstance(own, Failed):
                return own
            outcome = replay(
                own,
                p.history,
                perform=Performer(p),
                translate=rt.translate,
                decode=rt.codec.decode,
                warn=lambda message: warn(rt, message, run_id=self._run_id),
            )
            if p.broken is None and isinstance(outcome, ParkedOutcome):
                p.flush()
        except Parked as parked:
            return ParkedOutcome(parked)
        except BaseException as error:  # noqa: BLE001 - it goes on its way once the run is let go
            p.broken = p.broken or error
            return None
        return outcome

    def _closing(self, p: OpenPass, outcome: Outcome) -> Closing | None:
        try:
            closing = closing_of(p, outcome)
            if closing is None or closing.status not in SETTLED_RUN:
                p.flush()
                return closing
            # A run that ends takes along what is kept: one write less.
            kept = p.take_kept()
            return replace(closing, outcomes=kept) if kept else closing
        except Parked as parked:
            return closing_of(p, ParkedOutcome(parked))
        except Exception as error:  # noqa: BLE001 - as above
            p.broken = error
            return None

    def _close(
        self, history: History, closing: Closing, *, due_seconds: float | None, seconds_left: float | None = None
    ) -> PassResult:
        ref = PassRef(run_id=history.run.id, pass_id=history.pass_id)
        try:
            closed = self._rt.store.close_pass(ref, closing)
        except Exception as error:
            close_later(self._rt, ref, self._broken(history.run, error, worked=False))
            raise
        self._door.close()
        if closed is None:
            warn(self._rt, "Another pass took the run; its end was not written.", run_id=self._run_id)
            return PassResult(end=PassEnd.SUPERSEDED)
        hint, wake = _earlier(due_seconds, seconds_left), self._works_child is None
        send_after(self._rt, history.run, closing, closed, due_seconds=hint, wake=wake)
        # Without a time of its own, what it waits for may come at any moment.
        return replace(_result(closed, None if due_seconds is None else hint), hint_seconds=hint)

    def _let_go(self, p: OpenPass, error: BaseException) -> None:
        """The pass ends by something that is not the run's: what it learned is recorded, another pass goes on in a while."""
        p.flush_at_last()
        closing = self._broken(p.run, error, worked=p.worked > 0, sent=tuple(p.sent))
        closing = replace(closing, expected=p.expected)
        _tell(p, PassOutcome.INTERRUPTED)
        try:
            closed = self._rt.store.close_pass(p.ref, closing)
        except Exception:  # noqa: BLE001 - the first error is the one to raise
            close_later(self._rt, p.ref, closing)
            return
        self._door.close()
        if closed is None or closed.status in SETTLED_RUN:
            return
        if closed.status is RunStatus.SUSPENDED and closing.status is not None:
            self._rt.hints.announce(self._run_id)
        elif closed.wake and self._rt.is_stopping():
            wake_runs(self._rt, [RunRef(id=p.run.id, workflow=p.run.workflow)])
        else:
            self._rt.hints.leave(self._run_id, closing.due_seconds or SOON_SECONDS)

    def _broken(self, run: Run, error: BaseException, *, worked: bool, sent: tuple[StepName, ...] = ()) -> Closing:
        if self._rt.is_stopping() or is_outage(error):
            return Closing(sent=sent, raise_news=True)
        limit = self._rt.settings.passes_lost
        closing = broken_closing(run, error, worked=worked, sent=sent, passes_lost_limit=limit)
        return self._told(closing, error)

    def _told(self, closing: Closing, error: BaseException) -> Closing:
        if closing.broke_off:
            then = "suspended" if closing.due_seconds is None else f"tried again in {closing.due_seconds:g} s"
            warn(self._rt, f"A pass broke off by {error!r}; the run is {then}.", run_id=self._run_id)
        return closing


def _unknown_workflow(rt: Runtime, history: History) -> Closing:
    """D5, design 3.10: another worker may know it, so it is tried again; nothing is spent."""
    run, code = history.run, SuspendCode.WORKFLOW_NOT_FOUND
    error = failure_of(
        WorkflowNotFound(
            f"Workflow {run.workflow!r} is not registered on the worker that met it.",
            run.workflow,
            hint="Deploy it to every worker of its queue; the run is tried again.",
        )
    )
    return Closing(
        status=next_run_status(run.status, RunEvent.SUSPEND),
        code=code,
        error=error,
        due_seconds=backoff_seconds(rt, history, code),
    )


def _tell(p: OpenPass, outcome: PassOutcome) -> None:
    tell_pass_ended(
        p.rt,
        PassEnded(
            run_id=p.run.id,
            workflow=p.run.workflow,
            outcome=outcome,
            steps_worked=p.worked,
            seconds=p.seconds_open(),
        ),
    )


def _earlier(due_seconds: float | None, seconds_left: float | None) -> float | None:
    known = [seconds for seconds in (due_seconds, seconds_left) if seconds is not None]
    return max(0.0, min(known)) if known else None


def _result(closed: Closed, due_seconds: float | None) -> PassResult:
    if closed.status in SETTLED_RUN:
        return PassResult(end=PassEnd.SETTLED)
    end = PassEnd.SUSPENDED if closed.status is RunStatus.SUSPENDED else PassEnd.PARKED
    return PassResult(end=end, again=closed.wake, due_seconds=due_seconds)
