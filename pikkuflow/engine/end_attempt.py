"""Decide what an attempt's end means for its step: one rule for steps in place and dispatched ones (D2, D10, D21, D29)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pikkuflow.domain.failure import Failure
from pikkuflow.domain.graph_step import BRANCH
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.retry import RetryPolicy
from pikkuflow.domain.status import StepStatus
from pikkuflow.engine.describe_error import failure_of
from pikkuflow.engine.runtime import Runtime
from pikkuflow.errors import PayloadError, RunCancelled, StepIgnored
from pikkuflow.ports import Attempted, AttemptEnd

__all__ = ["Ending", "Tried", "ending_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """Which attempt ended, under which policy."""

    run_id: RunId
    step: StepName
    attempt: int
    retries: int
    retry_delay: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What is to be recorded: SUCCEEDED with ``result``, FAILED with ``error``, or PENDING: the next attempt in ``delay_seconds``.

    ``override`` is what the attempt said of what follows: of its next attempt, or the ``branch`` and the
    state of a graph's node.
    """

    status: StepStatus
    result: str | None = None
    error: Failure | None = None
    delay_seconds: float | None = None
    override: str | None = None
    branch: str | None = None

    @property
    def is_last(self) -> bool:
        """No attempt follows."""
        return self.status is not StepStatus.PENDING

    def answer_to(self, attempted: Attempted) -> bool:
        """What ``commit`` answers to the runner: no attempt follows; False also for a success whose result could not be stored."""
        is_refused = attempted.end is AttemptEnd.SUCCEEDED and self.status is not StepStatus.SUCCEEDED
        return self.is_last and not is_refused


def ending_of(rt: Runtime, tried: Tried, attempted: Attempted) -> Ending:
    """What the attempt's end means.

    A result that cannot be stored is a final failure whatever attempts remain: the work is done and must not be done again (design 6).
    """
    if attempted.end is AttemptEnd.SUCCEEDED:
        try:
            return Ending(
                status=StepStatus.SUCCEEDED,
                result=rt.codec.encode(attempted.value, what=f"result of step {tried.step!r}"),
                override=_said_text(rt, tried, attempted.said),
                branch=(attempted.said or {}).get(BRANCH),
            )
        except PayloadError as refused:
            return Ending(status=StepStatus.FAILED, error=failure_of(refused))
    error = attempted.error or RuntimeError("The attempt failed without an error.")
    if attempted.end is AttemptEnd.IGNORED:
        failure = failure_of(error)
        return Ending(
            status=StepStatus.FAILED,
            error=Failure(
                type=failure.type, message=failure.message, traceback=failure.traceback, code=StepIgnored.code
            ),
        )
    if attempted.end is AttemptEnd.GAVE_UP or _is_told_off(error, tried):
        return Ending(status=StepStatus.FAILED, error=failure_of(error))
    return _retried(rt, tried, attempted, error)


def _is_told_off(error: BaseException, tried: Tried) -> bool:
    """The step left because its run was stopped (``raise_if_cancelled``): no attempt will follow."""
    return isinstance(error, RunCancelled) and error.run_id == tried.run_id


def _retried(rt: Runtime, tried: Tried, attempted: Attempted, error: BaseException) -> Ending:
    policy = RetryPolicy(retries=tried.retries, delay=tried.retry_delay)
    delay = policy.decide(tried.attempt, rt.ids.jitter(), attempted.delay_seconds)
    if delay is None:
        return Ending(status=StepStatus.FAILED, error=failure_of(error))
    try:
        override = _override_text(rt, tried, attempted.override)
    except PayloadError as refused:
        return Ending(status=StepStatus.FAILED, error=failure_of(refused))
    return Ending(status=StepStatus.PENDING, error=failure_of(error), delay_seconds=delay, override=override)


def _override_text(rt: Runtime, tried: Tried, override: Mapping[str, Any] | None) -> str | None:
    if not override:
        return None
    return rt.codec.encode(dict(override), what=f"the changed arguments of step {tried.step!r}")


def _said_text(rt: Runtime, tried: Tried, said: Mapping[str, Any] | None) -> str | None:
    return rt.codec.encode(dict(said), what=f"the state that step {tried.step!r} keeps") if said else None
