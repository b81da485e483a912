"""What the extension writes into the app's configuration: defaults below the user's, routes and beat entries beside the user's (design 7).

Every function may be called again: nothing is added twice (celery-notes 1).
"""

from __future__ import annotations

from typing import Any, Final

from celery import Celery

from pikkuflow.adapters.celery.names import SWEEP_TASK
from pikkuflow.engine.sweep import SweepKind
from pikkuflow.settings import DEFAULTS, Settings

__all__ = ["add_beat_entries", "add_defaults", "add_routes"]

_ENGINE_TASKS: Final = "pikkuflow.*"


def add_defaults(app: Celery) -> None:
    """Put every ``pikkuflow_*`` default at the bottom of the configuration, where anything the user says wins."""
    maps: Any = app.conf.maps
    for key, value in DEFAULTS.items():
        maps[-1].setdefault(key, value)


def add_routes(app: Celery, settings: Settings) -> None:
    """Route the engine's tasks to ``pikkuflow_queue``, after the user's own routes. Without that setting there is nothing to add."""
    if settings.queue is None:
        return
    found = app.conf.task_routes
    routes: list[Any] = [] if found is None else list(found) if isinstance(found, list | tuple) else [found]
    ours = {_ENGINE_TASKS: {"queue": settings.queue}}
    if ours not in routes:
        app.conf.task_routes = [*routes, ours]
        app.amqp.flush_routes()


def add_beat_entries(app: Celery, settings: Settings) -> None:
    """Add the three sweeps unless the user has entries of these names, or wants none (``pikkuflow_beat``, ``pikkuflow_recovery``).

    They expire with the next one: a backlog must not replay old sweeps.
    """
    if not (settings.beat and settings.recovery):
        return
    every = settings.sweep_interval
    ours = {
        f"pikkuflow-{kind.value}": {
            "task": SWEEP_TASK,
            "schedule": every,
            "args": (kind.value,),
            "options": {
                "queue": settings.queue or app.conf.task_default_queue,
                "expires": every,
                "ignore_result": True,
            },
        }
        for kind in SweepKind
    }
    # A new dict: the user's own may be shared with other apps.
    app.conf.beat_schedule = {**ours, **(app.conf.beat_schedule or {})}
