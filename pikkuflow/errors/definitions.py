"""What an application got wrong: settings, definitions, values, and what is not registered."""

from __future__ import annotations

from pikkuflow.errors.root import PikkuFlowError

__all__ = [
    "DirectCallError",
    "DurationError",
    "PayloadError",
    "SettingError",
    "StepNameError",
    "TaskNotFound",
    "WorkflowDefinitionError",
    "WorkflowNotFound",
]


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
