"""Deliberate faults of graph runs: in planning, passes, gates and unwinding. The simulation must find each (issue E)."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any, Final

from pikkuflow.adapters.memory import gates
from pikkuflow.adapters.memory.tables import StepRow
from pikkuflow.domain import unwind
from pikkuflow.domain.graph_instance import Instance
from pikkuflow.domain.graph_moves import Begin, Part
from pikkuflow.domain.graph_plan import Walk
from pikkuflow.domain.status import StepStatus
from pikkuflow.replay.graph_pass import _GraphPass
from tests.simulation.mutations import Mutation, patched

__all__ = ["GRAPH_MUTATIONS"]

_value = Walk._value
_more_of = Walk._more_of
_seen = _GraphPass._seen


def _is_always_ready(_self: Walk, _arrival: Any, _coming: Collection[str]) -> bool:
    return True


def _arrive_again(self: Walk, source: Any, target: str, *, recovers: bool = False) -> None:
    """Only where it makes no end: a node that was begun before what leads to it now."""
    arrival = self._arrival(source, target, recovers=recovers)
    if arrival not in self._followed or (source is not None and self._count[target] == 1):
        self._arrived.setdefault(arrival, []).append(None if source is None else source.name)


def _newest_value(self: Walk, one: Any, reader: Any, _round: int, as_of: int | None) -> Any:
    return _value(self, one, reader, sys.maxsize, as_of)


def _value_of_now(self: Walk, one: Any, reader: Any, round_: int, _as_of: int | None) -> Any:
    return _value(self, one, reader, round_, None)


def _list_at_once(self: Walk, fan: Instance) -> Iterator[Begin]:
    """When its first item has ended, and all were begun."""
    if not fan.node.is_sequential and fan.at_work < len(fan.members) == len(self._items(fan.node, fan.name, 0, fan)):
        begin = Begin(name=fan.name, node=fan.node, ordinal=fan.ordinal, after=fan.after, recovers=fan.recovers)
        yield replace(begin, part=Part.LIST)
    else:
        yield from _more_of(self, fan)


def _seen_without_branch(self: _GraphPass, row: Any) -> Any:
    return _seen(self, replace(row, override=None))


def _settle_nowhere(row: StepRow, status: StepStatus, now: Any, *, no: int, **more: Any) -> None:
    """A gate has no place in the order of the run."""
    row.settle(status, now, no=no, **more)
    row.settled_no = None


GRAPH_MUTATIONS: Final = (
    Mutation("begin a node before what it refers to", patched((Walk, "_is_ready", _is_always_ready))),
    Mutation("begin a join once more", patched((Walk, "_arrive", _arrive_again))),
    Mutation("read what a later round gave", patched((Walk, "_value", _newest_value))),
    Mutation("go on with a newer list than the one begun with", patched((Walk, "_value", _value_of_now))),
    Mutation("close a list before its items", patched((Walk, "_more_of", _list_at_once))),
    Mutation("forget the branch when a pass ends", patched((_GraphPass, "_seen", _seen_without_branch))),
    Mutation("let gates settle nowhere", patched((gates, "_settle", _settle_nowhere))),
    Mutation("undo what was recovered", patched((unwind, "_recovers", lambda _row: None))),
)
