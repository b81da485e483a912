"""How often what is held is renewed."""

from __future__ import annotations

from threading import Event

from pikkuflow.adapters.memory.clock import MovableClock
from pikkuflow.engine.pace import paced


class Turns(Event):
    """An event that nobody sets for a while: it notes what it was asked to wait for, and lets the clock go on instead."""

    def __init__(self, clock: MovableClock, most: int) -> None:
        super().__init__()
        self.clock, self.most = clock, most
        self.pauses: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Not set until the last turn."""
        assert timeout is not None
        self.pauses.append(timeout)
        self.clock.advance(timeout)
        return len(self.pauses) > self.most


def _begun(*took_seconds: float) -> list[float]:
    """When each turn begins, if they take so long and one is due every 10 s."""
    clock = MovableClock()
    turns = paced(clock, 10.0, Turns(clock, len(took_seconds)))
    begun = []
    for _, seconds in zip(turns, took_seconds, strict=False):
        begun.append(clock.monotonic())
        clock.advance(seconds)
    return begun


def test_turns_are_counted_from_where_the_one_before_began() -> None:
    """Design 3.1, "every third of its TTL": what a renewal takes does not make the next one later."""
    assert _begun(0.0, 3.0, 0.0) == [10.0, 20.0, 30.0]


def test_a_renewal_whose_answer_was_lost_is_followed_at_once() -> None:
    """Simulation, seed 217146: waiting for an answer and then a whole turn let a healthy pass lapse (30 s) after one lost answer."""
    assert _begun(10.0, 0.0, 25.0, 0.0) == [10.0, 20.0, 30.0, 55.0]
