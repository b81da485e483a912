"""Tasks for canvases whose messages are lost, late, doubled or called off: Celery's own canvases and durable ones have the same tasks.

Each writes down that it ran, with the canvas it belongs to; ``mark`` and ``gate`` are files through which a test steers it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery
from celery.exceptions import Ignore

from pikkuflow import PikkuFlow
from tests.acceptance.apps.configured import configure
from tests.acceptance.apps.journal import note

app = configure(Celery("canvas_delivery"))
if visibility := os.environ.get("CANVAS_VISIBILITY_SECONDS"):
    # What a worker holds for so long is given to another: with messages held in advance, and acknowledged late, everything comes twice.
    app.conf.broker_transport_options |= {"visibility_timeout": float(visibility), "unacked_restore_interval": 0.25}
    app.conf.update(worker_prefetch_multiplier=4, worker_disable_prefetch=False, task_acks_late=True)
if expires := os.environ.get("CANVAS_RESULT_EXPIRES"):
    app.conf.result_expires = float(expires)
pikku = PikkuFlow(app)


@app.task(name="delivery.echo")
def echo(*args: Any) -> list[Any]:
    """Give the arguments; the last says which canvas it was."""
    note("echo", args=list(args), run=args[-1])
    return list(args[:-1])


@app.task(name="delivery.slow")
def slow(member: Any, seconds: float, canvas: str) -> list[Any]:
    """Take its time, and give another value each time."""
    at = time.time()
    note("begun", member=member, run=canvas)
    time.sleep(seconds)
    note("slow", member=member, run=canvas)
    return [member, at]


@app.task(name="delivery.total")
def total(members: list[Any], canvas: str) -> list[Any]:
    """The join: it says which members it was given."""
    note("total", members=members, run=canvas)
    return members


@app.task(name="delivery.wait_for")
def wait_for(gate: str, canvas: str) -> str:
    """Stay until a file is there."""
    note("waiting", run=canvas)
    while not Path(gate).exists():
        time.sleep(0.02)
    note("waited", run=canvas)
    return "open"


@app.task(name="delivery.retry_once", bind=True, max_retries=3)
def retry_once(self: Any, mark: str, seconds: float, canvas: str) -> str:
    """Ask for another try the first time."""
    note("retry", run=canvas)
    if is_first(mark):
        raise self.retry(countdown=seconds)
    return "at last"


@app.task(name="delivery.prepare_once", bind=True, max_retries=3)
def prepare_once(self: Any, mark: str, way: str, canvas: str) -> str:
    """The first time, have another task prepare the ground and come back after it: by hand, or in place of itself."""
    note("prepare", run=canvas)
    if not is_first(mark):
        return "at last"
    again = self.signature_from_request(retries=self.request.retries + 1)
    again.set_immutable(True)
    canvas_of_both = echo.si("prepared", canvas) | again
    if way == "replaced":
        raise self.replace(canvas_of_both)
    canvas_of_both.apply_async()
    raise Ignore


@app.task(name="delivery.told")
def told(task_id: str, canvas: str) -> None:
    """An errback."""
    note("told", id=task_id, run=canvas)


def is_first(mark: str) -> bool:
    """Whether nobody has left that file before."""
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
