"""End what takes longer than it may, whatever hangs: an attempt (``timeout=``, ``heartbeat_timeout=``), or a wait for a worker."""

from __future__ import annotations

from dataclasses import replace

from pikkuflow.domain import loss
from pikkuflow.domain.act import EndedAttempt, StepWrite
from pikkuflow.domain.command import Recorded, Waiting
from pikkuflow.domain.failure import Failure
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
        # No claim can take it from its time on, so that nothing is overwritten (issue D, Build 7).
        return _end(p, row, _failed(p, row, loss.message_expired(row.name)))
    error = loss.overdue(row)
    delay = RetryPolicy(retries=row.retries, delay=row.retry_delay).decide(row.attempt, p.rt.ids.jitter(), None)
    failed = _failed(p, row, error)
    if delay is None:
        return _end(p, row, failed)
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


def _failed(p: OpenPass, row: Step, error: Failure) -> StepWrite:
    step = step_of_row(row, place=Place.QUEUE)
    return StepWrite(step=step, attempt=row.attempt, status=StepStatus.FAILED, error=error, no=p.next_no())


def _end(p: OpenPass, row: Step, failed: StepWrite) -> Recorded:
    p.stop_if_told(p.record(failed))
    # The fan may be whole by this, though none of its members was news.
    p.is_behind = p.is_behind or any(_is_later(other, row, failed.no or 0) for other in p.history.steps)
    return Recorded(failure=failed.error, attempts=row.attempt)


def _is_later(other: Step, row: Step, no: int) -> bool:
    """Whether another member of the same fan settled by a number beyond that one."""
    return row.fan_id is not None and other.fan_id == row.fan_id and (other.settled_no or 0) > no
