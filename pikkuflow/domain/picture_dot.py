"""A picture in the DOT language, which Graphviz draws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from pikkuflow.domain.picture import LOOKS, Link, Picture, PictureEdge, PictureNode, one_line
from pikkuflow.domain.status import GATE, StepKind

__all__ = ["dot_of"]

_SHAPES: Final = {StepKind.SLEEP: "hexagon", StepKind.CHILD: "box3d"} | dict.fromkeys(GATE, "hexagon")


def dot_of(picture: Picture) -> str:
    """A directed graph from the top down. Ways to recover and to undo are dotted, the ways that a run went are thick."""
    return "\n".join(_lines(picture)) + "\n"


def _lines(picture: Picture) -> Iterator[str]:
    status = "" if picture.status is None else f": {picture.status.value}"
    yield f"digraph {_quoted(picture.title)} {{"
    yield f"  graph [rankdir=TB, labelloc=t, label={_quoted(f'{picture.title}{status}')}, fontname=Helvetica];"
    yield "  node [shape=box, style=filled, fillcolor=white, fontname=Helvetica];"
    yield "  edge [fontname=Helvetica];"
    ids = {node.id: f"n{at}" for at, node in enumerate(picture.nodes)}
    if picture.entry:
        yield "  start [label=start, shape=oval];"
    yield from _nodes(picture, ids)
    for entry in picture.entry:
        yield f"  start -> {ids[entry]};"
    for edge in picture.edges:
        yield f"  {ids[edge.source]} -> {ids[edge.target]}{_edge(edge)};"
    yield "}"


def _nodes(picture: Picture, ids: Mapping[str, str]) -> Iterator[str]:
    groups: dict[int | None, list[PictureNode]] = {}
    for node in picture.nodes:
        groups.setdefault(node.together, []).append(node)
    for group, nodes in groups.items():
        if group is not None:
            yield f"  subgraph cluster_{group} {{"
            yield "    label=together; style=dashed; color=gray;"
        for node in nodes:
            yield f"{'  ' if group is None else '    '}{ids[node.id]} [{_node(node)}];"
        if group is not None:
            yield "  }"


def _node(node: PictureNode) -> str:
    said = {"label": _quoted(*node.lines)}
    if node.kind in _SHAPES:
        said["shape"] = _SHAPES[node.kind]
    if node.status is not None:
        look = LOOKS[node.status]
        said |= {"fillcolor": f'"{look.fill}"', "color": f'"{look.line}"'}
    return ", ".join(f"{name}={value}" for name, value in said.items())


def _edge(edge: PictureEdge) -> str:
    said: dict[str, str] = {}
    if edge.label:
        said["label"] = _quoted(edge.label)
    if edge.link is not Link.NEXT:
        said["style"] = "dotted"
    elif edge.is_walked:
        said["penwidth"] = "2.5"
    listed = ", ".join(f"{name}={value}" for name, value in said.items())
    return f" [{listed}]" if listed else ""


def _quoted(*lines: str) -> str:
    # Graphviz reads HTML entities in any text, and its SVG is no XML where it does not know one.
    escaped = (one_line(line).replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(escaped) + '"'
