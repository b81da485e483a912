"""The machine's clock (``Clock`` port)."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from pikkuflow.adapters.system_clock import SystemClock


def test_now_is_aware_and_now() -> None:
    """Aware wall-clock time."""
    now = SystemClock().now()

    assert now.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - now) < timedelta(seconds=5)


def test_sleep_takes_at_least_the_time_asked_and_nothing_for_none() -> None:
    """A delay that is over already is no error."""
    clock = SystemClock()
    began = clock.monotonic()
    clock.sleep(-1)
    clock.sleep(0)
    clock.sleep(0.01)

    assert time.monotonic() - began >= 0.01
