"""A failure as data: what is stored of an exception (spec 9.2, 16.7)."""

from __future__ import annotations

import json
from dataclasses import dataclass

__all__ = ["Failure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An exception that can be stored and shown.

    ``type`` is the exception's qualified name, ``message`` its text, ``traceback`` the formatted trace (or None when it was expected),
    ``code`` a machine-readable reason where there is one (``StepLeaseExpired.code``, ``TASK_NOT_FOUND`` …).
    """

    type: str
    message: str
    traceback: str | None = None
    code: str | None = None

    def to_json(self) -> str:
        """The text that the ``error`` columns hold."""
        fields = {"name": self.type, "message": self.message, "stack": self.traceback, "code": self.code}
        return json.dumps({key: value for key, value in fields.items() if value is not None})

    @classmethod
    def from_json(cls, text: str) -> Failure:
        """Read an ``error`` column; a missing message becomes ``Unknown error`` (spec 10.1)."""
        fields = json.loads(text)
        return cls(
            type=fields.get("name") or "Error",
            message=fields.get("message") or "Unknown error",
            traceback=fields.get("stack"),
            code=fields.get("code"),
        )
