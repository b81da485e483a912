"""Made-up graphs, and a brute-force walk over those without cycles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from pikkuflow.domain.graph import Graph
from pikkuflow.domain.graph_input import ref
from pikkuflow.domain.graph_moves import Ended
from tests.unit.domain.walking import failed, gave, graph

__all__ = ["KEYS", "Made", "brute_force", "onward_graphs"]

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


def brute_force(made: Made) -> dict[str, set[str | None]]:
    """Every node that is ever begun, with what may have led to it: rules applied until nothing changes."""
    begun: dict[str, set[str | None]] = {}
    led: dict[str, set[str | None]] = {node_id: set() for node_id in made.graph.nodes}
    for entry in made.graph.entry:
        led[entry].add(None)
    while True:
        before = {node_id: set(sources) for node_id, sources in begun.items()}
        for node in made.graph.nodes.values():
            read = {one["$ref"] for one in node.input or ()}
            if led[node.id] and all(_gives(made, one) and one in begun for one in read):
                begun[node.id] = led[node.id]
        for node_id in begun:
            for target in _followed(made, node_id):
                led[target].add(node_id)
        if begun == before:
            return begun


def _gives(made: Made, node_id: str) -> bool:
    return made.outcomes[node_id].failure is None or made.graph.nodes[node_id].ignores


def _followed(made: Made, node_id: str) -> list[str]:
    node, ended = made.graph.nodes[node_id], made.outcomes[node_id]
    if ended.failure is not None and not node.ignores:
        return list(node.recover)
    key = ended.branch if ended.failure is None else None
    return [edge.target for edge in node.next if edge.key is None or edge.key == key]
