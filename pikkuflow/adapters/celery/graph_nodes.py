"""Nodes as their author wrote them in Python, as data: tasks and signatures by name (spec 3.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from keyword import iskeyword
from typing import Any, TypedDict

from celery import Celery, Task

from pikkuflow.adapters.celery.lazy_tasks import is_lazy, lazy_name
from pikkuflow.adapters.celery.message_options import REFUSED_OPTIONS
from pikkuflow.adapters.graph_files import checked_node
from pikkuflow.domain.definition import WorkflowDefinition, dispatch_of
from pikkuflow.domain.duration import run_timeout_of
from pikkuflow.domain.graph import MAX_VISITS, Node
from pikkuflow.domain.graph_outline import outline_of
from pikkuflow.domain.graph_read import graph_of
from pikkuflow.errors import WorkflowDefinitionError

__all__ = ["GraphChoices", "Nodes", "graph_body", "graph_definition", "plain_nodes"]


Nodes = Mapping[str, Node | Mapping[str, Any]]
"""The nodes of a graph by id."""


def plain_nodes(nodes: Nodes, app: Celery | None = None) -> dict[str, Mapping[str, Any]]:
    """Every node as checked data; the tasks in them are named as that app names them, and not made.

    Raises ``WorkflowDefinitionError``, which names the node and the field.
    """
    return {str(node_id): _checked(str(node_id), _plain(str(node_id), said, app)) for node_id, said in nodes.items()}


def _checked(node_id: str, said: Mapping[str, Any]) -> dict[str, Any]:
    fields = checked_node(node_id, said)
    for key, hint in REFUSED_OPTIONS.items():
        if (fields.get("options") or {}).get(key):
            raise WorkflowDefinitionError(f"Node {node_id!r} has the option {key}, which no step can carry.", hint=hint)
    return fields


def _plain(node_id: str, said: Node | Mapping[str, Any], app: Celery | None) -> dict[str, Any]:
    if not isinstance(said, Node | Mapping):
        raise WorkflowDefinitionError(
            f"Node {node_id!r} is {type(said).__name__}.", hint="Write Node(task=...), or a mapping of the same."
        )
    fields = said.fields() if isinstance(said, Node) else dict(said)
    task = fields.get("task")
    if is_lazy(task):
        return fields | {"task": lazy_name(task, app)}
    if task is None or isinstance(task, str):
        return fields
    if isinstance(task, Mapping):
        return fields | _of_signature(node_id, task, fields)
    if isinstance(task, Task):
        return fields | {"task": str(task.name)}
    raise WorkflowDefinitionError(
        f"Node {node_id!r} has the task {task!r}, which is none.", hint="Give a Celery task, a workflow, or a name."
    )


def _of_signature(node_id: str, signature: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """A signature's task and options, and its arguments as the node's input."""
    task, args, kwargs = signature.get("task"), signature.get("args"), signature.get("kwargs")
    if not isinstance(task, str) or signature.get("subtask_type"):
        raise WorkflowDefinitionError(f"Node {node_id!r} has the task {signature!r}, which is no task's signature.")
    if args and kwargs:
        raise WorkflowDefinitionError(
            f"Node {node_id!r} has a signature with positional and keyword arguments.", hint="Use one kind of them."
        )
    made: dict[str, Any] = {"task": task}
    if args or kwargs:
        if "input" in fields:
            raise WorkflowDefinitionError(f"Node {node_id!r} has an input and a signature with arguments.")
        made["input"] = list(args) if args else dict(kwargs or {})
    options = {key: value for key, value in (signature.get("options") or {}).items() if value is not None}
    if options:
        made["options"] = {**options, **(fields.get("options") or {})}
    return made


class GraphChoices(TypedDict, total=False):
    """What may be said of a graph workflow beside its nodes.

    ``context`` is JSON of the application's own, a part of the version; ``notes`` are for readers. ``max_visits`` is how often one run may
    begin one node (10,000): a cycle that finds no way out fails the run then. The others are those of a workflow function.
    """

    context: Any
    notes: str | None
    max_visits: int
    timeout: float | timedelta | str | None
    queue: str | None
    dispatch: str | None
    quick: bool
    task_options: Mapping[str, Any]


def graph_definition(
    name: str, nodes: Nodes, entry: str | Iterable[str], choices: GraphChoices, app: Celery | None = None
) -> WorkflowDefinition:
    """The workflow that a graph is.

    Raises ``WorkflowDefinitionError``, which names the node and what is wrong with it, and ``DurationError`` for an unusable timeout.
    """
    graph = graph_of(
        name,
        nodes=plain_nodes(nodes, app),
        entry=entry,
        context=choices.get("context"),
        notes=choices.get("notes"),
        max_visits=choices.get("max_visits", MAX_VISITS),
    )
    planned, deterministic = outline_of(graph)
    return WorkflowDefinition(
        name=graph.name,
        body=graph_body(graph.name, graph.notes),
        version=graph.version,
        queue=choices.get("queue"),
        dispatch=dispatch_of(choices.get("dispatch")),
        quick=choices.get("quick", False),
        timeout_seconds=run_timeout_of(choices.get("timeout"), workflow=name),
        planned_steps=planned,
        deterministic=deterministic,
        graph=graph,
    )


def graph_body(name: str, notes: str | None) -> Callable[..., Any]:
    """What Celery takes for the graph's function: it says what a run may be started with, and is never called."""

    def started(wf: Any, trigger: Any = None, /, **fields: Any) -> None:  # noqa: ARG001 - its signature is what counts
        raise AssertionError(f"graph {name!r} was called")

    # Celery makes a function of that name, to check arguments with.
    last = name.rpartition(".")[2]
    started.__name__ = started.__qualname__ = last if last.isidentifier() and not iskeyword(last) else "graph"
    started.__doc__ = notes or f"The graph workflow {name}."
    return started
