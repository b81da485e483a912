"""Making a new run out of what a caller gave: arguments checked and encoded once, where it came from, what is handed on at its end."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from celery import Celery
from celery.app.task import Context
from celery.utils.time import maybe_iso8601, maybe_make_aware

from pikkuflow.adapters.celery.extension import Extension, extension_of
from pikkuflow.domain.duration import run_timeout_of, seconds_of
from pikkuflow.domain.graph_read import check_start
from pikkuflow.domain.graph_step import START_NODE, trigger_of
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.run import NewRun
from pikkuflow.engine.run_handle import Run
from pikkuflow.engine.run_inline import run_inline
from pikkuflow.engine.start import start_runs

__all__ = ["Call", "Origin", "begin", "begin_here", "delay_of", "handle_of", "new_run", "trail_of"]

_TRACE_HEADERS: Final = ("traceparent", "tracestate")


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of one run for ``start_many``: ``Call((42,), run_id="order-42")``."""

    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    run_id: str | None = field(default=None, kw_only=True)
    owner: str | None = field(default=None, kw_only=True)
    timeout: float | timedelta | str | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a run comes from. ``kind`` is how it was started; ``parent_id`` and ``root_id`` are Celery's trail.

    ``start_node`` is the entry that a graph is to begin with.
    """

    kind: str
    owner: str | None = None
    parent_id: str | None = None
    root_id: str | None = None
    headers: Mapping[str, Any] | None = None
    handover: str | None = None
    delay_seconds: float | None = None
    inline: bool = False
    start_node: str | None = None

    def wire(self) -> str:
        """The small JSON that is stored with the run (spec 1.1)."""
        traced = {key: self.headers[key] for key in _TRACE_HEADERS if key in self.headers} if self.headers else {}
        said = {
            "type": self.kind,
            "pikkuUserId": self.owner,
            "parentId": self.parent_id,
            "rootId": self.root_id,
            START_NODE: self.start_node,
            **traced,
        }
        return json.dumps({key: value for key, value in said.items() if value is not None})


def new_run(task: Any, call: Call, origin: Origin) -> NewRun:
    """The record of a run about to be inserted. ``task`` is the workflow's task.

    Raises:
        TypeError: the arguments do not fit the workflow.
        WorkflowNotFound: the workflow is not registered here.
        WorkflowDefinitionError: a graph cannot begin with what is given, or at that node.
        PayloadError: an argument cannot be stored, or all of them are too large.
        DurationError: the timeout is 0 or no duration.
    """
    if task.typing:
        task.__header__(*call.args, **call.kwargs)
    rt = extension_of(task.app).runtime
    definition = rt.registry.get(task.pikkuflow_workflow)
    if definition.graph is not None:
        check_start(definition.graph, trigger_of(call.args, call.kwargs), origin.start_node)
    timeout = run_timeout_of(call.timeout, workflow=definition.name)
    given = {"args": list(call.args), "kwargs": dict(call.kwargs)}
    return NewRun(
        id=RunId(rt.ids.new_id() if call.run_id is None else call.run_id),
        workflow=definition.name,
        version=definition.version,
        input=rt.codec.encode(given, what=f"input of workflow {definition.name!r}"),
        inline=origin.inline,
        owner=origin.owner if call.owner is None else call.owner,
        wire=origin.wire(),
        planned_steps=None if definition.planned_steps is None else json.dumps(definition.planned_steps),
        deterministic=definition.deterministic,
        delay_seconds=origin.delay_seconds,
        timeout_seconds=definition.timeout_seconds if timeout is None else timeout,
        handover=origin.handover,
    )


def begin(ext: Extension, runs: Sequence[NewRun], on_created: Callable[[str], None] | None = None) -> None:
    """Insert runs and wake them; in an app whose tasks are always eager, run each here instead, as any of its tasks.

    Raises what ``start_runs`` and ``run_inline`` raise.
    """
    if ext.app.conf.task_always_eager:
        for run in runs:
            begin_here(ext, replace(run, inline=True, delay_seconds=None), on_created)
        return
    start_runs(ext.runtime, runs)
    for run in runs:
        if on_created is not None:
            on_created(run.id)


def begin_here(ext: Extension, run: NewRun, on_created: Callable[[str], None] | None = None) -> None:
    """Insert a run and run the whole of it here. ``on_created`` is called before anything of it can fail (T1.15)."""
    start_runs(ext.runtime, [run])
    if on_created is not None:
        on_created(run.id)
    run_inline(ext.runtime, run.id)


def handle_of(ext: Extension, run_id: str) -> Run[Any]:
    """The user's handle of a run."""
    return Run(run_id, lambda: ext.runtime)


def trail_of(parent: Any, options: Mapping[str, Any], run_id: str | None) -> dict[str, Any]:
    """Celery's trail: the ids of the message that is worked here, if any, and of the first of its kin."""
    request: Context | None = parent.request if parent is not None else None
    return {
        "parent_id": options.get("parent_id") or (request and request.id),
        "root_id": options.get("root_id") or (request and (request.root_id or request.id)) or run_id,
    }


def delay_of(app: Celery, now: datetime, countdown: Any, eta: Any) -> float | None:
    """Seconds until the first pass, from Celery's ``countdown`` or ``eta``; None when there is neither or its time has passed.

    Raises ``DurationError`` for a countdown that is no number of seconds.
    """
    if countdown is not None:
        return seconds_of(countdown, what="countdown") or None
    if eta is None:
        return None
    moment: Any = maybe_iso8601(eta)
    seconds: float = (maybe_make_aware(moment, app.timezone) - now).total_seconds()
    return seconds if seconds > 0 else None
