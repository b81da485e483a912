"""An app with workflows for the tests of the extension on real workers: canvas, limits and leases."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from celery import Celery

from pikkuflow import PikkuFlow, Workflow, current_step
from pikkuflow.domain.status import Dispatch

app = Celery("extension_app")
app.conf.update(
    {
        "worker_prefetch_multiplier": 1,
        "broker_connection_retry_on_startup": True,
        "worker_hijack_root_logger": False,
        "pikkuflow_sweep_interval": 1.0,
        **json.loads(os.environ.get("EXTENSION_APP_CONF", "{}")),
    }
)
pikku = PikkuFlow(app)


def note(text: str) -> None:
    """A line in the journal."""
    with Path(os.environ["EXTENSION_JOURNAL"]).open("a", encoding="utf-8") as journal:
        journal.write(f"{text}\n")


@app.task(shared=False, name="ext.add")
def add(left: int, right: int) -> int:
    """Add."""
    return left + right


@app.task(shared=False, name="ext.total")
def total(numbers: list[int]) -> int:
    """The body of a chord."""
    return sum(numbers)


@app.task(shared=False, name="ext.note")
def noted(value: Any) -> None:
    """A callback."""
    note(f"callback {value}")


@app.task(shared=False, name="ext.failed")
def failed(task_id: str) -> None:
    """An errback."""
    note(f"errback {task_id}")


@app.task(shared=False, name="ext.late", acks_late=True)
def late(seconds: float) -> None:
    """A task of the user's own, acknowledged when it is done."""
    note("begun late")
    time.sleep(seconds)
    note("done late")


@app.task(shared=False, name="ext.linger")
def linger(seconds: float) -> int:
    """Work for a while."""
    step = current_step()
    note(f"begun {step.step} {step.attempt}")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.05)
    note(f"done {step.step} {step.attempt}")
    return os.getpid()


@app.task(shared=False, name="ext.hurdle", time_limit=1)
def hurdle(number: int, ends: str) -> int:
    """The second of them does not end by itself the first time: over its limit, or out of its process."""
    step = current_step()
    note(f"begun {step.step} {step.attempt}")
    if (number, step.attempt) == (1, 1):
        if ends == "exit":
            raise SystemExit(1)
        time.sleep(60)
    return number


@pikku.workflow(name="ext.double")
def double(wf: Workflow, number: int) -> int:
    """Twice the number."""
    return int(wf.do(add.s(number, number)))


@pikku.workflow(name="ext.refuse")
def refuse(wf: Workflow, number: int = 0) -> None:
    """Fails."""
    raise ValueError(f"not {number}")


@pikku.workflow(name="ext.lingering")
def lingering(wf: Workflow, seconds: float, steps: int = 1) -> list[int]:
    """Steps in place, one after another."""
    return [wf.do(f"linger {number}", linger.s(seconds)) for number in range(steps)]


@pikku.workflow(name="ext.lingering_queued")
def lingering_queued(wf: Workflow, seconds: float) -> int:
    """A dispatched step."""
    return int(wf.do("linger queued", linger.s(seconds), dispatch=Dispatch.QUEUE))


@pikku.workflow(name="ext.limited")
def limited(wf: Workflow, seconds: float) -> int:
    """A step with a hard limit of its own: it is dispatched."""
    limited_step: Any = linger.s(seconds)
    return int(wf.do("limited", limited_step.set(time_limit=1), retries=1, retry_delay=0))


@pikku.workflow(name="ext.hurdles")
def hurdles(wf: Workflow, ends: str) -> list[int]:
    """A chunk of four whose second member ends the message."""
    member: Any = hurdle.s(ends)
    values: list[int] = wf.map(member, range(4), chunk=4, retries=1, retry_delay=0)
    return values
