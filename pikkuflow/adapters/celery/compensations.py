"""How tasks are undone: what ``@pikku.compensates(task)`` declares, as Celery tasks (D20).

A compensation is a task of its own, ``<task>:compensate``, so any worker that has the declaring module can run it. It is registered when
the app is finalized and not before: asking a lazy task for its name would configure the app (recipes 10).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Celery, Task
from celery.local import Proxy

from pikkuflow.domain.recorded_names import UNDO_SUFFIX
from pikkuflow.errors import WorkflowDefinitionError

__all__ = ["Compensations"]


class Compensations:
    """The declared compensations of one extension."""

    def __init__(self) -> None:
        self._app: Celery | None = None
        self._declared: list[tuple[Any, Any]] = []
        self._names: dict[str, str] | None = {}
        """Which task undoes which; None when something was declared since."""

    def bind(self, app: Celery) -> None:
        """Register with this app, now or once it is finalized."""
        self._app = app
        signal: Any = app.on_after_finalize
        signal.connect(self._on_finalized, sender=app, weak=False)
        if _is_finalized(app):
            self._register(app)

    def add(self, task: Any, undo: Any) -> None:
        """``undo`` undoes ``task``: a task or its name; ``undo`` is a function or a task."""
        self._declared.append((task, undo))
        self._names = None
        if self._app is not None and _is_finalized(self._app):
            self._register(self._app)

    def undo_task_of(self, task: str) -> str | None:
        """The name of the task that undoes a task, or None.

        Raises ``WorkflowDefinitionError`` when a task has two compensations.
        """
        names = self._names
        if names is None:
            names = self._names = self._named()
        return names.get(task)

    def _on_finalized(self, sender: Celery, **_: Any) -> None:
        self._register(sender)

    def _register(self, app: Celery) -> None:
        for task, undo in self._declared:
            name = f"{_name_of(task)}{UNDO_SUFFIX}"
            if not _is_task(undo) and name not in app.tasks:
                register: Callable[[Any], Any] = app.task(name=name, shared=False)
                register(undo)

    def _named(self) -> dict[str, str]:
        undone: dict[str, Any] = {}
        names = {}
        for task, undo in self._declared:
            name = _name_of(task)
            if undone.setdefault(name, undo) is not undo:
                raise WorkflowDefinitionError(
                    f"Task {name!r} has two compensations.", hint="Declare one, which may call the other."
                )
            names[name] = _name_of(undo) if _is_task(undo) else f"{name}{UNDO_SUFFIX}"
        return names


def _is_finalized(app: Any) -> bool:
    return bool(app.finalized)


def _is_task(undo: Any) -> bool:
    return issubclass(type(undo), Proxy) or isinstance(undo, Task)


def _name_of(task: Any) -> str:
    return task if isinstance(task, str) else str(task.name)
