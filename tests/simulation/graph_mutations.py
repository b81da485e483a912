"""Deliberate faults of the graph planner. The simulation must find each (issue E)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from pikkuflow.domain.graph_plan import Walk
from tests.simulation.mutations import Mutation, patched

__all__ = ["GRAPH_MUTATIONS"]


def _is_always_ready(_self: Walk, _arrival: Any, _coming: Collection[str]) -> bool:
    """A node does not wait for what it refers to."""
    return True


def _arrive_again(self: Walk, source: Any, target: str, *, recovers: bool = False) -> None:
    """Each edge that leads to a node begins it, also when it was begun already."""
    arrival = self._arrival(source, target, recovers=recovers)
    self._arrived.setdefault(arrival, []).append(None if source is None else source.name)


GRAPH_MUTATIONS: Final = (
    Mutation("begin a node before what it refers to", patched((Walk, "_is_ready", _is_always_ready))),
    Mutation("begin a join for each that leads to it", patched((Walk, "_arrive", _arrive_again))),
)
