"""What every error of pikkuflow has."""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = ["PikkuFlowError"]


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
