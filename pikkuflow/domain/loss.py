"""The failures that a store writes by itself: what it says when work was lost (spec 5.1, design 2). One wording for every store."""

from __future__ import annotations

from pikkuflow.domain.failure import Failure
from pikkuflow.domain.ids import StepName
from pikkuflow.domain.status import SuspendCode
from pikkuflow.domain.step import Step

__all__ = [
    "child_ended",
    "lease_expired",
    "lost_and_stopped",
    "message_expired",
    "overdue",
    "passes_lost",
    "run_timed_out",
    "timed_out",
]


def lease_expired(step: StepName, attempts: int) -> Failure:
    """A step whose claim lapsed on its last attempt (spec 5.1, T6.6)."""
    return Failure(
        type="pikkuflow.errors.StepLeaseExpired",
        message=f"Step {step!r} lost its worker: its lease expired on attempt {attempts} and no attempt is left.",
        code="STEP_LEASE_EXPIRED",
    )


def lost_and_stopped(row: Step) -> Failure:
    """A step whose worker is gone while its run is undone: what retries it has are not used (design 3.7)."""
    if row.attempt >= row.attempts_allowed:
        return lease_expired(row.name, row.attempt)
    text = f"Step {row.name!r} lost its worker on attempt {row.attempt}; its run was stopped, so it is not tried again."
    return Failure(type="pikkuflow.errors.StepLeaseExpired", message=text, code="STEP_LEASE_EXPIRED")


def message_expired(step: StepName) -> Failure:
    """A dispatched step that no worker took before its signature's ``expires`` (design 1)."""
    return Failure(
        type="pikkuflow.errors.StepFailed",
        message=f"Step {step!r} expired before a worker took it.",
        code="STEP_EXPIRED",
    )


def timed_out(step: StepName, seconds: float, attempt: int) -> Failure:
    """An attempt that took longer than the step's ``timeout``; what it still comes to is refused."""
    text = f"Attempt {attempt} of step {step!r} took longer than its timeout of {seconds:g} s."
    return Failure(type="TimeoutError", message=text, code="STEP_TIMEOUT")


def run_timed_out(seconds: float | None) -> Failure:
    """A run that took longer than its own ``timeout`` (issue D, Build 7); what it did is undone."""
    return Failure(
        type="TimeoutError",
        message=f"The run took longer than its timeout of {seconds or 0.0:g} s.",
        code="RUN_TIMEOUT",
    )


def overdue(row: Step) -> Failure:
    """Why a claimed row is overdue: its attempt took too long, or gave no sign of life."""
    if not row.is_silent:
        return timed_out(row.name, row.timeout_seconds or 0.0, row.attempt)
    text = f"Attempt {row.attempt} of step {row.name!r} gave no heartbeat for {row.heartbeat_seconds or 0.0:g} s."
    return Failure(type="TimeoutError", message=text, code="HEARTBEAT_TIMEOUT")


def passes_lost(passes: int) -> Failure:
    """A run that lost too many passes in a row (design 2)."""
    return Failure(
        type="pikkuflow.errors.PikkuFlowError",
        message=f"{passes} passes in a row ended without closing and without a new outcome; the body may take its process down.",
        code=SuspendCode.PASS_LOST,
    )


def child_ended(run_id: str, status: str) -> Failure:
    """A child run that ended without a result and without an error of its own."""
    return Failure(
        type="pikkuflow.errors.StepFailed",
        message=f"The child run {run_id!r} ended {status}.",
        code="STEP_FAILED",
    )
