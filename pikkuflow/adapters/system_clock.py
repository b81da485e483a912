"""The process's own time (``Clock`` port)."""

from __future__ import annotations

import time
from datetime import UTC, datetime

__all__ = ["SystemClock"]


class SystemClock:
    """The clock of the machine."""

    __slots__ = ()

    def now(self) -> datetime:
        """Aware wall-clock time, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean something."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait that many seconds; nothing at all when it is not positive."""
        if seconds > 0:
            time.sleep(seconds)
