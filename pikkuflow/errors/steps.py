"""What becomes of a step."""

from __future__ import annotations

from pikkuflow.errors.root import PikkuFlowError

__all__ = ["StepFailed", "StepFunctionMismatch", "StepIgnored", "StepLeaseExpired", "StepSuperseded"]


class StepFailed(PikkuFlowError):
    """A step failed for good; raised in the body at the call that asked for its result.

    ``run_id``, ``step`` and ``attempts`` say which; ``error_type`` and ``error_message`` are the task's own error by name and text.
    """

    code = "STEP_FAILED"
    status = 422

    def __init__(
        self,
        message: str,
        run_id: str = "",
        step: str = "",
        attempts: int = 1,
        error_type: str = "",
        error_message: str = "",
        *,
        hint: str = "",
    ) -> None:
        super().__init__(message, run_id, step, attempts, error_type, error_message, hint=hint)
        self.run_id = run_id
        self.step = step
        self.attempts = attempts
        self.error_type = error_type
        self.error_message = error_message


class StepIgnored(StepFailed):
    """The step's task raised ``Ignore`` or ``Reject(requeue=False)``: it has no result to go on with (design 1)."""

    code = "STEP_IGNORED"


class StepLeaseExpired(StepFailed):
    """The step lost its worker and has no attempts left (spec 5.1, 10.6)."""

    code = "STEP_LEASE_EXPIRED"
    status = 500

    @property
    def public_message(self) -> str:
        """The text without names of the inside."""
        return "A step lost its worker and has no attempts left."


class StepSuperseded(PikkuFlowError):
    """A late writer was refused: another attempt owns the step (spec 5.4)."""

    code = "STEP_SUPERSEDED"
    status = 409

    def __init__(self, message: str, step_id: str = "", attempt: int = 0, *, hint: str = "") -> None:
        super().__init__(message, step_id, attempt, hint=hint)
        self.step_id = step_id
        self.attempt = attempt


class StepFunctionMismatch(PikkuFlowError):
    """A step message names another task than the one recorded at dispatch; nothing was written (spec 5.1, 12.4)."""

    code = "STEP_FUNCTION_MISMATCH"
    status = 409
