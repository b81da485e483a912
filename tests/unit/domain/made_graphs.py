"""Made-up graphs, and a brute-force walk over those without cycles."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from pikkuflow.domain.graph import Graph
from pikkuflow.domain.graph_input import ref
from pikkuflow.domain.graph_moves import Ended
from tests.unit.domain.walking import failed, gave, graph

__all__ = ["KEYS", "Led", "Made", "brute_force", "check_begun", "onward_graphs"]

KEYS = ("x", "y")


@dataclass
class Made:
    """A graph, how its nodes end, and a source of choices."""

    graph: Graph
    outcomes: dict[str, Ended]
    draw: Any

    def choose(self, count: int) -> int:
        """Which of the open steps ends next."""
        return int(self.draw(st.integers(0, count - 1)))


@st.composite
def onward_graphs(draw: Any) -> Made:
    """Graphs without cycles: nodes lead to later ones, and refer to earlier ones."""
    ids = [f"n{at}" for at in range(draw(st.integers(1, 7)))]
    nodes: dict[str, Any] = {}
    outcomes: dict[str, Ended] = {}
    for at, node_id in enumerate(ids):
        later = st.lists(st.sampled_from(ids[at + 1 :]), max_size=3, unique=True) if ids[at + 1 :] else st.just([])
        said: dict[str, Any] = {"next": draw(st.one_of(later, st.fixed_dictionaries(dict.fromkeys(KEYS, later))))}
        if at:
            said["input"] = [ref(one) for one in draw(st.lists(st.sampled_from(ids[:at]), max_size=2, unique=True))]
        recover = draw(st.one_of(st.just([]), st.just("ignore"), later))
        if recover:
            said["recover"] = recover
        nodes[node_id] = said
        fails = bool(recover) and draw(st.booleans())
        outcomes[node_id] = failed() if fails else gave(node_id, draw(st.sampled_from([None, *KEYS])))
    entry = draw(st.lists(st.sampled_from(ids), min_size=1, max_size=2, unique=True))
    return Made(graph=graph(entry, **nodes), outcomes=outcomes, draw=draw)


@dataclass
class Led:
    """What may lead to a node: to its one normal begin, and to one begin for each failure that it recovers."""

    normal: set[str | None] = field(default_factory=set)
    failures: set[str] = field(default_factory=set)


def brute_force(made: Made) -> dict[str, Led]:
    """Every node that is ever begun, with what may have led to it: rules applied until nothing changes."""
    led = {node_id: Led() for node_id in made.graph.nodes}
    for entry in made.graph.entry:
        led[entry].normal.add(None)
    begun: set[str] = set()
    for _ in range(len(led) + 1):
        begun |= {node_id for node_id in led if _is_begun(made, node_id, led[node_id], begun)}
        for node_id in begun:
            for target, is_recovery in _followed(made, node_id):
                (led[target].failures if is_recovery else led[target].normal).add(node_id)
    return {node_id: led[node_id] for node_id in begun}


def _is_begun(made: Made, node_id: str, led: Led, begun: set[str]) -> bool:
    read = {one["$ref"] for one in made.graph.nodes[node_id].input or ()}
    return bool(led.normal or led.failures) and all(_gives(made, one) and one in begun for one in read)


def _followed(made: Made, node_id: str) -> list[tuple[str, bool]]:
    node, ended = made.graph.nodes[node_id], made.outcomes[node_id]
    if ended.failure is not None and not node.ignores:
        return [(target, True) for target in node.recover]
    key = ended.branch if ended.failure is None else None
    return [(edge.target, False) for edge in node.next if edge.key is None or edge.key == key]


def check_begun(made: Made, begun: Iterable[tuple[str, str | None]]) -> None:
    """Each node was begun once after one that normally leads to it, if any does, and once for each failure that it recovers."""
    expected = brute_force(made)
    found: dict[str, Led] = {}
    for name, after in begun:
        node_id, source = name.partition("#")[0], None if after is None else after.partition("#")[0]
        led = found.setdefault(node_id, Led())
        is_recovery = source is not None and source in expected[node_id].failures
        known: set[Any] = led.failures if is_recovery else led.normal
        if is_recovery and source in known:
            # A node that was begun for several failures fails as often.
            continue
        assert source not in known
        known.add(source)
    assert found.keys() == expected.keys()
    for node_id, led in found.items():
        assert led.failures == expected[node_id].failures
        assert len(led.normal) == bool(expected[node_id].normal)
        assert led.normal <= expected[node_id].normal


def _gives(made: Made, node_id: str) -> bool:
    return made.outcomes[node_id].failure is None or made.graph.nodes[node_id].ignores
