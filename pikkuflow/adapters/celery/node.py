"""This process as a worker sees itself: who holds what it works, and whether it is about to stop (design 3.9, recipes 5)."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Final
from uuid import uuid4

from pikkuflow.domain.ids import Holder, RunId, StepName

__all__ = ["CALLER_PATIENCE_SECONDS", "Node", "TimedOut"]

CALLER_PATIENCE_SECONDS: Final = 10.0
"""How long a process that is no worker waits for a database that is away: someone waits for its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut:
    """A step message whose child is being ended by a hard time limit, as the main process hears of it."""

    run_id: RunId
    steps: tuple[tuple[StepName, int], ...]
    holder: Holder
    pid: int
    seconds: float


def _shared_byte() -> mmap.mmap:
    """Anonymous memory that forked children share: they never hear of a SIGTERM that went to the main process."""
    return mmap.mmap(-1, 1)


@dataclass(slots=True)
class Node:
    """One for each extension and process; forked children inherit it from the worker's main process.

    ``uuid`` is new for each start of a worker, so that what an earlier process of the same name held can be told apart.
    ``concurrency`` is how many steps one process works at a time. ``has_limits``: the worker itself puts time limits on messages.
    ``patience_seconds`` is how long this kind of process waits for the database: None is for ever.
    """

    uuid: str = field(default_factory=lambda: uuid4().hex)
    is_worker: bool = False
    concurrency: int = 1
    has_limits: bool = False
    patience_seconds: float | None = CALLER_PATIENCE_SECONDS
    timed_out: SimpleQueue[TimedOut] = field(default_factory=SimpleQueue)
    _flag: mmap.mmap = field(default_factory=_shared_byte)

    def holder(self, pid: int | None = None) -> Holder:
        """What a process of this node writes beside what it holds; this process unless a child's ``pid`` is given."""
        return Holder(f"{self.uuid}:{os.getpid() if pid is None else pid}")

    def begin_worker(self, *, concurrency: int, has_limits: bool) -> None:
        """A worker starts in this process; before its pool forks."""
        self.uuid = uuid4().hex
        self.is_worker = True
        self.concurrency = concurrency
        self.has_limits = has_limits
        self.patience_seconds = None
        self._flag[0] = 0

    def begin_stopping(self) -> None:
        """A warm shutdown began: passes here and in every child end after the step in hand."""
        self._flag[0] = 1

    def is_stopping(self) -> bool:
        """Whether a warm shutdown began in the worker's main process."""
        return bool(self._flag[0])
