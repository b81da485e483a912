"""Make graph workflows for some of the runs of a plan, by dice of their own: a seed without them keeps its plan."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, Final

from tests.simulation.plan import Act, Child, Do, Gate, GateKind, Map, Milestone, Node, Plan, Sleep, Start

__all__ = ["with_graphs"]

_GRAPHS: Final = 0.22
"""How often some runs of a plan are graph runs."""
_KEYS: Final = ("x", "y")
_PLACES: Final = (None, None, None, "queue", "inline")
_BESIDE: Final = 0.1
"""How often graphs are lists beside rings."""
_MANY: Final = 5
"""Large batches stay as they are."""


def with_graphs(plan: Plan) -> Plan:
    """The plan, where the dice say so with graphs in place of some of its functions."""
    dice = Random(f"graphs {plan.seed}")
    if dice.random() >= _GRAPHS or len(plan.starts) > _MANY:
        return plan
    at = dice.randrange(len(plan.starts))
    starts = (
        _graph_start(dice, start, f"{number}") if number == at or dice.random() < 0.5 else start
        for number, start in enumerate(plan.starts)
    )
    return _with_lists_beside_rings(replace(plan, starts=tuple(starts)))


def _with_lists_beside_rings(plan: Plan) -> Plan:
    """Some graphs are a ring that goes on while a list, one item after the other, takes what the ring gave as it began."""
    dice = Random(f"beside {plan.seed}")
    if dice.random() >= _BESIDE:
        return plan
    starts = (
        _start_with(start, _Nodes(dice, f"{number}").list_beside_a_ring()) if start.nodes else start
        for number, start in enumerate(plan.starts)
    )
    return replace(plan, starts=tuple(starts))


def _graph_start(dice: Random, start: Start, mark: str) -> Start:
    return _start_with(start, _Nodes(dice, mark).nodes())


def _start_with(start: Start, nodes: tuple[Node, ...]) -> Start:
    return replace(start, parts=tuple(node.part for node in nodes), nodes=nodes)


class _Nodes:
    """The nodes of one graph. ``mark`` makes their names differ from those of other graphs."""

    def __init__(self, dice: Random, mark: str, *, is_beneath: bool = False) -> None:
        self._dice = dice
        self._mark = mark
        self._undoes = dice.random() < 0.4
        self._has_limits = dice.random() < 0.2
        self._has_ring = dice.random() < 0.5
        self._is_beneath = is_beneath

    def nodes(self) -> tuple[Node, ...]:
        """Nodes that lead on, often to a join, and often a ring that is gone round for a while."""
        r = self._dice
        count = r.choice((1, 2, 3) if self._is_beneath else (1, 2, 3, 4, 5, 6))
        names = [f"n{self._mark}{at}" for at in range(count)]
        nodes = [self._node(names, at) for at in range(count)]
        if self._undoes and r.random() < 0.5:
            # Late rather than early: there should be something to undo.
            end = Do(names[-1], act=Act(fails=9, gives_up=True), retries=0, dispatch=r.choice(_PLACES))
            nodes[-1] = Node(part=end, reads=nodes[-1].reads)
        lists = [node.part.name for node in nodes if isinstance(node.part, Map)]
        return tuple(self._over(node, lists) for node in nodes)

    def list_beside_a_ring(self) -> tuple[Node, ...]:
        """A node that begins a list at its first turn, and goes on."""
        r = self._dice
        ring, items = f"n{self._mark}0", f"n{self._mark}1"
        chooses = ("x", *("y" for _ in range(r.choice((1, 2, 3)))))
        acts = tuple(self._limited(self._act()) for _ in range(r.choice((2, 3, 4))))
        over = Map(items, acts, window=1, dispatch=r.choice(_PLACES), **self._options())
        return (
            Node(
                self._do(ring), branches=(("x", (ring, items)), ("y", (ring,))), chooses=chooses, **self._recovery([])
            ),
            Node(over, reads=(ring,)),
        )

    def _over(self, node: Node, lists: list[str]) -> Node:
        """Over the list of another node; also of one that comes after it in a round, which is the list of the round before."""
        others = [name for name in lists if name != node.part.name]
        if not isinstance(node.part, Map) or not node.part.acts or not others or self._dice.random() < 0.4:
            return node
        return replace(node, items=self._dice.choice(others))

    def _node(self, names: list[str], at: int) -> Node:
        r = self._dice
        later = names[at + 1 :]
        kind = self._kind()
        following = tuple(names[at + 1 : at + 2] if r.random() < 0.6 else self._some(later))
        reads = self._some(names[:at]) if r.random() < 0.5 else ()
        node = Node(part=self._part(kind, names[at]), next=following, reads=reads, **self._recovery(later))
        if kind == "do" and self._has_ring and r.random() < 0.5:
            # Also what comes after it in a round: that is of the round before.
            reads = self._some(names) if r.random() < 0.5 else reads
            back = {key: (*self._some(names[: at + 1]), *following) for key in _KEYS}
            chooses = tuple(r.choice((*_KEYS, None)) for _ in range(r.choice((1, 2, 3))))
            return replace(node, next=(), branches=tuple(back.items()), chooses=chooses, reads=reads)
        if isinstance(node.part, Gate) and node.part.kind is GateKind.APPROVAL and r.random() < 0.4:
            ways = (("decided", following), ("expired", self._some(later)))
            return replace(node, next=(), branches=ways)
        return node

    def _kind(self) -> str:
        children = 0 if self._is_beneath else 1
        kinds = ("do", "map", "sleep", "gate", "milestone", "child")
        return self._dice.choices(kinds, (10, 3, 1, 2, 1, children))[0]

    def _recovery(self, later: list[str]) -> dict[str, Any]:
        r = self._dice
        if r.random() < 0.5:
            return {}
        return {"ignores": True} if not later or r.random() < 0.6 else {"recover": self._some(later)}

    def _some(self, names: list[str]) -> tuple[str, ...]:
        count = min(len(names), self._dice.choice((0, 1, 1, 2, 2)))
        return tuple(sorted(self._dice.sample(names, count)))

    def _part(self, kind: str, name: str) -> Do | Map | Sleep | Gate | Milestone | Child:
        r = self._dice
        if kind == "sleep":
            return Sleep(name, r.choice((0.0, 2.0, 30.0)))
        if kind == "milestone":
            return Milestone(name)
        if kind == "gate":
            return self._gate(name)
        if kind == "child":
            return self._child(name)
        return self._map(name) if kind == "map" else self._do(name)

    def _do(self, name: str) -> Do:
        r = self._dice
        return Do(
            name,
            act=self._limited(self._act()),
            dispatch=r.choice(_PLACES),
            leaves=r.random() < 0.2,
            record_start=r.random() < 0.1,
            **self._options(),
        )

    def _map(self, name: str) -> Map:
        r = self._dice
        acts = tuple(self._limited(self._act()) for _ in range(r.choice((0, 1, 2, 3, 4))))
        return Map(name, acts, window=r.choice((None, 1)), dispatch=r.choice(_PLACES), **self._options())

    def _options(self) -> dict[str, Any]:
        r = self._dice
        limits = {}
        if self._has_limits and r.random() < 0.5:
            limits = {"timeout": r.choice((None, 0.5, 3.0, 12.0)), "heartbeat": r.choice((None, None, 2.0, 8.0))}
        return {
            "retries": r.choice((0, 1, 2, 3)),
            "delay": r.choice((0.0, 0.0, 2.0, 20.0)),
            "undo": self._undo(),
            "compensate": not self._is_kept(),
            **limits,
        }

    def _child(self, name: str) -> Child:
        r = self._dice
        timeout = r.choice((None, None, 4.0, 40.0)) if self._has_limits else None
        compensate = not self._is_kept()
        if r.random() < 0.5:
            nodes = _Nodes(r, f"{self._mark}{name[-1]}", is_beneath=True).nodes()
            parts = tuple(node.part for node in nodes)
            return Child(name, parts, timeout=timeout, compensate=compensate, nodes=nodes)
        parts = tuple(self._do(f"{name}s{number}") for number in range(r.choice((1, 2))))
        return Child(name, parts, timeout=timeout, compensate=compensate)

    def _is_kept(self) -> bool:
        return self._undoes and self._dice.random() < 0.12

    def _undo(self) -> Act | None:
        r = self._dice
        if not self._undoes or r.random() < 0.3:
            return None
        fails, dies = r.choice((0,) * 8 + (1, 1, 2, 9)), r.choice((0,) * 14 + (1, 2))
        return Act(seconds=r.choice((0.0,) * 6 + (1.0, 5.0, 45.0)), fails=fails, dies=dies)

    def _gate(self, name: str) -> Gate:
        r = self._dice
        kind, after = r.choice(list(GateKind)), r.choice((0.0, 0.0, 3.0, 25.0))
        if kind is GateKind.SUSPEND:
            return Gate(name, kind, after=after)
        timeout = r.choice((None, None, 0.5, 4.0, 30.0))
        is_answered = timeout is None or r.random() < 0.7
        return Gate(name, kind, timeout, after if is_answered else None, early=r.random() < 0.5)

    def _limited(self, act: Act) -> Act:
        r = self._dice
        if not self._has_limits:
            return act
        return replace(act, hangs=r.choice((0.0, 0.0, 2.0, 6.0)), beats=r.choice((None, None, 1.0, 5.0)))

    def _act(self) -> Act:
        r = self._dice
        return Act(
            seconds=r.choice((0.0, 0.0, 0.0, 0.1, 1.0, 5.0, 45.0)),
            fails=r.choice((0,) * 6 + (1, 1, 2, 9)),
            dies=r.choice((0,) * 18 + (1, 2)),
            gives_up=r.random() < 0.05,
        )
