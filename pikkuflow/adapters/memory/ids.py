"""Randomness that repeats."""

from __future__ import annotations

import threading
from random import Random
from uuid import UUID

__all__ = ["SeededIds"]


class SeededIds:
    """The ``Ids`` port with a seed: the same seed gives the same ids and the same jitter, in order."""

    def __init__(self, seed: int = 0) -> None:
        self._random = Random(seed)  # noqa: S311 - repeatable on purpose
        self._lock = threading.Lock()

    def new_id(self) -> str:
        """The next UUID of the sequence."""
        with self._lock:
            return str(UUID(int=self._random.getrandbits(128), version=4))

    def jitter(self) -> float:
        """The next number from 0 to 1."""
        with self._lock:
            return self._random.random()
