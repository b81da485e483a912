"""A picture as lines of text, for a terminal and for diffs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pikkuflow.domain.picture import LOOKS, Link, Picture, PictureEdge, PictureNode, one_line

__all__ = ["TextLine", "text_lines_of", "text_of"]

_WALKED: Final = "==>"
_NEXT: Final = "-->"
_DOTTED: Final = "..>"


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line, and the status that it is about, for who has colours."""

    text: str
    status: str | None = None


def text_of(picture: Picture) -> str:
    """Each node with its status, as a letter and as a word, and below it what follows.

    ``-->`` leads on, ``==>`` is where the run went, ``..>`` recovers or undoes.
    """
    return "\n".join(line.text for line in text_lines_of(picture)) + "\n"


def text_lines_of(picture: Picture) -> tuple[TextLine, ...]:
    """The lines of ``text_of``."""
    return tuple(_lines(picture))


def _lines(picture: Picture) -> Iterator[TextLine]:
    status = None if picture.status is None else picture.status.value
    yield TextLine(one_line(picture.title if status is None else f"{picture.title}: {status}"), status)
    titles = {node.id: one_line(node.title) for node in picture.nodes}
    following: dict[str, list[PictureEdge]] = {}
    for edge in picture.edges:
        following.setdefault(edge.source, []).append(edge)
    together: int | None = None
    for node in picture.nodes:
        if node.together != together and node.together is not None:
            yield TextLine("  together:")
        together = node.together
        indent = "  " if node.together is None else "    "
        yield TextLine(f"{indent}{_head(node, is_entry=node.id in picture.entry)}", node.status)
        for note in node.notes:
            yield TextLine(f"{indent}      {one_line(note)}")
        for edge in following.get(node.id, ()):
            yield TextLine(f"{indent}      {_arrow(edge)} {titles[edge.target]}{_label(edge)}")


def _head(node: PictureNode, *, is_entry: bool) -> str:
    mark = "[ ]" if node.status is None else f"[{LOOKS[node.status].letter}]"
    words = [one_line(node.title), *(["(entry)"] if is_entry else [])]
    return " ".join([mark, *words, *([] if node.status is None else [f"- {node.status}"])])


def _arrow(edge: PictureEdge) -> str:
    if edge.link is not Link.NEXT:
        return _DOTTED
    return _WALKED if edge.is_walked else _NEXT


def _label(edge: PictureEdge) -> str:
    return f" ({one_line(edge.label)})" if edge.label else ""
