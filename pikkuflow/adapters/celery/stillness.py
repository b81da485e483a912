"""Keeping a fork and an open SQLite file apart in a worker's main process.

SQLite must not be carried through a fork: the child would believe locks that are the parent's. So the watching threads work inside
``with``, the last one to leave closes the connections, and a fork waits until nobody is inside. Other databases need none of it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

__all__ = ["stillness"]


def stillness(database_url: str, close: Callable[[], None]) -> AbstractContextManager[object]:
    """What the threads of the main process enter for every look at the database.

    Args:
        database_url: where the store is.
        close: gives back the store's connections; it can be used again afterwards.
    """
    return _Stillness(close) if database_url.startswith("sqlite") else nullcontext()


class _Stillness(AbstractContextManager[object]):
    """Threads may be inside together. It is one of its process's for good: what is registered for forks cannot be taken back."""

    def __init__(self, close: Callable[[], None]) -> None:
        self._close = close
        self._changed = threading.Condition()
        self._inside = 0
        self._is_forking = False
        os.register_at_fork(before=self._hold, after_in_parent=self._let_go, after_in_child=self._let_go)

    def __enter__(self) -> None:
        with self._changed:
            while self._is_forking:
                self._changed.wait()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._inside -= 1
            if self._inside == 0:
                self._close()
            self._changed.notify_all()

    def _hold(self) -> None:
        self._changed.acquire()
        self._is_forking = True
        while self._inside:
            self._changed.wait()

    def _let_go(self) -> None:
        self._is_forking = False
        self._changed.notify_all()
        self._changed.release()
