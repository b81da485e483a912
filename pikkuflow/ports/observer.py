"""Being told what happened."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pikkuflow.domain.ids import RunId, StepName

__all__ = ["Observer", "PassEnded", "PassOutcome", "StepLost"]


class PassOutcome(StrEnum):
    """How a pass ended, for observers (D31)."""

    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PassEnded:
    """One per pass."""

    run_id: RunId
    workflow: str
    outcome: PassOutcome
    steps_worked: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLost:
    """An attempt lost its worker or pass (spec 5.1 warnings). ``exhausted``: no attempt is left."""

    run_id: RunId
    step: StepName
    attempt: int
    exhausted: bool


class Observer(Protocol):
    """Told what happened; whatever it raises is logged and changes nothing (I12)."""

    def pass_ended(self, event: PassEnded) -> None:
        """A pass ended."""
        ...

    def step_lost(self, event: StepLost) -> None:
        """An attempt was lost and is worked again, or was the last."""
        ...

    def warn(self, message: str, *, run_id: RunId | None = None) -> None:
        """Something a person should know; carries the run's trace."""
        ...
