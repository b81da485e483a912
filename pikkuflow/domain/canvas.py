"""Celery's canvas as a graph: which node each signature becomes, and how arguments flow between them (issue E, recipes 3).

A canvas is read as the plain mappings that signatures are. The graph holds its shape only. Arguments go into what the run is started with
(the *trigger*, a list with one entry for each node), so canvases of one shape share one version.

A group whose members differ in their arguments only is one ``for_each`` node, as are ``map``, ``starmap`` and each part of ``chunks``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from pikkuflow.domain.canvas_read import Kind, items_of, kind_of, links_of, options_of, part_of, plain, tasks_of
from pikkuflow.domain.definition import WorkflowDefinition
from pikkuflow.domain.graph import IGNORE, Graph
from pikkuflow.domain.graph_input import CALL, FAILURE, ITEM, TRIGGER, UNKNOWN, Ref, ref, refs_in
from pikkuflow.domain.graph_outline import outline_of
from pikkuflow.domain.graph_read import graph_of, reads_of
from pikkuflow.domain.option_values import refuse_options
from pikkuflow.errors import WorkflowDefinitionError

__all__ = ["CANVAS", "ERRBACK", "CanvasRun", "canvas_definition", "canvas_run"]

CANVAS: Final = "pikkuflow.canvas"
"""The workflow that every durable canvas is a run of; the canvas itself is the run's version."""

ERRBACK: Final = "pikkuflow.errback"
"""The task that calls an errback which takes ``(request, exc, traceback)``."""

_OWN: Final = "pikkuflow."
"""What the names of tasks begin with that move runs: no work of a run."""

