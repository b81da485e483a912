"""The name of a task that Celery has not made yet.

``@app.task`` and ``@shared_task`` give proxies; asking one for its name makes the task, which finalizes and configures the app in the
middle of an import (recipes 10). A graph needs the name when it is defined, so it is read from what the proxy was made of (Celery 5.7).
"""

from __future__ import annotations

import inspect
from typing import Any

from celery import Celery
from celery.local import PromiseProxy, Proxy
from celery.utils.imports import gen_task_name

__all__ = ["is_lazy", "lazy_name"]


def is_lazy(task: Any) -> bool:
    """It is one of Celery's proxies: looking at it would make what stands behind it."""
    return issubclass(type(task), Proxy)


def lazy_name(task: Any, app: Celery | None) -> str:
    """The name that the task behind a proxy has, or will have in that app."""
    name, function = _of_app(task) if issubclass(type(task), PromiseProxy) else _of_function(task)
    if name is None and function is None:
        return str(task.name)
    return name or _generated(function, app)


def _of_app(task: Any) -> tuple[str | None, Any]:
    """``@app.task``: a promise of ``app._task_from_fun(function, **options)``, until it is kept."""
    try:
        (function,) = object.__getattribute__(task, "_Proxy__args")
        options = object.__getattribute__(task, "_Proxy__kwargs")
    except (AttributeError, ValueError):
        return None, None
    return options.get("name"), function


def _of_function(task: Any) -> tuple[str | None, Any]:
    """``@shared_task``: a function that looks the task up in the current app. A workflow that has no app yet: one of ours."""
    try:
        found = inspect.getclosurevars(object.__getattribute__(task, "_Proxy__local")).nonlocals
    except (AttributeError, TypeError):
        return None, None
    return found.get("name") or getattr(found.get("definition"), "name", None), found.get("fun")


def _generated(function: Any, app: Celery | None) -> str:
    """Celery's rule (the app's name stands for __main__)."""
    if app is None:
        return f"{function.__module__}.{function.__name__}"
    return str(gen_task_name(app, function.__name__, function.__module__))
