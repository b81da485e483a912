"""Graph workflows as data: nodes, what they take, and what comes after them (spec 3.1).

A graph is made of plain JSON (``fields``), whatever it was written in, so that it can be stored and hashed. This module reads it;
``graph_check`` says what is wrong with the whole of it, ``graph_plan`` what to do next.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from hashlib import sha256
from typing import Any, Final

from pikkuflow.domain.graph_input import Ref, plain_input, ref_of
from pikkuflow.domain.status import StepKind
from pikkuflow.errors import WorkflowDefinitionError

__all__ = [
    "FORM",
    "IGNORE",
    "KINDS",
    "MAX_VISITS",
    "Edge",
    "Graph",
    "GraphNode",
    "Node",
    "as_json",
    "broken",
    "node_of",
]

IGNORE: Final = "ignore"
"""``recover="ignore"``: a node that failed for good is done, without an output (spec 3.6)."""

FORM: Final = 1
"""The version of the form that graphs are stored in."""

MAX_VISITS: Final = 10_000
"""How often a run may begin a node at most, unless its graph says otherwise."""

_VERSION_DIGITS: Final = 12

KINDS: Final = {
    "task": StepKind.TASK,
    "sleep": StepKind.SLEEP,
    "suspend": StepKind.SUSPEND,
    "approval": StepKind.APPROVAL,
    "wait_for": StepKind.SIGNAL,
    "milestone": StepKind.MILESTONE,
}
"""What a node does, by the one field of these that it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as an author writes it in Python; a mapping of the same fields, as in a file, says the same.

    Exactly one of ``task``, ``sleep``, ``suspend``, ``approval``, ``wait_for`` and ``milestone`` says what it does.

    ``task`` is a Celery task, a signature of one with message options, a workflow, or the name of either. ``input`` is what it is called
    with: a mapping gives keyword arguments, a list positional ones, anything else one argument; ``ref`` and ``template`` stand for what
    other nodes gave. ``next`` names the nodes that follow: one, several, or by the branch that the node chooses. ``for_each`` is a
    reference to a list: the node is worked for each of its items, ``mode`` "parallel" or "sequential". ``recover`` names the nodes that
    take over when it failed for good, or is "ignore". ``timeout`` is an attempt's, or how long a signal is waited for. ``notes`` are for
    readers. The other fields are those of ``wf.do``, ``wf.sleep`` and ``wf.approval``; a ``schema`` is named, ``"shop.forms:Release"``.
    """

    task: Any = None
    sleep: Any = None
    suspend: str | None = None
    approval: str | None = None
    wait_for: str | None = None
    milestone: str | None = None
    input: Any = None
    next: str | Sequence[str] | Mapping[str, str | Sequence[str]] | None = None
    for_each: Any = None
    mode: str | None = None
    recover: str | Sequence[str] | None = None
    retries: int | None = None
    retry_delay: float | timedelta | str | None = None
    dispatch: str | None = None
    compensate: bool | None = None
    record_start: bool | None = None
    timeout: float | timedelta | str | None = None
    heartbeat_timeout: float | timedelta | str | None = None
    expiry: float | timedelta | str | None = None
    approvers: str | None = None
    approver_scope: str | None = None
    schema: str | None = None
    options: Mapping[str, Any] | None = None
    notes: str | None = None

    def fields(self) -> dict[str, Any]:
        """What was said of it, durations as seconds."""
        said = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            # Not isinstance: a task may be a proxy, which that would wake.
            name: value.total_seconds() if issubclass(type(value), timedelta) else value
            for name, value in said.items()
            if value is not None
        }


@dataclass(frozen=True, slots=True)
class Edge:
    """What follows a node: ``target``, always or when the node chose the branch ``key``."""

    target: str
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNode:
    """A node as it was read.

    ``what`` is its task, reason, signal or milestone; ``keys`` are the branches that it may choose, also those that lead nowhere.
    ``needs`` are nodes that it waits for as if it referred to them. ``on_failure`` are begun when it failed for good; unlike ``recover``
    they rescue nothing. ``may_fail``: its failure ends its path, and not the run. ``fields`` is the JSON that it came from.
    """

    id: str
    kind: StepKind
    what: str
    input: Any = None
    next: tuple[Edge, ...] = ()
    keys: tuple[str, ...] = ()
    recover: tuple[str, ...] = ()
    ignores: bool = False
    for_each: Ref | None = None
    is_sequential: bool = False
    needs: tuple[str, ...] = ()
    on_failure: tuple[str, ...] = ()
    may_fail: bool = False
    fields: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def is_gate(self) -> bool:
        """It waits for the outside."""
        return self.kind in {StepKind.SUSPEND, StepKind.APPROVAL, StepKind.SIGNAL}

    @property
    def targets(self) -> tuple[str, ...]:
        """Every node that may follow it, whatever became of it."""
        return tuple(dict.fromkeys([*(edge.target for edge in self.next), *self.recover, *self.on_failure]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Graph:
    """A graph workflow. ``nodes`` are in the order in which they were written; that order decides between equals.

    ``entry`` are the nodes that a run begins with. ``context`` belongs to the application. ``max_visits`` bounds how often one run may
    begin one node. ``output`` is what its runs give: JSON with references. ``fail_late``: what can be worked without a node that failed is
    worked before the run fails.
    """

    name: str
    nodes: Mapping[str, GraphNode]
    entry: tuple[str, ...]
    context: Any = None
    notes: str | None = None
    max_visits: int = MAX_VISITS
    output: Any = None
    fail_late: bool = False

    def fields(self) -> dict[str, Any]:
        """The graph as JSON: what is stored of a version, and what ``Graph`` can be read from again."""
        said: dict[str, Any] = {"nodes": {node.id: dict(node.fields) for node in self.nodes.values()}}
        said["entry"] = list(self.entry)
        bound = None if self.max_visits == MAX_VISITS else self.max_visits
        optional = {"context": self.context, "notes": self.notes, "max_visits": bound, **self._ends()}
        return said | {name: value for name, value in optional.items() if value is not None}

    def to_json(self) -> str:
        """What is stored of this version of the graph; ``graph_from_json`` reads it."""
        return json.dumps({"schema": FORM, **self.fields()}, ensure_ascii=False)

    @property
    def version(self) -> str:
        """Twelve hexadecimal digits over everything that says what a run does; notes do not (spec 1.4)."""
        nodes = {
            node.id: {name: value for name, value in node.fields.items() if name != "notes"}
            for node in self.nodes.values()
        }
        said = {"source": "graph", "context": self.context, "nodes": nodes, "entry": list(self.entry)}
        said |= self._ends()
        text = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_VERSION_DIGITS]

    def _ends(self) -> dict[str, Any]:
        """What is said of a run's end, when it is."""
        said = {"output": self.output, "fail_late": self.fail_late or None}
        return {name: value for name, value in said.items() if value is not None}


