"""What one pass over a body found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pikkuflow.replay.park import Parked

__all__ = ["Completed", "Failed", "Outcome", "ParkedOutcome"]


@dataclass(frozen=True, slots=True)
class Completed:
    """The body returned ``value``, and everything it submitted has settled."""

    value: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """The body raised ``error``, which still has its traceback. ``code`` is the run's, where the error's own says too little."""

    error: BaseException
    code: str | None = None


@dataclass(frozen=True, slots=True)
class ParkedOutcome:
    """The body was left; ``parked`` says why."""

    parked: Parked


Outcome = Completed | Failed | ParkedOutcome
