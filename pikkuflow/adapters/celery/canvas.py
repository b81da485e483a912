"""Durable canvas: what Celery's chain, group, chord, map, starmap and chunks become when they are started as a run (issue E, recipes 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from celery import Celery
from celery.utils.functional import arity_greater

from pikkuflow.domain.canvas import ERRBACK, CanvasRun, canvas_run
from pikkuflow.domain.definition import Registry

__all__ = ["Canvases"]


class Canvases:
    """Translates canvases of one app."""

    def __init__(self, app: Celery, registry: Registry) -> None:
        self._app = app
        self._registry = registry

    def run_of(
        self, canvas: Mapping[str, Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> CanvasRun:
        """The canvas as a graph and its arguments; see ``canvas_run``. Raises ``WorkflowDefinitionError``."""
        return canvas_run(canvas, is_known=self._is_known, takes_error=self._takes_error, args=args, kwargs=kwargs)

    def _is_known(self, task: str) -> bool:
        return task == ERRBACK or task in self._app.tasks or self._registry.find(task) is not None

    def _takes_error(self, task: str) -> bool:
        """Celery's own rule for the two kinds of errback."""
        header = getattr(self._app.tasks.get(task), "__header__", None)
        return header is not None and bool(arity_greater(header, 1))
