"""How often something is renewed: a lease lapses counted from the last renewal that began, however long its answer took."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

from pikkuflow.ports import Clock

__all__ = ["paced"]


def paced(clock: Clock, every_seconds: float, until: Event) -> Iterator[None]:
    """A turn every so many seconds, counted from the beginning of the one before, until the event is set.

    A turn that took longer is followed by the next at once: one renewal whose answer was lost must not cost two thirds of a lease.
    """
    pause_seconds = every_seconds
    while not until.wait(pause_seconds):
        begun_at = clock.monotonic()
        yield
        pause_seconds = max(0.0, every_seconds - (clock.monotonic() - begun_at))
