"""Do what is due while a step works (design 2).

Its start is recorded once it has worked for a while, so that long steps are visible, and outcomes of quick steps before it are written once
they have been kept long enough.

A short step pays two dictionary writes for this. One daemon thread in each process looks at what is being worked; it sleeps while there is
nothing. A start that arrives after its outcome is refused by the store, so nothing has to be waited for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from threading import Event, Lock, Thread
from typing import Final

__all__ = ["WATCH", "StartWatch"]

_SHORTEST_LOOK_SECONDS: Final = 0.005
_LOOKS_BEFORE_REST: Final = 20
"""Empty looks after which the thread sleeps until the next step."""


@dataclass(frozen=True, slots=True)
class _Watched:
    is_due: Callable[[], bool]
    record: Callable[[], None]


class StartWatch:
    """What is being worked in this process, and what is to be done about it in a while."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._watched: dict[int, _Watched] = {}
        self._keys = count()
        self._busy = Event()
        self._pause = Event()
        self._lock = Lock()
        self._thread: Thread | None = None
        self._look_seconds = 1.0

    def begin(self, is_due: Callable[[], bool], record: Callable[[], None], *, after_seconds: float) -> int:
        """Watch an attempt. ``record`` is called once, from the watching thread, when ``is_due``; it must not raise."""
        key = next(self._keys)
        self._watched[key] = _Watched(is_due, record)
        look_seconds = max(_SHORTEST_LOOK_SECONDS, after_seconds / 2)
        if look_seconds < self._look_seconds:
            self._look_seconds = look_seconds
            self._pause.set()
        if not self._busy.is_set():
            self._rouse()
        return key

    def end(self, key: int) -> None:
        """The attempt has ended, or what was to be done is done."""
        self._watched.pop(key, None)

    def look(self) -> None:
        """Record what is due; the thread does this by itself."""
        for key, watched in list(self._watched.items()):
            if watched.is_due() and self._watched.pop(key, None) is not None:
                watched.record()

    def _rouse(self) -> None:
        with self._lock:
            self._busy.set()
            if self._thread is None or not self._thread.is_alive():
                self._thread = Thread(target=self._watch, name="pikkuflow-starts", daemon=True)
                self._thread.start()

    def _watch(self) -> None:
        empty = 0
        while True:
            self._busy.wait()
            self._pause.wait(self._look_seconds)
            self._pause.clear()
            self.look()
            empty = 0 if self._watched else empty + 1
            if empty >= _LOOKS_BEFORE_REST:
                self._rest()
                empty = 0

    def _rest(self) -> None:
        self._busy.clear()
        if self._watched:
            # A step began between the look and the rest.
            self._busy.set()

    def forget(self) -> None:
        """In a forked child: the thread stayed behind, and so did what it watched."""
        self._reset()


WATCH: Final = StartWatch()
os.register_at_fork(after_in_child=WATCH.forget)
