"""The same application with pikkuflow in it."""

from __future__ import annotations

import os
from typing import Any

from celery import signals

from pikkuflow import PikkuFlow, Workflow
from tests.nodes.journal import ORDER_GATE, note
from tests.nodes.plain import app, touch, wait_for

ORDER = "nodes.order"

pikku = PikkuFlow(app)


@app.task(name="nodes.charge")
def charge(number: int) -> int:
    """A step with an effect."""
    note("charged", number=number)
    return number * 100


@pikku.workflow(name=ORDER)
def order(wf: Workflow, number: int) -> Any:
    """Two steps."""
    wf.do(touch.s(number))
    return wf.do(charge.s(number))


@signals.task_prerun.connect
def _delivered(task: Any = None, **_: Any) -> None:
    if task.name == ORDER:
        note("start delivered", id=task.request.id, redelivered=bool(task.request.delivery_info.get("redelivered")))


@signals.task_postrun.connect
def _committed(task: Any = None, **_: Any) -> None:
    if task.name == ORDER and ORDER_GATE in os.environ:
        note("start committed", id=task.request.id)
        wait_for(os.environ[ORDER_GATE])
