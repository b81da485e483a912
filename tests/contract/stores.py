"""One bench a store: the store, a way to move its time, and a way to stop a run that no act of the port offers yet.

Time is moved, never waited for: the memory store's clock is advanced; in a database every time that is stored is shifted into the past.
"""

from __future__ import annotations

from typing import Protocol

from pikkuflow.adapters.memory import MemoryRunStore, MovableClock
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import RunStatus
from pikkuflow.ports import RunStore

__all__ = ["STORES", "MemoryBench", "StoreBench"]

STORES = ("memory", "sqlite", "postgres", "mysql")


class StoreBench(Protocol):
    """What the suite needs of a store under test."""

    @property
    def store(self) -> RunStore:
        """The store, empty at the start of a test."""
        ...

    def advance(self, seconds: float) -> None:
        """Let that much time pass for the store."""
        ...

    def set_status(self, run_id: RunId, status: RunStatus) -> None:
        """Write a run's status and nothing else, as a stop does in the middle of a pass."""
        ...


class MemoryBench:
    """The memory store on a clock of its own."""

    def __init__(self) -> None:
        self.clock = MovableClock()
        self.store = MemoryRunStore(self.clock)

    def advance(self, seconds: float) -> None:
        """Move the clock."""
        self.clock.advance(seconds)

    def set_status(self, run_id: RunId, status: RunStatus) -> None:
        """Write into the row."""
        self.store._tables.runs[run_id].status = status
