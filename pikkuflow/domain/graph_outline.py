"""What is shown of a graph run before it has run: its steps in their order, and whether it takes just these (spec 1.3)."""

from __future__ import annotations

from pikkuflow.domain.graph import Graph, GraphNode
from pikkuflow.domain.graph_input import TRIGGER
from pikkuflow.domain.graph_names import step_name
from pikkuflow.domain.graph_read import reads_of

__all__ = ["outline_of"]


def outline_of(graph: Graph) -> tuple[tuple[str, ...] | None, bool]:
    """The planned steps, and whether a run always takes exactly these.

    A ``for_each`` has no plan, for its items are not known; what branches, recovers or goes round lists every node and is not certain.
    """
    if any(node.for_each is not None for node in graph.nodes.values()):
        return None, False
    line = _line(graph)
    if line is not None:
        return tuple(step_name(node, 0) for node in line), True
    return tuple(step_name(node, 0) for node in graph.nodes.values()), False


def _line(graph: Graph) -> list[GraphNode] | None:
    """The nodes of a straight line that holds all of them, else None."""
    found: dict[str, GraphNode] = {}
    following = graph.entry
    while following:
        node = graph.nodes[following[0]]
        if len(following) > 1 or node.id in found or node.keys or node.recover or node.ignores or node.on_failure:
            return None
        if any(one.node not in found for one in reads_of(node) if one.node != TRIGGER):
            # What it waits for never comes: it is left out.
            return None
        found[node.id] = node
        following = node.targets
    return list(found.values()) if len(found) == len(graph.nodes) else None
