"""A picture as Mermaid text, which code hosts and many wikis draw where it stands (T13.18)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from pikkuflow.domain.picture import LOOKS, Link, Picture, PictureEdge, PictureNode, one_line
from pikkuflow.domain.status import GATE, StepKind

__all__ = ["mermaid_of"]

_LONGEST: Final = 120
_ENTITIES: Final = {'"': "#quot;", "#": "#35;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;", "|": "#124;"}


def mermaid_of(picture: Picture) -> str:
    """A flowchart from the top down. Ways to recover and to undo are dotted, the ways that a run went are thick."""
    return "\n".join(_lines(picture)) + "\n"


def _lines(picture: Picture) -> Iterator[str]:
    status = "" if picture.status is None else f": {picture.status.value}"
    yield "---"
    yield f'title: "{_title(f"{picture.title}{status}")}"'
    yield "---"
    yield "flowchart TD"
    ids = {node.id: f"n{at}" for at, node in enumerate(picture.nodes)}
    if picture.entry:
        yield '  start(["start"])'
    yield from _nodes(picture, ids)
    for entry in picture.entry:
        yield f"  start --> {ids[entry]}"
    for edge in picture.edges:
        yield f"  {ids[edge.source]} {_arrow(edge)} {ids[edge.target]}"
    yield from _classes(picture, ids)


def _nodes(picture: Picture, ids: Mapping[str, str]) -> Iterator[str]:
    groups: dict[int | None, list[PictureNode]] = {}
    for node in picture.nodes:
        groups.setdefault(node.together, []).append(node)
    for group, nodes in groups.items():
        indent = "  " if group is None else "    "
        if group is not None:
            yield f'  subgraph together{group} ["together"]'
        for node in nodes:
            yield f"{indent}{ids[node.id]}{_box(node)}"
        if group is not None:
            yield "  end"


def _box(node: PictureNode) -> str:
    text = "<br/>".join(_text(line) for line in node.lines)
    if node.kind in GATE or node.kind is StepKind.SLEEP:
        return f'{{{{"{text}"}}}}'
    if node.kind is StepKind.CHILD:
        return f'[["{text}"]]'
    return f'["{text}"]'


def _arrow(edge: PictureEdge) -> str:
    line = "-.->" if edge.link is not Link.NEXT else "==>" if edge.is_walked else "-->"
    return f'{line}|"{_text(edge.label)}"|' if edge.label else line


def _classes(picture: Picture, ids: Mapping[str, str]) -> Iterator[str]:
    by_status: dict[str, list[str]] = {}
    for node in picture.nodes:
        if node.status is not None:
            by_status.setdefault(node.status, []).append(ids[node.id])
    for status, members in by_status.items():
        look, name = LOOKS[status], status.replace(" ", "_")
        yield f"  classDef {name} fill:{look.fill},stroke:{look.line},color:#111827"
        yield f"  class {','.join(members)} {name}"


def _text(line: str) -> str:
    plain = one_line(line)
    short = plain if len(plain) <= _LONGEST else f"{plain[: _LONGEST - 1]}…"
    return "".join(_ENTITIES.get(letter, letter) for letter in short)


def _title(text: str) -> str:
    """The title stands in YAML, between double quotes."""
    return one_line(text).replace("\\", "\\\\").replace('"', '\\"')
