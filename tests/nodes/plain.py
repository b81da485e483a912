"""A user's Celery application without pikkuflow: what is asked of Celery itself is asked of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from celery import Celery

from tests.nodes.journal import note

VISIBILITY_SECONDS = 2
"""After so long Redis gives an unacknowledged message to another worker; by default after an hour (celery-notes.md 2.2)."""

app = Celery("plain")  # broker and result backend come from the environment
app.conf.update(
    broker_connection_retry_on_startup=True,
    worker_prefetch_multiplier=1,
    broker_transport_options={
        "visibility_timeout": VISIBILITY_SECONDS,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    },
    task_routes={"nodes.describe": {"queue": "celery", "priority": 3}},
    task_annotations={"nodes.describe": {"rate_limit": "100/s"}},
    beat_schedule={"users-own": {"task": "nodes.describe", "schedule": 0.5, "args": ("beat",)}},
)


def wait_for(gate: str) -> None:
    """Stay until a file is there."""
    while not Path(gate).exists():
        time.sleep(0.02)


def _hold(task: Any, gate: str) -> str:
    note("begun", id=task.request.id, redelivered=bool(task.request.delivery_info.get("redelivered")))
    wait_for(gate)
    note("done", id=task.request.id)
    return "held"


@app.task(name="nodes.early", bind=True)
def early(self: Any, gate: str) -> str:
    """A task as Celery makes it by default: acknowledged when it begins."""
    return _hold(self, gate)


@app.task(name="nodes.late", bind=True, acks_late=True)
def late(self: Any, gate: str) -> str:
    """A task that is acknowledged when it has ended."""
    return _hold(self, gate)


@app.task(name="nodes.touch")
def touch(value: int) -> int:
    """Give the value back."""
    return value


_OF_A_TASK = (
    *("acks_late", "reject_on_worker_lost", "acks_on_failure_or_timeout", "ignore_result", "rate_limit", "serializer"),
    *("max_retries", "default_retry_delay", "time_limit", "soft_time_limit", "track_started", "send_events", "typing"),
)
_OF_A_MESSAGE = ("delivery_info", "retries", "eta", "expires", "timelimit", "stamps", "headers")


@app.task(name="nodes.describe", bind=True)
def describe(self: Any, sender: str) -> None:
    """Write down what this task is, how its message came, and what the application is set to."""
    note(
        "described",
        sender=sender,
        app="flows" if "pikkuflow.sweep" in self.app.tasks else "plain",
        task={name: repr(getattr(self, name)) for name in _OF_A_TASK},
        bases=[one.__name__ for one in type(self).__mro__],
        message={name: repr(getattr(self.request, name, None)) for name in _OF_A_MESSAGE},
        settings={name: repr(value) for name, value in self.app.conf.items()},
        beat={name: repr(value) for name, value in self.app.conf.beat_schedule.items()},
        tasks=sorted(self.app.tasks),
    )
