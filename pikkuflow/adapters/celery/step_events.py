"""Celery's task events for steps worked in place, for Flower and ``celery events``: only if wanted, since each is a publish (design 7)."""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from celery import Celery
from kombu.utils.objects import cached_property

from pikkuflow.adapters.celery.producers import Producers

__all__ = ["StepEvents"]

_LOGGER: Final = logging.getLogger("pikkuflow.celery")

_QUIET_SECONDS: Final = 10.0
"""After an event that could not be sent no other is tried for so long: events must not slow steps down when the broker is away."""


class StepEvents:
    """Sends events of one process. Never raises."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._producers = Producers(app)
        self._quiet_until = 0.0

    def send(self, kind: str, request: Any, **fields: Any) -> None:
        """Send one event (``task-started`` …) of the step with that request."""
        if time.monotonic() < self._quiet_until:
            return
        event = {
            "uuid": request.id,
            "root_id": request.root_id,
            "parent_id": request.parent_id,
            "retries": request.retries,
            "timestamp": time.time(),
            **fields,
        }
        try:
            self._producers.call(lambda producer: self._events.publish(kind, event, producer))
        except Exception as error:  # noqa: BLE001 - nothing may depend on an event
            self._quiet_until = time.monotonic() + _QUIET_SECONDS
            _LOGGER.warning("Task events of steps are off for %s s: %s", _QUIET_SECONDS, error)

    @cached_property
    def _events(self) -> Any:
        """What makes and publishes events; it needs no connection of its own."""
        outer = self._app.current_worker_task
        return self._app.events.Dispatcher(enabled=False, hostname=outer.request.hostname if outer else None)