_RESERVED: Final = frozenset({TRIGGER, ITEM, FAILURE, UNKNOWN, IGNORE, ""})
_NOTHING: Final = object()
_SHOWN: Final = "pikkuflow_shown"
"""Key of a signature of ours: what its step is named after instead of its task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanvasRun:
    """A canvas about to run: its shape, and the arguments in it, with the shape's version at their end."""

    graph: Graph
    trigger: list[Any]

    def arguments(self) -> Iterator[tuple[str, Any]]:
        """Each task, and what it is given."""
        for node in self.graph.nodes.values():
            places = {one.path.partition(".")[0] for one in reads_of(node) if one.node == TRIGGER and one.path}
            for place in places:
                yield node.what, self.trigger[int(place)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Came:
    """What reaches a signature.

    ``value`` is what those before it gave, ``edges`` lead from their nodes (node and field). ``args`` and ``kwargs`` are partial arguments.
    ``before`` are nodes whose failure keeps it from beginning: a chord's header.
    """

    value: Any = _NOTHING
    edges: tuple[tuple[str, str], ...] = ()
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    before: tuple[str, ...] = ()

    def with_own(self, signature: Mapping[str, Any]) -> _Came:
        """With what a chain, group or chord has of its own; an immutable one takes nothing of what came."""
        came = replace(self, value=_NOTHING, args=(), kwargs={}) if signature.get("immutable") else self
        own = tuple(signature.get("args") or ())
        return replace(came, args=(*came.args, *own))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """What a signature became: its nodes without those of its links, and what reaches the next."""

    nodes: tuple[str, ...] = ()
    came: _Came


def canvas_definition(graph: Graph | None = None) -> WorkflowDefinition:
    """The workflow that runs a canvas. Without a graph: what every process knows, whose runs find theirs in the store."""
    if graph is None:
        graph = graph_of(CANVAS, nodes={"nothing": {"milestone": "nothing"}}, entry="nothing")
    planned, deterministic = outline_of(graph)
    return WorkflowDefinition(
        name=CANVAS,
        body=_started,
        version=graph.version,
        planned_steps=planned,
        deterministic=deterministic,
        graph=graph,
    )


def canvas_run(
    canvas: Mapping[str, Any],
    *,
    is_known: Callable[[str], bool],
    takes_error: Callable[[str], bool],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> CanvasRun:
    """Translate a canvas; nothing of it is changed.

    Args:
        canvas: a signature, with everything in it signatures or their plain mappings.
        is_known: whether a task or workflow of that name can be worked.
        takes_error: whether an errback of that name takes ``(request, exc, traceback)`` and not a task's id.
        args: partial arguments, which come before those of the first tasks, as ``canvas.apply_async(args)`` has it.
        kwargs: partial keyword arguments of the first tasks; they win.

    Raises:
        WorkflowDefinitionError: something in it cannot be made durable; the message names it.
    """
    builder = _Builder(is_known, takes_error)
    try:
        made = builder.of(canvas, _Came(args=tuple(args), kwargs=dict(kwargs or {})), {})
    except RecursionError:
        raise WorkflowDefinitionError(
            "The canvas is nested too deeply to be made durable, or holds itself.", hint="Write it as a workflow."
        ) from None
    if not builder.nodes:
        raise WorkflowDefinitionError("The canvas has no task in it.", hint="There is nothing to start.")
    value = None if made.came.value is _NOTHING else made.came.value
    graph = graph_of(CANVAS, nodes=builder.nodes, entry=builder.entry, output=value, fail_late=True)
    # One id and the same arguments are no other canvas.
    return CanvasRun(graph=graph, trigger=[*builder.trigger, graph.version])


class _Builder:
    def __init__(self, is_known: Callable[[str], bool], takes_error: Callable[[str], bool]) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.entry: list[str] = []
        self.trigger: list[Any] = []
        self._is_known = is_known
        self._takes_error = takes_error
        self._is_aside = False

    def of(self, signature: Any, came: _Came, outer: Mapping[str, Any]) -> _Made:
        """``outer`` are the options of the canvas around it, which win over its own."""
        kind = kind_of(signature)
        if kind is Kind.TASK:
            return self._task(signature, came, outer)
        made = self._COMPOSED[kind](self, signature, came, {**options_of(signature), **outer})
        self._link(signature, made, came.before)
        return made

    # --- shapes -------------------------------------------------------------------------------------------------------
    def _task(self, signature: Mapping[str, Any], came: _Came, outer: Mapping[str, Any]) -> _Made:
        args, kwargs = tuple(signature.get("args") or ()), dict(signature.get("kwargs") or {})
        first: list[Any] = []
        if not signature.get("immutable"):
            first = [] if came.value is _NOTHING else [came.value]
            args, kwargs = (*came.args, *args), {**kwargs, **came.kwargs}
        at = self._given({"args": list(args), "kwargs": kwargs})
        call = {"first": first, "args": ref(TRIGGER, f"{at}.args"), "kwargs": ref(TRIGGER, f"{at}.kwargs")}
        fields = {"input": {CALL: call}, _SHOWN: signature.get(_SHOWN)}
        node = self._node(signature["task"], fields, came, {**options_of(signature), **outer})
        made = _Made(nodes=(node,), came=_after(node))
        self._link(signature, made, came.before)
        return made

    def _chain(self, signature: Mapping[str, Any], came: _Came, options: Mapping[str, Any]) -> _Made:
        reaches, nodes = came.with_own(signature), list[str]()
        for at, step in enumerate(tasks_of(signature)):
            if kind_of(step) is Kind.GROUP and not tasks_of(step):
                # Celery leaves it out: what came goes to the next.
                continue
            made = self.of(step, reaches, options if at == 0 else {})
            nodes += made.nodes
            reaches = made.came
        return _Made(nodes=tuple(nodes), came=reaches)

    def _group(self, signature: Mapping[str, Any], came: _Came, options: Mapping[str, Any]) -> _Made:
        return self._members(tasks_of(signature), came.with_own(signature), options)

    def _members(self, members: Sequence[Any], came: _Came, options: Mapping[str, Any]) -> _Made:
        flat = list(_flat(members, options))
        if _are_alike(flat):
            return self._fan_of(flat, came)
        made = [self.of(member, came, own) for member, own in flat]
        values = [None if one.came.value is _NOTHING else one.came.value for one in made]
        edges = tuple(dict.fromkeys(edge for one in made for edge in one.came.edges))
        nodes = tuple(node for one in made for node in one.nodes)
        return _Made(nodes=nodes, came=_Came(value=values, edges=edges or came.edges))

    def _chord(self, signature: Mapping[str, Any], came: _Came, options: Mapping[str, Any]) -> _Made:
        came = came.with_own(signature)
        body = plain(part_of(signature, "body"), where="the body of a chord")
        header = tasks_of(signature)
        if not header:
            reaches = replace(came, value=[]) if came.value is _NOTHING else came
            return self.of(body, reaches, options)
        made = self._members(header, replace(came, before=()), options)
        ended = self.of(body, replace(made.came, before=(*came.before, *made.nodes)), options)
        return _Made(nodes=(*made.nodes, *ended.nodes), came=ended.came)

    def _map(self, signature: Mapping[str, Any], came: _Came, options: Mapping[str, Any]) -> _Made:
        return self._fan(signature, items_of(signature), came, options)

    def _chunks(self, signature: Mapping[str, Any], came: _Came, options: Mapping[str, Any]) -> _Made:
        items, size = items_of(signature), part_of(signature, "n")
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise WorkflowDefinitionError(f"Chunks of {size!r} items cannot be made.", hint="Give a number from 1.")
        parts = [items[at : at + size] for at in range(0, len(items), size)]
        if not parts:
            return self._fan(signature, [], came, options)
        made = [self._fan(signature, part, came, options) for part in parts]
        edges = tuple(edge for one in made for edge in one.came.edges)
        nodes = tuple(node for one in made for node in one.nodes)
        return _Made(nodes=nodes, came=_Came(value=[one.came.value for one in made], edges=edges))

    def _fan(self, signature: Mapping[str, Any], items: list[Any], came: _Came, options: Mapping[str, Any]) -> _Made:
        """A step for each item; what came is dropped, and the arguments of the task's signature, as Celery does it."""
        task = plain(part_of(signature, "task"), where=f"the task of {kind_of(signature)}")
        if kind_of(task) is not Kind.TASK:
            raise WorkflowDefinitionError(
                f"A {kind_of(task)} cannot be the task of {kind_of(signature)}.", hint="Write a group of canvases."
            )
        is_spread = kind_of(signature) is not Kind.MAP
        call: dict[str, Any] = {"args": ref(ITEM)} if is_spread else {"first": [ref(ITEM)]}
        if is_spread and any(not isinstance(item, list | tuple) for item in items):
            raise WorkflowDefinitionError(
                f"An item of {kind_of(signature)} over {task.get('task')!r} is no list of arguments.",
                hint="Write [(1,), (2,)], or use map.",
            )
        fields = {"input": {CALL: call}, "for_each": ref(TRIGGER, str(self._given([*items])))}
        node = self._node(task["task"], fields, came, options)
        return _Made(nodes=(node,), came=_after(node))

    def _fan_of(self, flat: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], came: _Came) -> _Made:
        """Members of one task are the items of one node, which join with one count."""
        first, options = flat[0]
        takes = not first.get("immutable")
        more = came if takes else _Came()
        items = [
            {
                "args": [*more.args, *(member.get("args") or ())],
                "kwargs": {**(member.get("kwargs") or {}), **more.kwargs},
            }
            for member, _ in flat
        ]
        call: dict[str, Any] = {"args": ref(ITEM, "args"), "kwargs": ref(ITEM, "kwargs")}
        if takes and came.value is not _NOTHING:
            call["first"] = [came.value]
        fields = {"input": {CALL: call}, "for_each": ref(TRIGGER, str(self._given(items)))}
        node = self._node(first["task"], fields, came, {**options_of(first), **options})
        return _Made(nodes=(node,), came=_after(node))

    _COMPOSED: Final[Mapping[Kind, Callable[..., _Made]]] = {
        Kind.CHAIN: _chain,
        Kind.GROUP: _group,
        Kind.CHORD: _chord,
        Kind.MAP: _map,
        Kind.STARMAP: _map,
        Kind.CHUNKS: _chunks,
    }

    # --- links --------------------------------------------------------------------------------------------------------
    def _link(self, signature: Mapping[str, Any], made: _Made, before: tuple[str, ...]) -> None:
        """What follows its success, and what its failure, or that of what it waited for."""
        callbacks, errbacks = links_of(signature)
        with self._aside():
            for callback in callbacks:
                self.of(callback, made.came, {})
            for errback in errbacks:
                self._errback(errback, (*before, *made.nodes))

    def _errback(self, errback: Mapping[str, Any], failing: Iterable[str]) -> None:
        came = _Came(value=ref(FAILURE, "id"), edges=tuple((node, "on_failure") for node in failing))
        if kind_of(errback) is not Kind.TASK or errback.get("immutable") or not self._takes_error(errback["task"]):
            self.of(errback, came, {})
            return
        self._check(errback["task"])
        own = [errback["task"], list(errback.get("args") or ()), dict(errback.get("kwargs") or {})]
        called = {"task": ERRBACK, _SHOWN: errback["task"], "args": own, "options": errback.get("options")}
        self.of(called, replace(came, value=ref(FAILURE)), {})

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Nodes made within it may fail: no callback of Celery's decides what becomes of the task before it."""
        was, self._is_aside = self._is_aside, True
        try:
            yield
        finally:
            self._is_aside = was

    # --- nodes --------------------------------------------------------------------------------------------------------
    def _given(self, value: Any) -> int:
        self.trigger.append(value)
        return len(self.trigger) - 1

    def _node(self, task: str, fields: dict[str, Any], came: _Came, options: Mapping[str, Any]) -> str:
        self._check(task)
        node = self._id(fields.pop(_SHOWN, None) or task)
        made = self.nodes[node] = {"task": task, **fields}
        if options:
            refuse_options(options, what=f"the signature of {task!r}")
            made["options"] = {
                key: value.isoformat() if isinstance(value, datetime) else value for key, value in options.items()
            }
        if self._is_aside:
            made["may_fail"] = True
        for source, edge in came.edges:
            self.nodes[source].setdefault(edge, []).append(node)
        if not came.edges:
            self.entry.append(node)
        awaited = [source for source, edge in came.edges if edge == "next"]
        read = {one.node for one in refs_in(fields["input"])}
        if len(awaited) > 1 and not read.issuperset(awaited):
            made["needs"] = [source for source in awaited if source not in read]
        return node

    def _check(self, task: str) -> None:
        if task.startswith(_OWN) and task != ERRBACK:
            raise WorkflowDefinitionError(f"{task!r} is pikkuflow's own and cannot be a part of a canvas.")
        if not self._is_known(task):
            raise WorkflowDefinitionError(
                f"Task {task!r} of the canvas is not known here.",
                hint="Import the module that defines it where the canvas is made.",
            )

    def _id(self, task: str) -> str:
        node, number = task, 1
        while node in self.nodes or node in _RESERVED:
            number += 1
            node = f"{task} {number}"
        return node


def _after(node: str) -> _Came:
    return _Came(value=Ref(node).fields(), edges=((node, "next"),))


def _flat(members: Sequence[Any], outer: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """The members of a group with the options around them; groups in it are laid open, in the order of writing (recipes 3)."""
    for member in members:
        signature = plain(member, where="a member of a group")
        if kind_of(signature) is Kind.GROUP and not any(links_of(signature)) and not signature.get("args"):
            yield from _flat(tasks_of(signature), {**options_of(signature), **outer})
        else:
            yield signature, outer


def _are_alike(flat: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> bool:
    """They differ in nothing but their arguments."""
    if len(flat) < 2:  # noqa: PLR2004 - one member alone has nobody to be like
        return False
    first, options = flat[0]
    said = first.get("task"), bool(first.get("immutable")), {**options_of(first), **options}
    return all(
        kind_of(member) is Kind.TASK
        and not any(links_of(member))
        and (member.get("task"), bool(member.get("immutable")), {**options_of(member), **own}) == said
        for member, own in flat
    )


def _started(wf: Any, trigger: Any, /) -> None:  # noqa: ARG001 - its signature is what counts
    """What the run of a canvas is started with; it is never called."""
    raise AssertionError("a canvas was called")
