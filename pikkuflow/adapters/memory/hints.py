"""Hints in memory: due times by a clock that a test moves, and announcements between threads."""

from __future__ import annotations

import threading
from typing import Final

from pikkuflow.domain.ids import RunId
from pikkuflow.ports import Clock

__all__ = ["MemoryHints"]

_SLICE_SECONDS: Final = 0.5
_YIELD_SECONDS: Final = 0.002


class MemoryHints:
    """``Hints`` over a dictionary.

    An announcement is kept until someone waited for it, so a waiter cannot miss it. ``is_down`` set to True makes every call answer as an
    outage does: nothing left, nothing due, nothing announced.
    """

    def __init__(self, clock: Clock) -> None:
        self.is_down = False
        self._clock = clock
        self._due: dict[RunId, float] = {}
        self._announced: set[RunId] = set()
        self._changed = threading.Condition()

    def leave(self, run_id: RunId, in_seconds: float) -> None:
        """Ask that the run be woken in that time; one hint a run, the earlier one stays (design 4)."""
        if self.is_down:
            return
        at = self._clock.now().timestamp() + in_seconds
        with self._changed:
            self._due[run_id] = min(at, self._due.get(run_id, at))

    def pop_due(self, limit: int) -> tuple[RunId, ...]:
        """Take the runs whose time has come; each is given to one caller."""
        if self.is_down:
            return ()
        now = self._clock.now().timestamp()
        with self._changed:
            due = sorted((at, run_id) for run_id, at in self._due.items() if at <= now)[:limit]
            for _, run_id in due:
                del self._due[run_id]
        return tuple(run_id for _, run_id in due)

    def announce(self, run_id: RunId) -> None:
        """Tell waiters that the run has moved."""
        if self.is_down:
            return
        with self._changed:
            self._announced.add(run_id)
            self._changed.notify_all()

    def wait(self, run_id: RunId, seconds: float) -> bool:
        """True: there was an announcement. False: the clock went on by the given time (at most 0.5 s) without one."""
        with self._changed:
            # Other threads get a moment of real time, for they may be about to announce; a test's clock is then moved, not waited for.
            self._changed.wait_for(lambda: run_id in self._announced, timeout=_YIELD_SECONDS)
            if run_id in self._announced and not self.is_down:
                self._announced.discard(run_id)
                return True
        self._clock.sleep(min(seconds, _SLICE_SECONDS))
        return False

    def due_in_seconds(self, run_id: RunId) -> float | None:
        """How far ahead the run's hint is; None when there is none. For tests."""
        with self._changed:
            at = self._due.get(run_id)
        return None if at is None else at - self._clock.now().timestamp()
