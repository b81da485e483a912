"""Make graph workflows for some of the runs of a plan, by dice of their own: a seed without them keeps its plan."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from tests.simulation.plan import Act, Do, Gate, GateKind, Map, Milestone, Node, Plan, Sleep, Start

__all__ = ["with_graphs"]

_GRAPHS: Final = 0.2
"""How often some runs of a plan are graph runs."""
_KEYS: Final = ("x", "y")
_PLACES: Final = (None, None, None, "queue", "inline")


def with_graphs(plan: Plan) -> Plan:
    """The plan, where the dice say so with graphs in place of some of its functions. Large batches stay as they are."""
    dice = Random(f"graphs {plan.seed}")
    if dice.random() >= _GRAPHS or len(plan.starts) > len(_PLACES):
        return plan
    at = dice.randrange(len(plan.starts))
    starts = (
        _graph_start(dice, start, f"{number}") if number == at or dice.random() < 0.5 else start
        for number, start in enumerate(plan.starts)
    )
    return replace(plan, starts=tuple(starts))


def _graph_start(dice: Random, start: Start, mark: str) -> Start:
    nodes = _Nodes(dice, mark).nodes()
    return replace(start, parts=tuple(node.part for node in nodes), nodes=nodes)


class _Nodes:
    def __init__(self, dice: Random, mark: str) -> None:
        self._dice = dice
        self._mark = mark

    def nodes(self) -> tuple[Node, ...]:
        """Nodes that lead on, often to a join, and often a ring that is gone round for a while."""
        r = self._dice
        count = r.choice((1, 2, 3, 4, 5, 6))
        names = [f"n{self._mark}{at}" for at in range(count)]
        has_ring = r.random() < 0.5
        return tuple(self._node(names, at, has_ring=has_ring) for at in range(count))

    def _node(self, names: list[str], at: int, *, has_ring: bool) -> Node:
        r = self._dice
        later = names[at + 1 :]
        kind = r.choices(("do", "map", "sleep", "gate", "milestone"), (10, 3, 1, 0 if has_ring else 2, 1))[0]
        following = tuple(names[at + 1 : at + 2] if r.random() < 0.6 else self._some(later))
        reads = self._some(names[:at]) if r.random() < 0.5 else ()
        node = Node(part=self._part(kind, names[at]), next=following, reads=reads, **self._recovery(later))
        if kind == "do" and has_ring and r.random() < 0.5:
            back = {key: (*self._some(names[: at + 1]), *following) for key in _KEYS}
            chooses = tuple(r.choice((*_KEYS, None)) for _ in range(r.choice((1, 2, 3))))
            return replace(node, next=(), branches=tuple(back.items()), chooses=chooses)
        return node

    def _recovery(self, later: list[str]) -> dict[str, object]:
        r = self._dice
        if r.random() < 0.5:
            return {}
        return {"ignores": True} if not later or r.random() < 0.6 else {"recover": self._some(later)}

    def _some(self, names: list[str]) -> tuple[str, ...]:
        count = min(len(names), self._dice.choice((0, 1, 1, 2, 2)))
        return tuple(sorted(self._dice.sample(names, count)))

    def _part(self, kind: str, name: str) -> Do | Map | Sleep | Gate | Milestone:
        r = self._dice
        if kind == "sleep":
            return Sleep(name, r.choice((0.0, 2.0, 30.0)))
        if kind == "milestone":
            return Milestone(name)
        if kind == "gate":
            return self._gate(name)
        retries, delay = r.choice((0, 1, 2, 3)), r.choice((0.0, 0.0, 2.0, 20.0))
        if kind == "map":
            acts = tuple(self._act() for _ in range(r.choice((0, 1, 2, 3, 4))))
            window = r.choice((None, None, 1))
            return Map(name, acts, retries=retries, delay=delay, window=window, dispatch=r.choice(_PLACES))
        return Do(
            name,
            act=self._act(),
            retries=retries,
            delay=delay,
            dispatch=r.choice(_PLACES),
            leaves=r.random() < 0.2,
            record_start=r.random() < 0.1,
        )

    def _gate(self, name: str) -> Gate:
        r = self._dice
        kind, after = r.choice(list(GateKind)), r.choice((0.0, 0.0, 3.0, 25.0))
        if kind is GateKind.SUSPEND:
            return Gate(name, kind, after=after)
        timeout = r.choice((None, None, 0.5, 4.0, 30.0))
        is_answered = timeout is None or r.random() < 0.7
        return Gate(name, kind, timeout, after if is_answered else None, early=r.random() < 0.5)

    def _act(self) -> Act:
        r = self._dice
        return Act(
            seconds=r.choice((0.0, 0.0, 0.0, 0.1, 1.0, 5.0, 45.0)),
            fails=r.choice((0,) * 6 + (1, 1, 2, 9)),
            dies=r.choice((0,) * 18 + (1, 2)),
            gives_up=r.random() < 0.05,
        )
