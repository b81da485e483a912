"""End what takes longer than it may, whatever hangs: an attempt (``timeout=``, ``heartbeat_timeout=``), or a wait for a worker."""

from __future__ import annotations

from dataclasses import replace

from pikkuflow.domain import loss
from pikkuflow.domain.act import EndedAttempt, StepWrite
from pikkuflow.domain.command import Recorded, Waiting
from pikkuflow.domain.retry import RetryPolicy
from pikkuflow.domain.status import StepStatus
from pikkuflow.domain.step import Place, Step
from pikkuflow.engine.open_pass import OpenPass
from pikkuflow.engine.step_rows import step_of_row

__all__ = ["end_overdue"]


def end_overdue(p: OpenPass, row: Step) -> Recorded | Waiting:
    """Record the time-out and the next attempt in one write, or that none is left. From then on the claim's outcome is refused.

    A step that no worker took before its signature's ``expires`` has failed.

    Raises ``Parked`` when the row moved since the pass opened: its outcome came after all, and is news.
    """
    if row.is_waiting:
        return _end_wait(p, row)
    error = loss.overdue(row)
    step = step_of_row(row, place=Place.QUEUE)
    delay = RetryPolicy(retries=row.retries, delay=row.retry_delay).decide(row.attempt, p.rt.ids.jitter(), None)
    failed = StepWrite(step=step, attempt=row.attempt, status=StepStatus.FAILED, error=error, no=p.next_no())
    if delay is None:
        p.stop_if_told(p.record(failed))
        return Recorded(failure=error, attempts=row.attempt)
    ended = EndedAttempt(attempt=row.attempt, status=StepStatus.FAILED, error=error)
    following = replace(
        failed,
        attempt=row.attempt + 1,
        status=StepStatus.PENDING,
        expects=row.attempt,
        error=None,
        delay_seconds=delay,
        ended=ended,
    )
    p.stop_if_told(p.record(following))
    p.note_due(delay)
    return Waiting(due_in_seconds=delay)


def _end_wait(p: OpenPass, row: Step) -> Recorded:
    """No claim can take it from its time on, so that nothing is overwritten (issue D, Build 7)."""
    error = loss.message_expired(row.name)
    step = step_of_row(row, place=Place.QUEUE)
    write = StepWrite(step=step, attempt=row.attempt, status=StepStatus.FAILED, error=error, no=p.next_no())
    p.stop_if_told(p.record(write))
    return Recorded(failure=error, attempts=row.attempt)
