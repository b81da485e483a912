"""A canvas that is started as a run (issue E, Build 3)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pikkuflow.adapters.celery.canvas import Canvases
from pikkuflow.adapters.celery.extension import Extension
from pikkuflow.adapters.celery.starting import Origin, begin, begin_here, handle_of, trail_of
from pikkuflow.domain.canvas import CANVAS, CanvasRun, canvas_definition
from pikkuflow.domain.duration import run_timeout_of
from pikkuflow.domain.graph import Graph
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.run import NewRun
from pikkuflow.engine.own_version import store_graph
from pikkuflow.engine.run_handle import Run
from pikkuflow.errors import PayloadError
from pikkuflow.ports.surroundings import Codec

__all__ = ["DurableCanvas", "durable"]


def durable(ext: Extension, canvas: Mapping[str, Any]) -> DurableCanvas:
    """The canvas, once it was found that it can be made durable. Raises ``WorkflowDefinitionError``."""
    return DurableCanvas(ext, canvas, Canvases(ext.app, ext.registry).run_of(canvas))


@dataclass(frozen=True, slots=True)
class DurableCanvas:
    """A canvas that is started as a run: ``pikku.durable(chain(...))``."""

    _ext: Extension
    _canvas: Mapping[str, Any]
    _whole: CanvasRun

    @property
    def graph(self) -> Graph:
        """What a run of it walks."""
        return self._whole.graph

    def start(
        self,
        *args: Any,
        run_id: str | None = None,
        owner: str | None = None,
        timeout: float | timedelta | str | None = None,
        **kwargs: Any,
    ) -> Run[Any]:
        """Start a run of it: it is durable once this returns.

        Args:
            args: come before the arguments of the first tasks, as ``canvas.delay(...)`` has it.
            run_id: the run's id. The same id with the same arguments is the same run.
            owner: whose run it is.
            timeout: how long the run may take in all, in seconds, as a ``timedelta`` or text such as ``"2h"``.
            kwargs: keyword arguments of the first tasks.

        Raises:
            PayloadError: an argument cannot be stored.
            DurationError: the timeout is 0 or no duration.
            RunExists: the id is taken by another workflow or other arguments.
            NoBroker: the app has no broker; ``run_inline`` needs none.
            StoreUnavailable: the database does not answer; nothing was started.
        """
        trail = trail_of(self._ext.app.current_worker_task, {}, run_id)
        run = self._made(Origin(kind="start", owner=owner, **trail), (args, kwargs), run_id, timeout)
        begin(self._ext, [run])
        return handle_of(self._ext, run.id)

    def run_inline(
        self,
        *args: Any,
        run_id: str | None = None,
        owner: str | None = None,
        timeout: float | timedelta | str | None = None,
        **kwargs: Any,
    ) -> Run[Any]:
        """Run the whole of it here, durably, without broker or worker (D26). Raises as ``start``, and ``LeaseLost``."""
        run = self._made(Origin(kind="inline", owner=owner, inline=True), (args, kwargs), run_id, timeout)
        begin_here(self._ext, run)
        return handle_of(self._ext, run.id)

    def _made(
        self,
        origin: Origin,
        given: tuple[tuple[Any, ...], Mapping[str, Any]],
        run_id: str | None,
        timeout: float | timedelta | str | None,
    ) -> NewRun:
        rt = self._ext.runtime
        args, kwargs = given
        whole = (
            Canvases(self._ext.app, self._ext.registry).run_of(self._canvas, args, kwargs)
            if args or kwargs
            else self._whole
        )
        definition = canvas_definition(whole.graph)
        made = NewRun(
            id=RunId(rt.ids.new_id() if run_id is None else run_id),
            workflow=CANVAS,
            version=definition.version,
            input=_input(rt.codec, whole),
            inline=origin.inline,
            owner=origin.owner,
            wire=origin.wire(),
            planned_steps=None if definition.planned_steps is None else json.dumps(definition.planned_steps),
            deterministic=definition.deterministic,
            timeout_seconds=run_timeout_of(timeout, workflow=CANVAS),
        )
        store_graph(rt, definition)
        return made


def _input(codec: Codec, whole: CanvasRun) -> str:
    try:
        return codec.encode({"args": [whole.trigger], "kwargs": {}}, what="the arguments of the canvas")
    except PayloadError:
        for node, given in whole.arguments():
            codec.encode(given, what=f"the arguments of {node!r}")
        raise
