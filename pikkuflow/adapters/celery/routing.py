"""Routes: a step's message goes where the user's own message would go; a pass goes to its workflow's queue (design 7, recipes.md 4)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from celery import Celery
from celery.app.routes import MapRoute
from celery.exceptions import QueueNotFound

from pikkuflow.adapters.celery.message_options import (
    DESTINATION,
    LIMITS,
    PUBLISHED,
    Destination,
    as_json,
    destination_of,
    from_json_options,
    to_json_options,
)
from pikkuflow.domain.definition import Registry
from pikkuflow.errors import SettingError
from pikkuflow.settings import Settings

__all__ = ["MessageRoute", "Routing"]

_LOGGER: Final = logging.getLogger("pikkuflow.celery")

_CHOSEN: Final = ("queue", "exchange", "routing_key", "priority", "compression", "delivery_mode")
"""What a signature or a task may choose about its message; the rest of Celery's options is not about where it goes."""

_MANY: Final = 1000
"""Routes kept at most: a priority of each order would make as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRoute:
    """A route. ``options`` is JSON-ready, ``text`` its JSON; ``queue`` is the name for people and sweeps, None for a bare exchange."""

    options: Mapping[str, Any]
    text: str
    queue: str | None
    destination: Destination
    has_own_limit: bool = False


class Routing:
    """Asks the app's router what the user's own message would get. One per process: a workflow's route is looked up once."""

    def __init__(self, app: Celery, settings: Settings, registry: Registry) -> None:
        self._app = app
        self._settings = settings
        self._registry = registry
        self._of_workflows: dict[str, MessageRoute] = {}
        self._known = _KnownRoutes(app)

    def of_task(
        self, task_name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Mapping[str, Any]
    ) -> MessageRoute:
        """Route a step as ``apply_async`` would route the task with these arguments and options.

        Callable routes see the user's real arguments. ``time_limit`` and ``soft_time_limit`` are the signature's, else the task's.

        Raises:
            SettingError: the queue is not among ``task_queues``, and missing queues may not be created.
        """
        task: Any = self._app.tasks.get(task_name)
        defaults = task._get_exec_options() if task is not None else {}  # noqa: SLF001 - what apply_async merges first
        merged = {**defaults, **{key: value for key, value in options.items() if value is not None}}
        chosen = {key: merged[key] for key in _CHOSEN if merged.get(key) is not None}
        limits = {key: merged.get(key) or getattr(task, key, None) for key in LIMITS}
        known = self._known.get(task_name, chosen, limits)
        if known is not None:
            return known
        router: Any = self._app.amqp.router
        asked = dict(chosen)
        try:
            routed = router.route(asked, task_name, list(args), dict(kwargs), task)
        except QueueNotFound as error:
            raise SettingError(
                f"Task {task_name!r} cannot be routed: {error.args[0]}.", hint="Add the queue to task_queues."
            ) from error
        made = self._made({key: routed[key] for key in PUBLISHED if key in routed}, limits)
        self._known.add(task_name, chosen, limits, made)
        return made

    def again(
        self,
        task_name: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        options: Mapping[str, Any],
        changed: Mapping[str, Any],
    ) -> MessageRoute:
        """Route the next attempt of a step whose task called ``retry`` with other options; ``options`` are the attempt's so far."""
        kept = from_json_options({key: options[key] for key in (*PUBLISHED, *LIMITS) if key in options})
        if any(key in changed for key in DESTINATION):
            kept = {key: value for key, value in kept.items() if key not in DESTINATION}
        return self.of_task(task_name, args, kwargs, {**kept, **changed})

    def of_workflow(self, workflow: str) -> MessageRoute:
        """Where passes of a workflow go (design 1, 7).

        ``queue=`` of its definition, else the route of its own task name, else ``pikkuflow_queue``, else the app's default queue.
        """
        known = self._of_workflows.get(workflow)
        if known is None:
            known = self._of_workflows[workflow] = self._made(self._route_of_workflow(workflow), {})
        return known

    def leaves(self, route: MessageRoute, workflow: str) -> str | None:
        """Why a step may not be worked inside a pass of that workflow: ``"queue"``, ``"limit"``, or None when it may (design 2)."""
        if route.destination != self.of_workflow(workflow).destination:
            return "queue"
        return "limit" if route.has_own_limit else None

    def _route_of_workflow(self, workflow: str) -> dict[str, Any]:
        definition = self._registry.find(workflow)
        if definition is not None and definition.queue is not None:
            return self._expanded(definition.queue)
        routed = self._looked_up(workflow)
        if "queue" not in routed and "exchange" not in routed:
            routed = {**self._expanded(self._settings.queue or self._app.conf.task_default_queue), **routed}
        return {key: routed[key] for key in PUBLISHED if key in routed}

    def _looked_up(self, workflow: str) -> dict[str, Any]:
        router: Any = self._app.amqp.router
        task: Any = self._app.tasks.get(workflow)
        own = task._get_exec_options() if task is not None else {}  # noqa: SLF001 - a queue= given to the task itself
        chosen = {key: own[key] for key in _CHOSEN if own.get(key) is not None}
        try:
            route = router.lookup_route(workflow, (), {}, chosen, task)
        except Exception:
            # A pass carries no arguments of the workflow, and a route may want to read them.
            _LOGGER.warning(
                "The route of workflow %r needs its arguments; its passes go to the default queue.",
                workflow,
                exc_info=True,
            )
            route = None
        return {**router.expand_destination(dict(route or {})), **router.expand_destination(chosen)}

    def _expanded(self, queue: str) -> dict[str, Any]:
        router: Any = self._app.amqp.router
        try:
            expanded: dict[str, Any] = router.expand_destination(queue)
        except QueueNotFound as error:
            raise SettingError(
                f"Passes cannot be routed: {error.args[0]}.", hint="Add the queue to task_queues."
            ) from error
        return expanded

    def _made(self, routed: Mapping[str, Any], limits: Mapping[str, Any]) -> MessageRoute:
        conf = self._app.conf
        queue = routed.get("queue")
        if queue is None and routed.get("exchange") is None:
            queue = self._app.amqp.default_queue
        options = to_json_options(self._app, {**routed, **limits})
        return MessageRoute(
            options=options,
            text=as_json(options, what="a route"),
            queue=None if queue is None else str(getattr(queue, "name", queue)),
            destination=destination_of(self._app, routed),
            has_own_limit=any(value is not None and value != conf[f"task_{key}"] for key, value in limits.items()),
        )


class _KnownRoutes:
    """Routes that depend on nothing but the task's name and its options: those of tables, until ``task_routes`` changes.

    Asking Celery's router costs as much as a fast step's commit. Callable routes read arguments and are asked every time.
    """

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._table: Any = None
        self._is_static = False
        self._routes: dict[Any, MessageRoute] = {}

    def get(self, task_name: str, chosen: Mapping[str, Any], limits: Mapping[str, Any]) -> MessageRoute | None:
        """The route, if it is known."""
        table = self._app.amqp.routes
        if table is not self._table:
            self._table = table
            self._is_static = all(isinstance(entry, MapRoute) for entry in table)
            self._routes = {}
        return self._routes.get(_key(task_name, chosen, limits)) if self._is_static else None

    def add(self, task_name: str, chosen: Mapping[str, Any], limits: Mapping[str, Any], route: MessageRoute) -> None:
        """Remember a route."""
        if self._is_static and len(self._routes) < _MANY:
            self._routes[_key(task_name, chosen, limits)] = route


def _key(task_name: str, chosen: Mapping[str, Any], limits: Mapping[str, Any]) -> Any:
    # Queue and exchange objects are equal by what they declare.
    return task_name, tuple(chosen.items()), tuple(limits.items())
