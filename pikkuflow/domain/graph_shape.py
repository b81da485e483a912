"""How a graph hangs together: what can be reached from where, and which of its edges go round (spec 3.3).

Nodes that can reach each other form a *ring*. Going round a ring begins nodes again; an edge that closes it is a *back edge*, as a walk
from the entries in the order of the definition meets them. All other edges go forward.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from pikkuflow.domain.graph import Graph, GraphNode

__all__ = ["Shape", "endless_ring", "shape_of"]

Edges = Mapping[str, Sequence[str]]


class Shape:
    """What the planner asks of a graph's form."""

    def __init__(self, graph: Graph) -> None:
        self._edges: Edges = {node.id: _targets(node) for node in graph.nodes.values()}
        self._rings = _rings(self._edges)
        self._back = _back_edges(self._edges, graph.entry)
        self._onward: dict[str, frozenset[str]] = {}
        self.place: Final = {node_id: place for place, node_id in enumerate(graph.nodes)}
        """A node's place in the definition."""

    def is_one_ring(self, one: str, other: str) -> bool:
        """The nodes can reach each other, or are the same."""
        return self._rings[one] == self._rings[other]

    def is_back(self, source: str, target: str) -> bool:
        """Following this edge begins another round."""
        return (source, target) in self._back

    def leads_to(self, source: str, target: str) -> bool:
        """``target`` can follow ``source`` without another round; not itself."""
        known = self._onward.get(source)
        if known is None:
            forward = {
                node: [target for target in targets if (node, target) not in self._back]
                for node, targets in self._edges.items()
            }
            known = self._onward[source] = _reached(forward, source)
        return target in known


@lru_cache(maxsize=256)
def shape_of(graph: Graph) -> Shape:
    """The graph's shape, worked out once."""
    return Shape(graph)


def endless_ring(graph: Graph) -> tuple[str, ...]:
    """Nodes that would begin each other for ever because none of them chooses what follows; empty when there is no such ring."""
    always = {node.id: [edge.target for edge in node.next if edge.key is None] for node in graph.nodes.values()}
    rings = _rings(always)
    for node_id, targets in always.items():
        if any(rings[target] == rings[node_id] for target in targets):
            return tuple(one for one in always if rings[one] == rings[node_id])
    return ()


def _targets(node: GraphNode) -> tuple[str, ...]:
    """As ``node.targets``, but branches in the order of their keys: a mapping's own is no part of the version, and decides nothing."""
    ahead = (edge.target for edge in sorted(node.next, key=lambda edge: edge.key or ""))
    return tuple(dict.fromkeys([*ahead, *node.recover, *node.on_failure]))


def _reached(edges: Edges, start: str) -> frozenset[str]:
    found: set[str] = set()
    left = list(edges[start])
    while left:
        node = left.pop()
        if node not in found:
            found.add(node)
            left.extend(edges[node])
    return frozenset(found)


def _rings(edges: Edges) -> dict[str, int]:
    """A number for each node, the same for nodes that can reach each other (Kosaraju's two walks)."""
    left_in_order = [node for node, target in _walk(edges, edges) if target is None]
    reverse: dict[str, list[str]] = {node: [] for node in edges}
    for node, targets in edges.items():
        for target in targets:
            reverse[target].append(node)
    rings: dict[str, int] = {}
    for number, start in enumerate(reversed(left_in_order)):
        left = [start]
        while left:
            node = left.pop()
            if node not in rings:
                rings[node] = number
                left.extend(reverse[node])
    return rings


def _back_edges(edges: Edges, entry: Iterable[str]) -> frozenset[tuple[str, str]]:
    return frozenset((node, target) for node, target in _walk(edges, [*entry, *edges]) if target is not None)


def _walk(edges: Edges, starts: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Depth first: ``(node, None)`` when a node is left, ``(node, target)`` for an edge to a node that is not left yet."""
    seen: set[str] = set()
    for start in starts:
        if start in seen:
            continue
        path = {start: iter(edges[start])}
        while path:
            node, targets = next(reversed(path.items()))
            seen.add(node)
            target = next(targets, None)
            if target is None:
                del path[node]
                yield node, None
            elif target in path:
                yield node, target
            elif target not in seen:
                path[target] = iter(edges[target])
