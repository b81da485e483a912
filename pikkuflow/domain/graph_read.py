"""Reading a graph workflow, and everything that can be wrong with one: said before a run exists, with the node's name (spec 3.2)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from pikkuflow.domain.duration import seconds_of
from pikkuflow.domain.gate import approvers_of
from pikkuflow.domain.graph import FORM, IGNORE, MAX_VISITS, Edge, Graph, GraphNode, Node, as_json, broken, node_of
from pikkuflow.domain.graph_input import FAILURE, ITEM, TRIGGER, UNKNOWN, Ref, plain_input, refs_in
from pikkuflow.domain.graph_names import Ambiguous, Unknown, meant, step_name
from pikkuflow.domain.graph_shape import endless_ring
from pikkuflow.domain.recorded_names import check_step_name
from pikkuflow.domain.retry import retries_of, retry_delay_text
from pikkuflow.domain.status import Dispatch, StepKind
from pikkuflow.errors import PikkuFlowError, WorkflowDefinitionError

__all__ = ["check_start", "graph_from_json", "graph_of", "not_a_list", "reads_of"]

_ALL: Final = frozenset({"next", "recover", "notes"})
_OWN: Final = {
    StepKind.TASK: frozenset(
        {
            *("task", "input", "for_each", "mode", "retries", "retry_delay", "dispatch", "compensate", "record_start"),
            *("timeout", "heartbeat_timeout", "options", "needs", "on_failure", "may_fail"),
        }
    ),
    StepKind.SLEEP: frozenset({"sleep"}),
    StepKind.SUSPEND: frozenset({"suspend"}),
    StepKind.APPROVAL: frozenset({"approval", "expiry", "approvers", "approver_scope", "schema"}),
    StepKind.SIGNAL: frozenset({"wait_for", "timeout"}),
    StepKind.MILESTONE: frozenset({"milestone"}),
}
"""The fields that a node of each kind may have."""

_RESERVED: Final = frozenset({TRIGGER, ITEM, FAILURE, UNKNOWN, IGNORE})
_LONGEST_ID: Final = 200
"""Characters: with a number and an item it is a key in every database."""

_APPROVAL_KEYS: Final = ("decided", "expired")


def graph_of(  # noqa: PLR0913 - each is one thing that a graph says
    name: str,
    *,
    nodes: Mapping[str, Node | Mapping[str, Any]],
    entry: str | Iterable[str],
    context: Any = None,
    notes: str | None = None,
    max_visits: int = MAX_VISITS,
    output: Any = None,
    fail_late: bool = False,
) -> Graph:
    """Read a graph and check the whole of it.

    Args:
        name: the workflow's name.
        nodes: the nodes by id, in the order that decides between equals; a mapping has the fields of ``Node``.
        entry: the id, or ids, of the nodes that a run begins with.
        context: JSON that belongs to the application; it is part of the version.
        notes: for readers.
        max_visits: how often one run may begin one node.
        output: what its runs give, JSON with references to nodes.
        fail_late: a failed node fails the run when nothing else is left to work.

    Raises:
        WorkflowDefinitionError: a node or the graph cannot work; the message names the node and what is wrong with it.
    """
    if not nodes:
        raise WorkflowDefinitionError(f"Graph {name!r} has no nodes.", hint='Write nodes={"first": Node(task=...)}.')
    read = {str(node_id): node_of(str(node_id), _fields(said)) for node_id, said in nodes.items()}
    found = {node_id: _with_targets(node, read) for node_id, node in read.items()}
    graph = Graph(
        name=name,
        nodes=found,
        entry=_entry(name, entry, read),
        context=as_json(context, what=f"The context of graph {name!r}"),
        notes=notes,
        max_visits=_visits(name, max_visits),
        output=_output(name, output, found),
        fail_late=fail_late,
    )
    for node in found.values():
        _check_node(node, found)
    _check_names(found)
    _check_rings(graph)
    return graph


def graph_from_json(name: str, text: str) -> Graph:
    """The graph that ``Graph.to_json`` wrote.

    Raises ``WorkflowDefinitionError`` when the text is none, or one of another form.
    """
    try:
        said = json.loads(text)
        form = said.pop("schema")
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise WorkflowDefinitionError(f"What is stored of graph {name!r} is no graph: {error!r}.") from None
    if form != FORM:
        raise WorkflowDefinitionError(
            f"Graph {name!r} is stored in form {form!r}, and this is form {FORM}.",
            hint="It was stored by another release of pikkuflow, which can still run it.",
        )
    return graph_of(name, **said)


def _fields(said: Node | Mapping[str, Any]) -> Mapping[str, Any]:
    return said.fields() if isinstance(said, Node) else said


def _visits(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise WorkflowDefinitionError(f"Graph {name!r} has max_visits={value!r}, which is no number from 1.")
    return value


def _entry(name: str, entry: str | Iterable[str], nodes: Mapping[str, GraphNode]) -> tuple[str, ...]:
    wanted = [entry] if isinstance(entry, str) else list(entry or ())
    if not wanted:
        raise WorkflowDefinitionError(f"Graph {name!r} has no entry.", hint="Name the node that a run begins with.")
    try:
        return tuple(dict.fromkeys(meant(str(one), nodes) for one in wanted))
    except (Unknown, Ambiguous) as error:
        raise WorkflowDefinitionError(f"Graph {name!r} has an entry that is no node: {error}.") from None


def _with_targets(node: GraphNode, nodes: Mapping[str, GraphNode]) -> GraphNode:
    """The node with the ids that its ``next`` and ``recover`` mean."""
    what = "next"
    try:
        following = tuple(Edge(meant(edge.target, nodes), edge.key) for edge in node.next)
        what = "recover"
        recover = tuple(meant(target, nodes) for target in node.recover)
    except Unknown as error:
        raise broken(node.id, f"names a {what} that is no node: {error}") from None
    except Ambiguous as error:
        raise broken(node.id, f"names a {what} that is more than one node: {error}", "Write the id itself.") from None
    for target in (*node.on_failure, *node.needs):
        if target not in nodes:
            raise broken(node.id, f"names {target!r}, which is no node")
    return replace(node, next=tuple(dict.fromkeys(following)), recover=tuple(dict.fromkeys(recover)))


def _output(name: str, output: Any, nodes: Mapping[str, GraphNode]) -> Any:
    try:
        made = as_json(plain_input(output), what=f"The output of graph {name!r}")
    except ValueError as error:
        raise WorkflowDefinitionError(f"The output of graph {name!r} {error}.") from None
    for one in refs_in(made):
        if one.node != TRIGGER and one.node not in nodes:
            raise WorkflowDefinitionError(f"The output of graph {name!r} refers to {one.node!r}, which is no node.")
    return made


# --- one node ---------------------------------------------------------------------------------------------------------


def _check_node(node: GraphNode, nodes: Mapping[str, GraphNode]) -> None:
    _check_id(node)
    for name in node.fields:
        if name not in _ALL | _OWN[node.kind]:
            allowed = ", ".join(sorted(_ALL | _OWN[node.kind]))
            raise broken(node.id, f"has a field {name!r}, which does not belong to it", f"It may have {allowed}.")
    try:
        check_step_name(node.id)
        step_name(node, 0)
        _check_values(node.fields, node.kind)
    except (PikkuFlowError, TypeError, ValueError) as error:
        raise broken(node.id, f"cannot work: {str(error).rstrip('.')}") from None
    _check_branches(node)
    for one in reads_of(node):
        _check_ref(node, one, nodes)
    if node.for_each is not None and node.for_each.node == ITEM:
        raise broken(node.id, "is to be worked for each $item, which it has not yet")
    if node.fields.get("mode") is not None and node.for_each is None:
        raise broken(node.id, "has a mode and no for_each")


def _check_id(node: GraphNode) -> None:
    if node.id in _RESERVED:
        raise broken(node.id, "has an id that means something else", f"{', '.join(sorted(_RESERVED))} are kept.")
    if len(node.id) > _LONGEST_ID:
        raise broken(f"{node.id[:20]}…", f"has an id of {len(node.id)} characters", f"{_LONGEST_ID} are the most.")


def reads_of(node: GraphNode) -> tuple[Ref, ...]:
    """Every reference in what a node takes."""
    own = () if node.for_each is None else (node.for_each,)
    taken = [node.input, node.fields.get("sleep") if node.kind is StepKind.SLEEP else None]
    needed = (Ref(node_id) for node_id in node.needs)
    return (*own, *(one for value in taken for one in refs_in(value)), *needed)


def _check_values(fields: Mapping[str, Any], kind: StepKind) -> None:
    for name, check in _VALUES.items():
        if name in fields:
            check(fields[name])
    if kind is StepKind.SLEEP and not isinstance(fields["sleep"], Mapping):
        seconds_of(fields["sleep"], what="sleep")


def _flag(value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")


def _dotted(value: str) -> None:
    module, _, name = value.partition(":")
    if not module or not name:
        raise ValueError(f"schema={value!r} names nothing: write module:name")


_VALUES: Final[Mapping[str, Callable[[Any], object]]] = {
    "retries": lambda value: retries_of(value, what="retries"),
    "retry_delay": retry_delay_text,
    "dispatch": lambda value: Dispatch(str(value)),
    "timeout": lambda value: seconds_of(value, what="timeout"),
    "heartbeat_timeout": lambda value: seconds_of(value, what="heartbeat_timeout"),
    "expiry": lambda value: seconds_of(value, what="expiry"),
    "approvers": approvers_of,
    "schema": _dotted,
    "compensate": _flag,
    "record_start": _flag,
    "may_fail": _flag,
}
"""How the value of a field is looked at; each raises what is wrong with it."""


def _check_branches(node: GraphNode) -> None:
    if not node.keys:
        return
    if node.kind is StepKind.APPROVAL:
        strange = [key for key in node.keys if key not in _APPROVAL_KEYS]
        if strange:
            raise broken(node.id, f"has a branch {strange[0]!r}", "An approval is decided or expired.")
        if "expiry" in node.fields and "expired" not in node.keys:
            raise broken(node.id, "may expire and has no branch 'expired'", 'Write "expired": [] if nothing follows.')
    elif node.kind is not StepKind.TASK or node.for_each is not None:
        raise broken(
            node.id, "cannot choose a branch", "Only a single task or an approval does. Name its next as one or a list."
        )


def _check_ref(node: GraphNode, one: Ref, nodes: Mapping[str, GraphNode]) -> None:
    if one.node == ITEM and node.for_each is None:
        raise broken(node.id, "refers to $item and has no for_each")
    if one.node in {TRIGGER, ITEM, FAILURE}:
        return
    if one.node == UNKNOWN and UNKNOWN not in nodes:
        raise broken(node.id, "has a template with more placeholders than references")
    if one.node not in nodes:
        try:
            meant(one.node, nodes)
        except ValueError as error:
            raise broken(node.id, f"refers to a node that does not exist: {error}") from None
        raise broken(node.id, f"refers to {one.node!r}, which is no id", "Refer to a node by the id itself.")


# --- all of them ------------------------------------------------------------------------------------------------------


def _check_names(nodes: Mapping[str, GraphNode]) -> None:
    """Each node's steps have names of their own."""
    stems: dict[str, GraphNode] = {}
    for node in nodes.values():
        other = stems.setdefault(step_name(node, 0), node)
        if other is not node:
            raise broken(
                node.id, f"waits for the same as node {other.id!r}", f"{node.what!r} is an identity: change one."
            )
    for node in nodes.values():
        stem, _, number = step_name(node, 0).rpartition(" ")
        other = stems.get(stem, node)
        if number.isdecimal() and other is not node and other.kind is StepKind.APPROVAL:
            raise broken(node.id, f"has the reason that approval {other.id!r} has when it is asked for again")


