"""What a compensation is told about the step that it undoes (D20)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Undo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """The first argument of a compensation: how the step ended that it undoes.

    ``ok`` is True when the step succeeded, and ``output`` is what it returned then. Otherwise ``error`` is the failure's message and
    ``error_type`` the qualified name of its exception; the step may have done its work, in part or not at all. ``step`` is its name.
    """

    ok: bool
    output: Any
    error: str | None
    error_type: str | None
    step: str