def node_of(node_id: str, said: Mapping[str, Any]) -> GraphNode:
    """Read one node from its fields.

    Raises ``WorkflowDefinitionError``, which names the node, when the fields do not say one thing that it does, its ``mode`` is none, or
    a reference or template in it cannot be read.
    """
    kinds = [name for name in KINDS if said.get(name) is not None]
    if len(kinds) != 1:
        found = " and ".join(kinds) or "nothing to do"
        raise broken(node_id, f"has {found}", f"A node has one of {', '.join(KINDS)}.")
    kind = kinds[0]
    made = dict(said)
    try:
        if "input" in made:
            made["input"] = plain_input(made["input"])
        if kind == "sleep":
            made["sleep"] = plain_input(made["sleep"])
        for_each = None if said.get("for_each") is None else ref_of(said["for_each"])
        if for_each is not None:
            made["for_each"] = for_each.fields()
    except ValueError as error:
        raise broken(node_id, str(error)) from None
    made = as_json(made, what=f"Node {node_id!r}")
    recover = _texts(said.get("recover"))
    return GraphNode(
        id=node_id,
        kind=KINDS[kind],
        what="" if kind == "sleep" else str(said[kind]),
        input=made.get("input"),
        next=_edges(said.get("next")),
        keys=tuple(map(str, said["next"])) if isinstance(said.get("next"), Mapping) else (),
        recover=() if recover == (IGNORE,) else recover,
        ignores=recover == (IGNORE,),
        for_each=for_each,
        is_sequential=_is_sequential(node_id, said.get("mode")),
        needs=_texts(said.get("needs")),
        on_failure=_texts(said.get("on_failure")),
        may_fail=said.get("may_fail") is True,
        fields=made,
    )


def as_json(value: Any, *, what: str) -> Any:
    """The value as JSON has it. Raises ``WorkflowDefinitionError`` when it holds something that JSON has not."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise WorkflowDefinitionError(f"{what} holds what JSON has not: {error}.") from None


def broken(node_id: str, why: str, hint: str = "") -> WorkflowDefinitionError:
    """What is wrong with a node."""
    return WorkflowDefinitionError(f"Node {node_id!r} {why}.", hint=hint)


def _is_sequential(node_id: str, mode: str | None) -> bool:
    if mode not in {None, "parallel", "sequential"}:
        raise broken(node_id, f"has the mode {mode!r}", 'Give "parallel" or "sequential".')
    return mode == "sequential"


def _edges(following: Any) -> tuple[Edge, ...]:
    if isinstance(following, Mapping):
        return tuple(Edge(target, str(key)) for key, targets in following.items() for target in _texts(targets))
    return tuple(Edge(target) for target in _texts(following))


def _texts(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(str(text) for text in value)
