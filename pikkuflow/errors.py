"""Every exception of pikkuflow.

    PikkuFlowError                  code, hint, status, public_message
    ├── SettingError                a setting is unknown or impossible
    ├── DurationError               a duration cannot be read
    ├── StepNameError               a step's name is no text, or is reserved
    ├── PayloadError                an argument, a result or a state value cannot be stored
    ├── TaskNotFound                no such Celery task on this worker
    ├── WorkflowNotFound      404   no such workflow here
    ├── WorkflowDefinitionError     a workflow function or option that cannot work
    ├── DirectCallError             a workflow called as a function
    ├── RunNotFound           404   no such run
    ├── RunExists             409   the run id is taken by another input
    ├── RunForbidden          403   the run belongs to someone else
    ├── RunFailed             422   the run ended failed, compensated or with a stuck compensation
    ├── RunCancelled          409   the run was cancelled
    ├── ResultTimeout         408   the run has not ended in the time given
    ├── RunSettled            409   the run has ended: nothing can be asked of it any more
    ├── RunNotSuspended       409   there is nothing to resume
    ├── GateNotFound          404   the run does not wait for that reason
    ├── SignalTimeout         408   no signal came in the time given
    ├── ApprovalResolved      409   the approval is decided already
    ├── ApprovalForbidden     403   the approval's policy refuses this decider
    ├── StepFailed            422   a step failed and has no attempts left
    │   ├── StepIgnored             its task raised Ignore or Reject
    │   └── StepLeaseExpired  500   its worker was lost and no attempt is left
    ├── StepSuperseded        409   another attempt owns the step
    ├── StepFunctionMismatch  409   a message names another task than the one recorded
    ├── VersionConflict       409   the body no longer makes the calls that were recorded
    ├── LeaseTaken                  someone else holds the lease
    ├── LeaseLost                   the lease was lost while it was needed
    ├── NoLeaseService              the engine was composed without leases
    ├── NoBroker                    a run needs a broker and none is configured
    ├── DispatchError               a message could not be handed to the broker
    ├── StoreUnavailable      503   the database does not answer
    └── SchemaOutdated              the database's schema is older than this code

Every error passes its arguments whole to ``super().__init__``, so it pickles and survives Celery's transport. ``status`` is the
HTTP-like number of spec 10.6 where there is one. ``hint`` says what to do.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "ApprovalForbidden",
    "ApprovalResolved",
    "DirectCallError",
    "DispatchError",
    "DurationError",
    "GateNotFound",
    "LeaseLost",
    "LeaseTaken",
    "NoBroker",
    "NoLeaseService",
    "PayloadError",
    "PikkuFlowError",
    "ResultTimeout",
    "RunCancelled",
    "RunExists",
    "RunFailed",
    "RunForbidden",
    "RunNotFound",
    "RunNotSuspended",
    "RunSettled",
    "SchemaOutdated",
    "SettingError",
    "SignalTimeout",
    "StepFailed",
    "StepFunctionMismatch",
    "StepIgnored",
    "StepLeaseExpired",
    "StepNameError",
    "StepSuperseded",
    "StoreUnavailable",
    "TaskNotFound",
    "VersionConflict",
    "WorkflowDefinitionError",
    "WorkflowNotFound",
]


class PikkuFlowError(Exception):
    """Something pikkuflow refuses or could not do.

    Parameters
    ----------
    message:
        What happened, for a developer.
    hint:
        What to do about it; empty when there is nothing to add.
    """

    code: ClassVar[str] = "PIKKUFLOW_ERROR"
    status: ClassVar[int | None] = None

    def __init__(self, message: str, *more: Any, hint: str = "") -> None:
        super().__init__(message, *more)
        self.message = message
        self.hint = hint

    @property
    def public_message(self) -> str:
        """The text that may be shown to a caller who is not a developer of the application."""
        return self.message

    def __str__(self) -> str:
        if not self.hint:
            return self.message
        stop = "" if self.message.endswith((".", "!", "?", ":")) else "."
        return f"{self.message}{stop} {self.hint}"


class SettingError(PikkuFlowError):
    """A ``pikkuflow_*`` setting is unknown or has an impossible value."""

    code = "SETTING_ERROR"


class DurationError(PikkuFlowError):
    """A duration is no number of seconds, ``timedelta`` or text such as ``"10s"`` (spec 2.5, D28)."""

    code = "DURATION_ERROR"


class StepNameError(PikkuFlowError):
    """A step's name is not text, or has a shape kept for the engine (design 1, spec 1.2)."""

    code = "STEP_NAME_ERROR"


class PayloadError(PikkuFlowError):
    """A value cannot be stored as JSON, or is larger than ``pikkuflow_max_payload_bytes`` (design 6)."""

    code = "PAYLOAD_ERROR"


class TaskNotFound(PikkuFlowError):
    """The Celery task of a step is not registered on the worker that met it (D5)."""

    code = "TASK_NOT_FOUND"

    def __init__(self, message: str, task: str = "", *, hint: str = "") -> None:
        super().__init__(message, task, hint=hint)
        self.task = task


class WorkflowNotFound(PikkuFlowError):
    """No workflow of that name is registered here."""

    code = "WORKFLOW_NOT_FOUND"
    status = 404

    def __init__(self, message: str, workflow: str = "", *, hint: str = "") -> None:
        super().__init__(message, workflow, hint=hint)
        self.workflow = workflow


class WorkflowDefinitionError(PikkuFlowError):
    """A workflow was defined in a way that cannot work: a generator, a coroutine, a bad option."""

    code = "WORKFLOW_DEFINITION_ERROR"


class DirectCallError(PikkuFlowError):
    """A workflow was called as a function; use ``start`` or ``run_inline`` (design 1)."""

    code = "DIRECT_CALL"


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


class VersionConflict(PikkuFlowError):
    """The body no longer makes the calls that were recorded (D17)."""

    code = "VERSION_CONFLICT"
    status = 409

    def __init__(self, message: str, workflow: str = "", version: str = "", *, hint: str = "") -> None:
        super().__init__(message, workflow, version, hint=hint)
        self.workflow = workflow
        self.version = version


class _LeaseError(PikkuFlowError):
    def __init__(self, message: str, key: str = "", *, hint: str = "") -> None:
        super().__init__(message, key, hint=hint)
        self.key = key


class LeaseTaken(_LeaseError):
    """Someone else holds the lease; nothing was done (spec 6.1)."""

    code = "LEASE_TAKEN"


class LeaseLost(_LeaseError):
    """The lease was lost, or nobody can vouch for it (spec 6.1)."""

    code = "LEASE_LOST"


class NoLeaseService(PikkuFlowError):
    """The engine was composed without leases, so mutual exclusion is impossible (spec 6.2)."""

    code = "NO_LEASE_SERVICE"


class NoBroker(PikkuFlowError):
    """Neither configuration nor environment names a broker (D26)."""

    code = "NO_BROKER"


class DispatchError(PikkuFlowError):
    """A message could not be handed to the broker; the row stays and a sweep sends it (D21)."""

    code = "DISPATCH_ERROR"


class StoreUnavailable(PikkuFlowError):
    """The database did not answer within the patience of this process; nothing is known to be lost."""

    code = "STORE_UNAVAILABLE"
    status = 503


class SchemaOutdated(PikkuFlowError):
    """The database's schema is older than this code; the hint has the command to run."""

    code = "SCHEMA_OUTDATED"
