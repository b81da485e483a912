"""Close a pass in its last write, release the run, then send (design 3.5).

The order matters: a wake-up sent while this pass still held the run would find it held.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pikkuflow.domain import loss
from pikkuflow.domain.act import Closed, Closing, RunRef
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.ids import StepName
from pikkuflow.domain.run import Run
from pikkuflow.domain.status import GATE_CODES, SETTLED_RUN, RunStatus
from pikkuflow.domain.stop import CANCEL_CODE, cancelled_failure
from pikkuflow.domain.transitions import RunEvent, next_run_status
from pikkuflow.engine.deliver import deliver
from pikkuflow.engine.describe_error import failure_of
from pikkuflow.engine.open_pass import OpenPass
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.send import wake_runs
from pikkuflow.engine.suspensions import backoff_seconds
from pikkuflow.errors import PayloadError, RunCancelled
from pikkuflow.ports import PassOutcome
from pikkuflow.replay.outcome import Completed, Failed, Outcome
from pikkuflow.replay.park import Parked, ParkReason

__all__ = ["closing_of", "failed_closing", "outcome_of", "overdue_closing", "send_after"]


def closing_of(p: OpenPass, outcome: Outcome) -> Closing | None:
    """The last write for what the pass found. None: another pass owns the run, nothing may be written."""
    if isinstance(outcome, Failed):
        return _failed(p, outcome.error, outcome.code)
    if isinstance(outcome, Completed):
        return overdue_closing(p) if p.is_overdue else _completed(p, outcome.value)
    return _parked(p, outcome.parked)


def failed_closing(run: Run, failure: Failure, *, undo: bool, sent: tuple[StepName, ...] = ()) -> Closing:
    """The run failed by that, or was called off by its own body. ``undo``: something it did may have to be undone first (spec 2.12)."""
    event = RunEvent.CANCEL if failure.code == CANCEL_CODE else RunEvent.FAIL
    status = next_run_status(run.status, RunEvent.UNWIND if undo else event)
    return Closing(status=status, error=failure, code=failure.code, sent=sent)


def overdue_closing(p: OpenPass) -> Closing:
    """The run took longer than its own ``timeout`` (issue D, Build 7): it failed, also when its body has just come to its end."""
    return failed_closing(p.run, loss.run_timed_out(p.run.timeout_seconds), undo=p.may_undo, sent=tuple(p.sent))


def outcome_of(closing: Closing | None) -> PassOutcome:
    """The pass as observers see it (D31)."""
    if closing is None or (not closing.unwinds and closing.status in {None, RunStatus.RUNNING, RunStatus.SUSPENDED}):
        return PassOutcome.INTERRUPTED
    return PassOutcome.COMPLETED if closing.status is RunStatus.COMPLETED else PassOutcome.FAILED


def send_after(
    rt: Runtime, run: Run, closing: Closing, closed: Closed, *, due_seconds: float | None = None, wake: bool = True
) -> None:
    """What follows a closed pass: the parent's wake-up, announcements, the handover, hints and the run's own wake-up.

    ``due_seconds`` is when another pass is worth it; ``wake`` is False when the caller itself opens the next pass, in its
    own time.
    """
    if closed.parent is not None:
        wake_runs(rt, [closed.parent])
    if closed.status in SETTLED_RUN:
        rt.hints.announce(run.id)
        if closed.status is closing.status:
            deliver(rt, _as_closed(rt, run, closing, closed.status))
        return
    if closed.status is RunStatus.SUSPENDED:
        rt.hints.announce(run.id)
    if not wake:
        return
    if closed.wake:
        wake_runs(rt, [RunRef(id=run.id, workflow=run.workflow)])
    elif due_seconds is not None:
        rt.hints.leave(run.id, due_seconds)


def _failed(p: OpenPass, error: BaseException, code: str | None = None) -> Closing:
    failure = failure_of(error)
    if code is not None:
        failure = replace(failure, code=code)
    if isinstance(error, RunCancelled) and error.run_id == p.run.id:
        failure = cancelled_failure(error.message)
    return failed_closing(p.run, failure, undo=p.may_undo, sent=tuple(p.sent))


def _completed(p: OpenPass, value: Any) -> Closing:
    try:
        output = p.rt.codec.encode(value, what=f"the output of workflow {p.run.workflow!r}")
    except PayloadError as error:
        return _failed(p, error)
    return Closing(status=next_run_status(p.run.status, RunEvent.COMPLETE), output=output, sent=tuple(p.sent))


def _parked(p: OpenPass, parked: Parked) -> Closing | None:
    if parked.reason is ParkReason.SUPERSEDED:
        return None
    if parked.reason is ParkReason.STOPPED:
        # A row may have moved under the pass without any news, such as to its next attempt: the body did not get as far as it can.
        return Closing(sent=tuple(p.sent), raise_news=True)
    if p.is_overdue:
        return overdue_closing(p)
    if parked.reason is ParkReason.SUSPENDED:
        return _suspended(p, parked)
    return Closing(
        status=next_run_status(p.run.status, RunEvent.PARK),
        # A time that is known is the run's own: the backstop of the sweeps leaves it (design 3.8).
        due_seconds=None if parked.reason is ParkReason.YIELDED else p.due_seconds,
        sent=tuple(p.sent),
        raise_news=parked.reason is ParkReason.YIELDED,
    )


def _suspended(p: OpenPass, parked: Parked) -> Closing:
    due = parked.due_seconds
    if due is None and parked.code is not None and parked.code not in GATE_CODES:
        due = backoff_seconds(p.rt, p.history, parked.code)
    p.note_due(due)
    return Closing(
        status=next_run_status(p.run.status, RunEvent.SUSPEND),
        error=parked.failure,
        code=parked.code,
        due_seconds=due,
        sent=tuple(p.sent),
    )


def _as_closed(rt: Runtime, run: Run, closing: Closing, status: RunStatus) -> Run:
    ended = replace(run, status=status, output=closing.output, finished_at=rt.clock.now())
    return ended if closing.unwinds else replace(ended, error=closing.error, code=closing.code)
