"""Hints, which make something quick, and messages to the broker."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from pikkuflow.domain.act import DueRun, RunRef, StepMessage
from pikkuflow.domain.ids import RunId

__all__ = ["Dispatcher", "Hints", "Watch"]


class Hints(Protocol):
    """Best-effort speed: nothing depends on a hint. No method raises on an outage; it logs once and returns the empty answer."""

    def leave(self, run_id: RunId, in_seconds: float) -> None:
        """Ask that the run be woken in that time; one hint a run, the earlier one stays (design 4)."""
        ...

    def leave_again(self, due: Sequence[DueRun]) -> None:
        """Leave hints that may have been lost, in one round trip; a service that cannot lose any does nothing (design 3.8)."""
        ...

    def pop_due(self, limit: int) -> tuple[RunId, ...]:
        """Take the runs whose time has come, by the service's clock; each is given to one caller."""
        ...

    def announce(self, run_id: RunId) -> None:
        """Tell waiters that the run has moved (settled, suspended)."""
        ...

    def watching(self, run_id: RunId) -> AbstractContextManager[Watch]:
        """Listen from the moment of entering until leaving.

        Nothing is missed in this order: enter, read the store, ``wait``, read again, and so on. A run that is settled already needs no
        watch: read once before entering.
        """
        ...

    def wait(self, run_id: RunId, seconds: float) -> bool:
        """One ``watching(run_id)`` with one ``wait(seconds)``: for a caller who looks again anyway, and may be late by that much."""
        ...


class Watch(Protocol):
    """An open ear for one run (``Hints.watching``)."""

    def wait(self, seconds: float) -> bool:
        """Wait at most that long for an announcement made since entering or since the last True. True: there was one, or may have been.

        A service without announcements, or one that is away, waits 0.5 s at most and answers False: look again.
        """
        ...


class Dispatcher(Protocol):
    """Hands messages to the broker. Messages carry ids only (design 7). Raises ``DispatchError`` when the broker does not take them."""

    def wake(self, runs: Sequence[RunRef], *, at_most: int | None = None) -> None:
        """Ask for a pass over each run: few messages, grouped by the queue of the workflow; ``at_most`` so many runs in each."""
        ...

    def send_steps(self, messages: Sequence[StepMessage], *, chunk: int = 1) -> None:
        """Send step messages, pipelined; ``chunk`` members of the same task and route travel in one message."""
        ...
