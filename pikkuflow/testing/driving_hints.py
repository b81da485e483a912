"""Hints that drive: who waits for an announcement lets the world go on meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from pikkuflow.adapters.memory import MemoryHints
from pikkuflow.adapters.memory.hints import MemoryWatch
from pikkuflow.domain.ids import RunId
from pikkuflow.errors import PikkuFlowError
from pikkuflow.ports import Clock

__all__ = ["DrivingHints"]

_IN_VAIN: Final = 10_000
"""Looks at a world that stands still, before whoever looks is told that they wait for nothing."""


class DrivingHints(MemoryHints):
    """``move`` makes one move of the world, and answers whether there was one to make."""

    def __init__(self, clock: Clock, move: Callable[[], bool]) -> None:
        super().__init__(clock)
        self._time = clock
        self._move = move
        self._left: dict[RunId, float] = {}
        self._in_vain = 0

    def move(self, run_id: RunId) -> bool:
        """Let the world make one move for someone who waits for that run.

        Raises ``PikkuFlowError`` when it has had nothing to do for so long that it never will.
        """
        self._in_vain = 0 if self._move() else self._in_vain + 1
        if self._in_vain >= _IN_VAIN:
            self._in_vain = 0
            raise PikkuFlowError(
                f"Run {run_id!r} has not ended, and nothing is left to happen in this world.",
                hint="Give it what it waits for first: run.resume(), run.signal() or run.approve(); or result(timeout=…).",
            )
        return self._in_vain == 0

    def leave(self, run_id: RunId, in_seconds: float) -> None:
        """As ``MemoryHints``; the due time is remembered, so that the clock can be moved to it."""
        super().leave(run_id, in_seconds)
        if not self.is_down:
            at = self._time.monotonic() + in_seconds
            self._left[run_id] = min(at, self._left.get(run_id, at))

    def pop_due(self, limit: int) -> tuple[RunId, ...]:
        """As ``MemoryHints``."""
        due = super().pop_due(limit)
        for run_id in due:
            self._left.pop(run_id, None)
        return due

    def next_due_seconds(self) -> float | None:
        """How far ahead the next hint is, 0 when it is due; None when there is none."""
        return max(0.0, min(self._left.values()) - self._time.monotonic()) if self._left else None

    @contextmanager
    def watching(self, run_id: RunId) -> Iterator[MemoryWatch]:
        """An ear that lets the world move while it waits, whatever run it is about."""
        yield _Ear(self, run_id, self.move, self._time)

    def wait(self, run_id: RunId, seconds: float) -> bool:
        """Let the world make one move, whatever run it is about."""
        return _Ear(self, run_id, self.move, self._time).wait(seconds)


class _Ear(MemoryWatch):
    def __init__(self, hints: MemoryHints, run_id: RunId, move: Callable[[RunId], bool], clock: Clock) -> None:
        super().__init__(hints, run_id, 0)
        self._run_id = run_id
        self._move = move
        self._clock = clock

    def wait(self, seconds: float) -> bool:
        """True when something moved. When nothing is left to happen the clock is moved by all of the time, so that timeouts come."""
        if self._move(self._run_id):
            return True
        self._clock.sleep(seconds)
        return False
