"""A world in memory: the real engine on the memory adapters, and a test that decides when messages arrive and how time passes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Final

from pikkuflow.adapters.memory import (
    MemoryDispatcher,
    MemoryHints,
    MemoryLeases,
    MemoryRunStore,
    MovableClock,
    SeededIds,
)
from pikkuflow.app import PikkuFlow
from pikkuflow.domain.duration import seconds_of
from pikkuflow.domain.ids import Holder
from pikkuflow.engine.execute_step import execute_step
from pikkuflow.engine.fire_timer import fire_due
from pikkuflow.engine.orchestrate import orchestrate
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.sweep import recover
from pikkuflow.errors import PikkuFlowError
from pikkuflow.testing.driving_hints import DrivingHints

__all__ = ["MemoryWorld", "in_memory"]

_MOST_ROUNDS: Final = 100_000
"""A workflow that goes on for ever ends its test, not the day."""

_PAST_SECONDS: Final = 0.001
"""A due time is passed, not met: fractions of a second are rounded on the way."""


class MemoryWorld:
    """Everything that pikkuflow would keep in databases and brokers, for one ``PikkuFlow`` and one test.

    ``clock``, ``store``, ``dispatcher`` and ``hints`` are the memory adapters: look at them, or make them fail (``dispatcher.is_down``).
    Waiting for a result works what there is to work, and moves the clock to what is due next.
    """

    def __init__(self, pikku: PikkuFlow, *, seed: int = 0) -> None:
        self.clock = MovableClock()
        self.store = MemoryRunStore(self.clock)
        self.dispatcher = MemoryDispatcher()
        self.hints: MemoryHints = DrivingHints(self.clock, self._step)
        self.runtime: Runtime = replace(
            pikku.compose(connections=1, patience_seconds=0.0),
            store=self.store,
            leases=MemoryLeases(self.clock),
            hints=self.hints,
            dispatcher=self.dispatcher,
            clock=self.clock,
            ids=SeededIds(seed),
            holder=lambda: Holder("test:1"),
            is_stopping=lambda: False,
            consumes=lambda _workflow: True,
            has_broker=True,
        )

    def work(self) -> int:
        """Deliver every message, and those that come of it, at this moment. Returns how many there were."""
        worked = 0
        while self.dispatcher.wakes or self.dispatcher.messages:
            for run in self.dispatcher.take_wakes():
                orchestrate(self.runtime, [run.id])
                worked += 1
            for steps in self.dispatcher.take_messages():
                named = [(step.name, step.attempt) for step in steps]
                execute_step(self.runtime, steps[0].run_id, named, steps[0].task, may_continue=True)
                worked += 1
            _refuse_for_ever(worked)
        return worked

    def advance(self, duration: float | timedelta | str) -> None:
        """Let time pass, working whatever becomes due on the way at its own moment.

        Raises ``DurationError`` when the duration cannot be read.
        """
        until = self.clock.monotonic() + seconds_of(duration, what="duration")
        self.work()
        while (ahead := self._next_due()) is not None and self.clock.monotonic() + ahead <= until:
            self.clock.advance(ahead + _PAST_SECONDS)
            fire_due(self.runtime)
            self.work()
        self.clock.advance(max(0.0, until - self.clock.monotonic()))

    def settle(self) -> None:
        """Work until nothing is left that would happen by itself, moving the clock from one due time to the next."""
        for _ in range(_MOST_ROUNDS):
            if not self._step():
                return
        _refuse_for_ever(_MOST_ROUNDS)

    def lose_messages(self) -> None:
        """Forget every message that is under way, as a broker does that was flushed."""
        self.dispatcher.lose_all()

    def sweep(self) -> None:
        """What beat would do: send again what was lost."""
        recover(self.runtime)

    def _step(self) -> bool:
        """One move of the world: messages first, else the next due time. False: nothing is left to happen."""
        if self.work():
            return True
        ahead = self._next_due()
        if ahead is None:
            return False
        self.clock.advance(ahead + _PAST_SECONDS)
        return bool(fire_due(self.runtime)) or self._next_due() is not None

    def _next_due(self) -> float | None:
        return self.hints.next_due_seconds() if isinstance(self.hints, DrivingHints) else None


@contextmanager
def in_memory(pikku: PikkuFlow, *, seed: int = 0) -> Iterator[MemoryWorld]:
    """Run the workflows of ``pikku`` in memory while the block runs.

    Args:
        pikku: the extension under test, bound to an app; its broker and database are not touched.
        seed: of ids and jitter: the same seed gives the same run ids.
    """
    world = MemoryWorld(pikku, seed=seed)
    with pikku.replaced(world.runtime):
        yield world


def _refuse_for_ever(worked: int) -> None:
    if worked >= _MOST_ROUNDS:
        raise PikkuFlowError(
            f"{worked} messages and no end: a workflow here goes on for ever.",
            hint="Advance the clock instead of settling.",
        )
