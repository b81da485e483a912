"""What becomes of a run whose workflow has changed."""

from __future__ import annotations

from pikkuflow.errors.root import PikkuFlowError

__all__ = ["VersionConflict", "VersionNotFound"]


class _VersionError(PikkuFlowError):
    def __init__(self, message: str, workflow: str = "", version: str = "", *, hint: str = "") -> None:
        super().__init__(message, workflow, version, hint=hint)
        self.workflow = workflow
        self.version = version


class VersionConflict(_VersionError):
    """The body no longer makes the calls that were recorded (D17)."""

    code = "VERSION_CONFLICT"
    status = 409


class VersionNotFound(_VersionError):
    """The graph that the run was started with is not the one that is loaded, and was never stored (spec 3.7)."""

    code = "VERSION_NOT_FOUND"
    status = 404
