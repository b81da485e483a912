"""Hints in memory: due times by a clock that a test moves, and announcements between threads."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from pikkuflow.domain.act import DueRun
from pikkuflow.domain.ids import RunId
from pikkuflow.ports import Clock

__all__ = ["MemoryHints", "MemoryWatch"]

_SLICE_SECONDS: Final = 0.5
_YIELD_SECONDS: Final = 0.002


class MemoryHints:
    """``Hints`` over a dictionary.

    ``is_down`` set to True makes every call answer as an outage does: nothing left, nothing due, nothing announced.
    """

    def __init__(self, clock: Clock) -> None:
        self.is_down = False
        self._clock = clock
        self._due: dict[RunId, float] = {}
        self._announcements: Counter[RunId] = Counter()
        self._unheard: set[RunId] = set()
        self._changed = threading.Condition()

    def leave(self, run_id: RunId, in_seconds: float) -> None:
        """Ask that the run be woken in that time; one hint a run, the earlier one stays (design 4)."""
        if self.is_down:
            return
        at = self._clock.now().timestamp() + in_seconds
        with self._changed:
            self._due[run_id] = min(at, self._due.get(run_id, at))

    def leave_again(self, due: Sequence[DueRun]) -> None:
        """Leave hints that may have been lost."""
        for one in due:
            self.leave(one.run_id, one.in_seconds)

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
            self._announcements[run_id] += 1
            self._unheard.add(run_id)
            self._changed.notify_all()

    @contextmanager
    def watching(self, run_id: RunId) -> Iterator[MemoryWatch]:
        """Listen from entering until leaving."""
        with self._changed:
            heard = self._announcements[run_id]
        yield MemoryWatch(self, run_id, heard)

    def wait(self, run_id: RunId, seconds: float) -> bool:
        """One ``watching`` with one ``wait``; here the last announcement counts until someone waited, so that one thread can do both."""
        with self._changed:
            heard = self._announcements[run_id] - (run_id in self._unheard)
        return MemoryWatch(self, run_id, heard).wait(seconds)

    def wait_past(self, run_id: RunId, heard: int, seconds: float) -> int:
        """The number of announcements, once it is above ``heard`` or the clock went on by the given time (at most 0.5 s)."""
        with self._changed:
            # Other threads get a moment of real time, for they may be about to announce; a test's clock is then moved, not waited for.
            self._changed.wait_for(lambda: self._announcements[run_id] > heard, timeout=_YIELD_SECONDS)
            now = self._announcements[run_id]
            if now > heard and not self.is_down:
                self._unheard.discard(run_id)
                return now
        self._clock.sleep(min(seconds, _SLICE_SECONDS))
        return heard

    def due_in_seconds(self, run_id: RunId) -> float | None:
        """How far ahead the run's hint is; None when there is none. For tests."""
        with self._changed:
            at = self._due.get(run_id)
        return None if at is None else at - self._clock.now().timestamp()


class MemoryWatch:
    """An open ear for one run (``Watch`` port): it has heard the announcements up to a number."""

    def __init__(self, hints: MemoryHints, run_id: RunId, heard: int) -> None:
        self._hints = hints
        self._run_id = run_id
        self._heard = heard

    def wait(self, seconds: float) -> bool:
        """True: there was an announcement. False: the clock went on by the given time (at most 0.5 s) without one."""
        now = self._hints.wait_past(self._run_id, self._heard, seconds)
        heard, self._heard = self._heard, now
        return now > heard
