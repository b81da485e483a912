"""The run store in memory: the same claims, leases and fences as in SQL (D25), for tests and for ``pikkuflow.testing``.

One lock is the database: who holds it is in a transaction, so every act is atomic and every lock order is kept. Nothing that an act hands
out can be changed afterwards. Time is the clock's, which a test moves.
"""

from __future__ import annotations

from pikkuflow.adapters.memory.claims import ClaimActs
from pikkuflow.adapters.memory.closing import ClosingActs
from pikkuflow.adapters.memory.gates import GateActs
from pikkuflow.adapters.memory.holders import HolderActs
from pikkuflow.adapters.memory.runs import RunActs
from pikkuflow.adapters.memory.stopping import StoppingActs
from pikkuflow.adapters.memory.sweeps import SweepActs
from pikkuflow.adapters.memory.tables import Tables
from pikkuflow.adapters.memory.versions import VersionActs
from pikkuflow.ports import Clock

__all__ = ["MemoryRunStore"]


class MemoryRunStore(RunActs, ClosingActs, ClaimActs, GateActs, HolderActs, StoppingActs, SweepActs, VersionActs):
    """``RunStore`` over dictionaries.

    Parameters
    ----------
    clock:
        The store's own clock: "now" in every act.
    """

    def __init__(self, clock: Clock) -> None:
        self._tables = Tables(clock=clock)

    def check_schema(self) -> None:
        """There is no schema that could be outdated."""

    def close(self) -> None:
        """There are no connections to give back; the rows stay, as they do in a database."""

    def clear(self) -> None:
        """Forget every row (T17.9)."""
        with self._tables.lock:
            self._tables = Tables(clock=self._tables.clock)
