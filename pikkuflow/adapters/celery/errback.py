"""Errbacks that take ``(request, exc, traceback)``: Celery calls them, and this task calls them for a durable canvas (recipes 3).

What a step failed with is stored as data, so the request and the exception are made of that: the exception's class is the real one where
its module is loaded, else one of the same name.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from celery import Celery
from celery.app.task import Context
from celery.utils.serialization import create_exception_cls

from pikkuflow.domain.canvas import ERRBACK
from pikkuflow.engine.current_step import current_step

__all__ = ["register_errback"]


def register_errback(app: Celery, base: type) -> None:
    """Add the task to this app; ``base`` keeps the app's own rules for tasks away from it."""

    @app.task(name=ERRBACK, base=base, shared=False)
    def errback(failure: Mapping[str, Any], task: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call an errback as Celery does: in its process, and with its own arguments behind."""
        run_id = current_step().run_id
        request = Context(id=failure["id"], task=failure["task"], root_id=run_id, parent_id=run_id, args=[], kwargs={})
        return app.tasks[task](request, _error_of(failure), failure.get("traceback"), *args, **kwargs)


def _error_of(failure: Mapping[str, Any]) -> BaseException:
    module, _, name = str(failure["type"]).rpartition(".")
    found = getattr(sys.modules.get(module) if module else builtins, name, None)
    if isinstance(found, type) and issubclass(found, Exception):
        with suppress(Exception):
            # A constructor of its own may take anything.
            return found(failure["error"])
    made: BaseException = create_exception_cls(name, module or "builtins")(failure["error"])
    return made
