"""Names in a graph: which step an instance of a node has, which node a step belongs to, and which id a text means (spec 1.2, 3.1)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Final

from pikkuflow.domain.gate import gate_name
from pikkuflow.domain.graph import GraphNode
from pikkuflow.domain.ids import StepName, numbered_name
from pikkuflow.domain.recorded_names import MILESTONE_PREFIX
from pikkuflow.domain.status import StepKind

__all__ = ["Ambiguous", "StepId", "StepNames", "Unknown", "meant", "node_of_step", "reason_of", "step_name"]

_SHAPE: Final = re.compile(r"(?P<stem>.*?)(?:#(?P<ordinal>\d+))?(?:\[(?P<index>\d+)\])?", flags=re.DOTALL)
_AGAIN: Final = re.compile(r"(?P<stem>.*) (?P<number>[1-9]\d*)", flags=re.DOTALL)
_HOLE: Final = re.compile(r"\$\{[^}]*\}")


class Unknown(ValueError):
    """No id is meant; the text says so, and names the nearest."""


class Ambiguous(ValueError):
    """More than one id is meant; the text names them."""


@dataclass(frozen=True, slots=True)
class StepId:
    """Which begin of which node a step is: the ``ordinal``-th from 0, and the member of its ``for_each``."""

    node: str
    ordinal: int
    index: int | None = None


class StepNames:
    """The steps of a graph's nodes."""

    def __init__(self, nodes: Mapping[str, GraphNode]) -> None:
        self._stems = {step_name(node, 0): node for node in nodes.values()}

    def read(self, name: StepName) -> StepId | None:
        """Which node the step belongs to; None when it is none of this graph's."""
        shape = _SHAPE.fullmatch(name)
        if shape is None:
            return None
        stem, index = StepName(shape["stem"]), shape["index"]
        node = self._stems.get(stem)
        if node is not None:
            return StepId(node.id, int(shape["ordinal"] or 0), None if index is None else int(index))
        again = _AGAIN.fullmatch(stem)
        node = None if again is None else self._stems.get(StepName(again["stem"]))
        if again is None or node is None or node.kind is not StepKind.APPROVAL:
            return None
        return StepId(node.id, int(again["number"]) - 1)


def step_name(node: GraphNode, ordinal: int) -> StepName:
    """The step of the ``ordinal``-th begin of a node.

    Repeats are ``node#1``, ``node#2``. A decision is addressed by its reason, so a repeated approval has a reason of its own:
    ``release``, ``release 2``.
    """
    if node.kind is StepKind.APPROVAL:
        return StepName(gate_name(node.kind, reason_of(node, ordinal)))
    if node.is_gate:
        return StepName(numbered_name(gate_name(node.kind, node.what), ordinal))
    stem = f"{MILESTONE_PREFIX}{node.what}" if node.kind is StepKind.MILESTONE else node.id
    return StepName(numbered_name(stem, ordinal))


def reason_of(node: GraphNode, ordinal: int) -> str:
    """What the ``ordinal``-th begin of a gate waits for."""
    if node.kind is not StepKind.APPROVAL or ordinal == 0:
        return node.what
    return f"{node.what} {ordinal + 1}"


def node_of_step(name: str) -> str:
    """The node of a step that is a task's: its name without ``#n`` and ``[i]``."""
    shape = _SHAPE.fullmatch(name)
    return name if shape is None else shape["stem"]


def meant(text: str, ids: Iterable[str]) -> str:
    """The id that a text means: the same, or the one template (an id with ``${...}`` in it) that it fits.

    Raises ``Unknown`` and ``Ambiguous``: nothing is guessed.
    """
    known = tuple(ids)
    if text in known:
        return text
    fitting = [one for one in known if "${" in one and _pattern(one).fullmatch(text)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise Ambiguous(f"{text!r} fits {' and '.join(map(repr, fitting))}")
    near = get_close_matches(text, known, n=1)
    raise Unknown(f"{text!r} is not there" + (f"; did you mean {near[0]!r}?" if near else ""))


@lru_cache(maxsize=256)
def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, _HOLE.split(template))), flags=re.DOTALL)
