"""Time, randomness and the form of payloads."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol

__all__ = ["Clock", "Codec", "Ids"]


class Clock(Protocol):
    """The process's own time, for waits and budgets; never for what is stored."""

    def now(self) -> datetime:
        """Aware wall-clock time."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait (a test's clock moves instead)."""
        ...


class Ids(Protocol):
    """Randomness: ids and jitter."""

    def new_id(self) -> str:
        """A fresh UUID-like text."""
        ...

    def jitter(self) -> float:
        """A number from 0 to 1."""
        ...


class Codec(Protocol):
    """Payloads to JSON text and back (design 6)."""

    def encode(self, value: Any, *, what: str) -> str:
        """Text of the value; ``what`` names it in errors (``result of step 'x'``).

        Raises ``PayloadError`` when it cannot be stored as it is (lock object, set, NaN) or is larger than the limit. Anything else that is
        raised is the codec hook's, and over when that can do its work again.
        """
        ...

    def decode(self, text: str) -> Any:
        """The value of a text that ``encode`` made. Raises as ``encode`` does."""
        ...
