"""A settled step as the body meets it: a value, or an exception."""

from __future__ import annotations

from typing import Any

from pikkuflow.domain.command import Recorded
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.errors import StepFailed, StepIgnored, StepLeaseExpired

__all__ = ["step_error", "value_of"]


def value_of(run_id: RunId, name: StepName, outcome: Recorded) -> Any:
    """What the step returned.

    Raises ``StepFailed`` when it has failed for good or was cancelled; ``StepIgnored`` when its task raised ``Ignore`` or ``Reject``;
    ``StepLeaseExpired`` when it lost its worker on its last attempt.
    """
    if outcome.failure is None:
        return outcome.value
    raise step_error(run_id, name, outcome.failure, outcome.attempts)


def step_error(run_id: RunId, name: StepName, failure: Failure, attempts: int) -> StepFailed:
    """The exception that stands for a step's failure."""
    kinds: dict[str | None, type[StepFailed]] = {kind.code: kind for kind in (StepIgnored, StepLeaseExpired)}
    times = "attempt" if attempts == 1 else "attempts"
    message = f"Step {name!r} of run {run_id} failed after {attempts} {times}: {failure.type}: {failure.message}"
    kind = kinds.get(failure.code, StepFailed)
    return kind(message, run_id, name, attempts, failure.type, failure.message)
