"""The picture of a graph workflow, and of one of its runs: every node with what became of it (issue E, T13.18)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pikkuflow.domain.graph import Graph, GraphNode
from pikkuflow.domain.graph_names import StepNames
from pikkuflow.domain.graph_step import RECOVERS
from pikkuflow.domain.ids import StepName
from pikkuflow.domain.picture import (
    LEFT_OUT,
    NOT_BEGUN,
    Link,
    Picture,
    PictureEdge,
    PictureNode,
    counted,
    foremost,
    undone_by,
)
from pikkuflow.domain.recorded_names import UNDO_SUFFIX
from pikkuflow.domain.run import Run
from pikkuflow.domain.status import SETTLED_RUN, StepKind, StepStatus
from pikkuflow.domain.step import Step

__all__ = ["picture_of_graph", "picture_of_graph_run"]

_SHOWN_VISITS: Final = 4
"""Of a node that was begun often, so many of the latest are listed."""

_Way = tuple[str, str, Link]


@dataclass(slots=True)
class _Seen:
    """The rows of one node, by the number of its begin."""

    wholes: dict[int, Step] = field(default_factory=dict)
    items: dict[int, list[Step]] = field(default_factory=dict)
    undos: list[Step] = field(default_factory=list)

    @property
    def visits(self) -> list[int]:
        return sorted({*self.wholes, *self.items})

    @property
    def is_first(self) -> bool:
        """The run began with it."""
        rows = [*self.wholes.values(), *(row for rows in self.items.values() for row in rows)]
        return any(row.from_step is None for row in rows)

    def status(self, visit: int) -> str:
        whole = self.wholes.get(visit)
        if whole is not None:
            return whole.status.value
        found = foremost(self.items[visit])
        # The list of the results is still to come, or the next item.
        return StepStatus.RUNNING.value if found is StepStatus.SUCCEEDED else found.value


def picture_of_graph(graph: Graph) -> Picture:
    """The graph as it is defined."""
    return Picture(
        title=graph.name,
        nodes=tuple(
            PictureNode(id=node.id, title=node.id, kind=node.kind, notes=tuple(_defined(node)))
            for node in graph.nodes.values()
        ),
        edges=tuple(_edges(graph, {})),
        entry=graph.entry,
    )


def picture_of_graph_run(graph: Graph, run: Run, steps: Sequence[Step]) -> Picture:
    """A run of the graph: each node with its status, how often it was begun and what its items came to, and the edges that were walked.

    ``steps`` are the run's rows in any order; those that are none of the graph's are not shown.
    """
    seen: dict[str, _Seen] = {node_id: _Seen() for node_id in graph.nodes}
    walked = _load(graph, steps, seen)
    unseen = LEFT_OUT if run.status in SETTLED_RUN else NOT_BEGUN
    nodes: list[PictureNode] = []
    edges = list(_edges(graph, walked))
    for node in graph.nodes.values():
        shown = _ran(node, seen[node.id], unseen)
        nodes.append(shown)
        undo, led = undone_by(shown, seen[node.id].undos)
        nodes += undo
        edges += led
    begun = [node_id for node_id, one in seen.items() if one.is_first]
    return Picture(
        title=f"{graph.name} run {run.id}",
        nodes=tuple(nodes),
        edges=tuple(edges),
        entry=tuple(begun) or graph.entry,
        status=run.status,
    )


def _load(graph: Graph, steps: Iterable[Step], seen: dict[str, _Seen]) -> dict[_Way, set[tuple[StepName | None, int]]]:
    """Sort the rows to their nodes; the ways that were gone, each with the begins that came by it."""
    names = StepNames(graph.nodes)
    walked: dict[_Way, set[tuple[StepName | None, int]]] = {}
    for row in steps:
        is_undo = row.name.endswith(UNDO_SUFFIX)
        step = names.read(StepName(row.name.removesuffix(UNDO_SUFFIX)))
        if step is None:
            continue
        one = seen[step.node]
        if is_undo:
            one.undos.append(row)
            continue
        if step.index is None:
            one.wholes[step.ordinal] = row
        else:
            one.items.setdefault(step.ordinal, []).append(row)
        source = None if row.from_step is None else names.read(row.from_step)
        if source is not None:
            link = Link.RECOVER if RECOVERS in _said(row) else Link.NEXT
            walked.setdefault((source.node, step.node, link), set()).add((row.from_step, step.ordinal))
    return walked


def _said(row: Step) -> dict[str, Any]:
    found = json.loads(row.options or "{}")
    return found if isinstance(found, dict) else {}


def _edges(graph: Graph, walked: dict[_Way, set[tuple[StepName | None, int]]]) -> Iterable[PictureEdge]:
    for node in graph.nodes.values():
        keys: dict[str, list[str]] = {}
        for edge in node.next:
            keys.setdefault(edge.target, []).extend([] if edge.key is None else [edge.key])
        for target, chosen in keys.items():
            yield _edge((node.id, target, Link.NEXT), ", ".join(chosen), walked)
        for target in node.recover:
            yield _edge((node.id, target, Link.RECOVER), "recover", walked)


def _edge(way: _Way, label: str, walked: dict[_Way, set[tuple[StepName | None, int]]]) -> PictureEdge:
    times = len(walked.get(way, ()))
    often = f"{times} times" if times > 1 else ""
    source, target, link = way
    return PictureEdge(
        source=source,
        target=target,
        label=", ".join(filter(None, (label, often))),
        link=link,
        is_walked=times > 0,
    )


def _defined(node: GraphNode) -> Iterable[str]:
    """What the definition says of a node, beside its title."""
    what = {StepKind.SLEEP: _slept(node), StepKind.SIGNAL: f"wait for {node.what}"}
    yield what.get(node.kind, f"{node.kind.value} {node.what}")
    if node.for_each is not None:
        way = "one after the other" if node.is_sequential else "in parallel"
        yield f"for each of {'.'.join(filter(None, (node.for_each.node, node.for_each.path)))}, {way}"
    if node.ignores:
        yield "failure ignored"
    leading = {edge.key for edge in node.next}
    nowhere = [key for key in node.keys if key not in leading]
    if nowhere:
        yield f"nothing follows {', '.join(nowhere)}"


def _slept(node: GraphNode) -> str:
    said = node.fields.get("sleep")
    return f"sleep {said}" if isinstance(said, str | int | float) else "sleep"


def _ran(node: GraphNode, seen: _Seen, unseen: str) -> PictureNode:
    visits = seen.visits
    notes = list(_defined(node))
    if visits:
        notes += _visits(seen, visits)
    status = seen.status(visits[-1]) if visits else unseen
    return PictureNode(id=node.id, title=node.id, kind=node.kind, status=status, notes=tuple(notes))


def _visits(seen: _Seen, visits: list[int]) -> Iterable[str]:
    if len(visits) > 1:
        listed = ", ".join(f"#{visit} {seen.status(visit)}" for visit in visits[-_SHOWN_VISITS:])
        yield f"begun {len(visits)} times: {'… ' if len(visits) > _SHOWN_VISITS else ''}{listed}"
    newest = visits[-1]
    if newest in seen.items:
        yield counted(seen.items[newest], "items")
    row = seen.wholes.get(newest)
    if row is not None and row.attempt > 1:
        yield f"attempt {row.attempt}"
    if row is not None and row.child_run_id is not None:
        yield f"run {row.child_run_id}"
