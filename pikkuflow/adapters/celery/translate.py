"""What a user hands to ``wf`` as a plain call: a task or its signature, a function, a workflow (design 1).

Called for every durable call of every pass, so it reads the fields of a signature (which is a dict) and builds nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from celery import Celery, Task

from pikkuflow.adapters.celery.canvas import Canvases
from pikkuflow.adapters.schemas import schema_of
from pikkuflow.domain.canvas import CANVAS
from pikkuflow.domain.canvas_read import Kind, kind_of
from pikkuflow.domain.command import StepCall
from pikkuflow.domain.definition import Registry
from pikkuflow.domain.gate import Schema
from pikkuflow.domain.status import StepKind
from pikkuflow.errors import WorkflowDefinitionError
from pikkuflow.replay.options import StepOptions

__all__ = ["SignatureTranslator"]

_REFUSED: Final = {
    "link": "Write what comes next as another step.",
    "link_error": "Catch StepFailed in the workflow instead.",
    "task_id": "A step's id is its invocation id; a signature that was frozen or applied cannot be a step.",
}


@dataclass(frozen=True, slots=True)
class _Member:
    """One member of a map: a task with its item."""

    task: Any
    item: Any


class SignatureTranslator:
    """Implements replay's ``Translate``.

    ``undo_task_of`` names the task that undoes a task, or None. What is known by name only (``app.signature("name")``) is taken
    for a task: only the worker that runs it can know better.
    """

    def __init__(
        self, app: Celery, registry: Registry, *, undo_task_of: Callable[[str], str | None] = lambda _task: None
    ) -> None:
        self._app = app
        self._registry = registry
        self._undo_task_of = undo_task_of
        self._canvases = Canvases(app, registry)

    def __call__(self, what: Any, name: str | None, options: StepOptions) -> StepCall:
        """The call that ``what`` stands for; see ``Translate``."""
        args: tuple[Any, ...] = ()
        if isinstance(what, _Member):
            what, args = what.task, (what.item,)
        if isinstance(what, Mapping):
            return self._of_signature(what, args, name, options)
        if isinstance(what, Task):
            return self._of_task(str(what.name), args, {}, {}, (name, options))
        if callable(what):
            return _of_function(what, args, name, options)
        raise WorkflowDefinitionError(
            f"{what!r} cannot be a step.",
            hint='Give a signature (charge.s(1)), a function without arguments, or app.signature("task name").',
        )

    def schema(self, schema: Any) -> Schema:
        """As ``schema_of``."""
        return schema_of(schema)

    def member(self, task: Any, item: Any) -> Any:
        """``task(item)``.

        A signature is completed as Celery does it: the item comes before the arguments it has, and an immutable one keeps its own.
        """
        return _Member(task, item)

    def _of_signature(
        self, what: Mapping[str, Any], items: tuple[Any, ...], name: str | None, options: StepOptions
    ) -> StepCall:
        task = what.get("task")
        if not isinstance(task, str) or not task:
            raise WorkflowDefinitionError(f"{what!r} is no signature.", hint="A signature names its task.")
        if task.startswith("celery.") and kind_of(what) is not Kind.TASK:
            call = self._of_task(CANVAS, (), {}, {}, (name or str(kind_of(what)), options))
            return replace(call, canvas=lambda: self._canvases.run_of(what, items))
        own = what.get("options") or {}
        for key, hint in _REFUSED.items():
            if own.get(key):
                raise WorkflowDefinitionError(f"A step's signature ({task}) cannot carry {key}.", hint=hint)
        args = tuple(what.get("args") or ())
        if not what.get("immutable"):
            args = (*items, *args)
        return self._of_task(task, args, dict(what.get("kwargs") or {}), own, (name, options))

    def _of_task(
        self,
        task: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        own: Mapping[str, Any],
        given: tuple[str | None, StepOptions],
    ) -> StepCall:
        name, options = given
        workflow = self._workflow_of(task)
        return StepCall(
            name=name or task,
            kind=StepKind.TASK if workflow is None else StepKind.CHILD,
            task=workflow or task,
            args=args,
            kwargs=kwargs,
            retries=options.retries,
            retry_delay=options.retry_delay,
            no_retry_on=options.no_retry_on,
            dispatch=options.dispatch,
            record_start=options.record_start,
            quick=options.quick,
            undo_task=(workflow or self._undo_task_of(task)) if options.compensate else None,
            detached=options.detached,
            timeout_seconds=options.timeout_seconds,
            heartbeat_seconds=options.heartbeat_seconds,
            options=own,
        )

    def _workflow_of(self, task: str) -> str | None:
        if self._registry.find(task) is not None:
            return task
        workflow = getattr(self._app.tasks.get(task), "pikkuflow_workflow", None)
        return None if workflow is None else str(workflow)


def _of_function(what: Callable[..., Any], items: tuple[Any, ...], name: str | None, options: StepOptions) -> StepCall:
    function = partial(what, *items) if items else what
    plain = what
    while isinstance(plain, partial):
        plain = plain.func
    if inspect.iscoroutinefunction(plain):
        raise WorkflowDefinitionError(
            f"{_name_of(plain) or plain!r} is a coroutine and cannot be a step.", hint="Write it with def."
        )
    if isinstance(plain, type) and issubclass(plain, Task):
        raise WorkflowDefinitionError(f"{plain.__name__} is the class of a task.", hint="Give the registered task.")
    called = name or _name_of(plain)
    if called is None:
        raise WorkflowDefinitionError(
            "A lambda has no name of its own.", hint='Name the step: wf.do("today", lambda: ...).'
        )
    return StepCall(
        name=called,
        kind=StepKind.FUNCTION,
        function=function,
        retries=options.retries,
        retry_delay=options.retry_delay,
        no_retry_on=options.no_retry_on,
        dispatch=options.dispatch,
        record_start=options.record_start,
        timeout_seconds=options.timeout_seconds,
        heartbeat_seconds=options.heartbeat_seconds,
        quick=options.quick,
    )


def _name_of(function: Any) -> str | None:
    name = getattr(function, "__name__", None) or type(function).__name__
    return None if name == "<lambda>" else str(name)