def _check_rings(graph: Graph) -> None:
    ring = endless_ring(graph)
    if ring:
        raise broken(
            ring[0],
            f"begins itself again for ever ({' -> '.join([*ring, ring[0]])}): no node of this cycle chooses what follows",
            'Give one of them next={"again": ..., "done": ...} and call current_step().branch("done").',
        )


def check_start(graph: Graph, trigger: Any, start_node: str | None = None) -> None:
    """What can be seen to be wrong with what a run is started with.

    Raises ``WorkflowDefinitionError`` when the node to begin with is no entry (spec 12.5), or when an entry is to be worked for each item
    of something that is no list.
    """
    if start_node is not None and start_node not in graph.entry:
        allowed = ", ".join(graph.entry)
        raise WorkflowDefinitionError(f"{start_node!r} is no entry of graph {graph.name!r}.", hint=f"It has {allowed}.")
    for node_id in graph.entry if start_node is None else (start_node,):
        node = graph.nodes[node_id]
        if node.for_each is not None and node.for_each.node == TRIGGER:
            items = node.for_each.read(trigger)
            if not isinstance(items, list | tuple):
                raise not_a_list(node, items)


def not_a_list(node: GraphNode, items: Any) -> WorkflowDefinitionError:
    """A ``for_each`` that has no items to take (spec 3.4)."""
    source = "" if node.for_each is None else f" of {node.for_each.node!r}"
    where = "" if node.for_each is None or node.for_each.path is None else f" at {node.for_each.path!r}"
    return broken(node.id, f"is to be worked for each item{source}{where}, which is {type(items).__name__} and no list")
