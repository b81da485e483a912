"""What a caller of a run meets."""

from __future__ import annotations

from pikkuflow.errors.root import PikkuFlowError

__all__ = [
    "ApprovalForbidden",
    "ApprovalResolved",
    "GateNotFound",
    "ResultTimeout",
    "RunCancelled",
    "RunExists",
    "RunFailed",
    "RunForbidden",
    "RunNotFound",
    "RunNotSuspended",
    "RunSettled",
    "SignalTimeout",
]


class _RunError(PikkuFlowError):
    def __init__(self, message: str, run_id: str = "", *, hint: str = "") -> None:
        super().__init__(message, run_id, hint=hint)
        self.run_id = run_id


class RunNotFound(_RunError):
    """No run has that id."""

    code = "RUN_NOT_FOUND"
    status = 404


class RunExists(_RunError):
    """The run id is taken by a run of another workflow or with another input."""

    code = "RUN_EXISTS"
    status = 409


class RunForbidden(_RunError):
    """The run belongs to another owner (spec 12.1)."""

    code = "RUN_FORBIDDEN"
    status = 403


class RunFailed(_RunError):
    """The run failed; the message is the run's own error (spec 10.3)."""

    code = "RUN_FAILED"
    status = 422


class RunCancelled(_RunError):
    """The run was cancelled (spec 10.3)."""

    code = "RUN_CANCELLED"
    status = 409


class ResultTimeout(_RunError):
    """The run had not ended when the time given to ``result`` was over; the run goes on."""

    code = "RESULT_TIMEOUT"
    status = 408


class RunSettled(_RunError):
    """The run has ended, so no signal, decision, resume or cancel reaches it; nothing was changed."""

    code = "RUN_SETTLED"
    status = 409


class RunNotSuspended(_RunError):
    """The run goes on by itself, so there is nothing to resume; nothing was changed."""

    code = "RUN_NOT_SUSPENDED"
    status = 409


class _GateError(_RunError):
    def __init__(self, message: str, run_id: str = "", reason: str = "", detail: str = "", *, hint: str = "") -> None:
        PikkuFlowError.__init__(self, message, run_id, reason, detail, hint=hint)
        self.run_id = run_id
        self.reason = reason
        self.detail = detail


class GateNotFound(_GateError):
    """The run does not wait for that reason; nothing was changed."""

    code = "GATE_NOT_FOUND"
    status = 404


class SignalTimeout(_GateError):
    """No signal came in the time that ``wf.wait_for`` was given; ``reason`` is the signal's name. A replay raises it again at once."""

    code = "SIGNAL_TIMEOUT"
    status = 408


class ApprovalResolved(_GateError):
    """The approval was decided before, or is over (spec 2.7): ``reason`` and ``outcome`` say which and how."""

    code = "APPROVAL_RESOLVED"
    status = 409

    @property
    def outcome(self) -> str:
        """``decided``, ``expired``, ``cancelled``, or ``judging`` while an earlier decision is looked at."""
        return self.detail


class ApprovalForbidden(_GateError):
    """The approval's policy does not admit this decider (spec 2.7): ``reason`` and ``detail`` say which and why."""

    code = "APPROVAL_FORBIDDEN"
    status = 403
