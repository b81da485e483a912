"""Every port in memory: the fakes of the tests and of ``pikkuflow.testing``, held to the same contracts as the real adapters (D25)."""

from __future__ import annotations

from pikkuflow.adapters.memory.clock import MovableClock
from pikkuflow.adapters.memory.dispatcher import MemoryDeliverer, MemoryDispatcher
from pikkuflow.adapters.memory.hints import MemoryHints
from pikkuflow.adapters.memory.ids import SeededIds
from pikkuflow.adapters.memory.leases import MemoryLeases
from pikkuflow.adapters.memory.run_store import MemoryRunStore

__all__ = [
    "MemoryDeliverer",
    "MemoryDispatcher",
    "MemoryHints",
    "MemoryLeases",
    "MemoryRunStore",
    "MovableClock",
    "SeededIds",
]
