"""A clock that a test moves."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["MovableClock"]

_START: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)


class MovableClock:
    """A ``Clock`` that stands still until it is moved; ``sleep`` moves it instead of waiting.

    Parameters
    ----------
    start:
        The first ``now``; aware.
    """

    def __init__(self, start: datetime = _START) -> None:
        self._start = start
        self._passed = 0.0
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """The start plus what was moved since."""
        with self._lock:
            return self._start + timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        """Seconds moved since the start."""
        with self._lock:
            return self._passed

    def sleep(self, seconds: float) -> None:
        """Move the clock by that much, at once."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move the clock ahead; ``ValueError`` for a negative number of seconds, as time never goes back."""
        if seconds < 0:
            raise ValueError(f"a clock does not go back: {seconds}")
        with self._lock:
            self._passed += seconds
