"""The application of the acceptance tests: a shop with ordinary tasks, configured as the README says (``celeryconfig.py``).

Each task leaves a line in the ledger, so that a test can count effects.
"""

from __future__ import annotations

import json
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

from celery import Celery, Task

from pikkuflow import PikkuFlow, Workflow, current_step
from pikkuflow.domain.status import Dispatch

app = Celery("order_app")
app.config_from_object("celeryconfig")
app.conf.update(
    task_routes={"order.invoice": {"queue": "slow"}},
    pikkuflow_sweep_interval=2.0,
    **json.loads(os.environ.get("ORDER_APP_CONF", "{}")),
)
pikku = PikkuFlow(app)
task = partial(app.task, shared=False)
"""Not shared with other apps: the tests import this module again for each database."""


def note(event: str) -> None:
    """Add a line to the ledger: which step, which attempt, by which process."""
    step = current_step()
    line = {"event": event, "step": step.step, "attempt": step.attempt, "key": step.invocation_id, "pid": os.getpid()}
    with Path(os.environ["ORDER_LEDGER"]).open("a", encoding="utf-8") as ledger:
        ledger.write(json.dumps(line) + "\n")


@task(name="order.reserve")
def reserve(order_id: int) -> list[str]:
    """The lines of the order."""
    note("done")
    return [f"tea-{order_id}", "cup", "spoon"]


@task(name="order.label", bind=True)
def label(self: Task[Any, Any], sku: str) -> dict[str, Any]:
    """A label; says where it was made and under which request."""
    note("done")
    return {"sku": sku, "id": self.request.id, "retries": self.request.retries}


@task(name="order.charge", bind=True, max_retries=5)
def charge(self: Task[Any, Any], cents: int) -> str:
    """The bank is busy twice; asks for its retries as Celery tasks do."""
    note("begun")
    if self.request.retries < 2:
        raise self.retry(countdown=0.2, exc=ConnectionError("the bank is busy"))
    note("done")
    return f"paid {cents}"


@task(name="order.invoice")
def invoice(order_id: int) -> str:
    """Routed to the queue ``slow``."""
    note("done")
    return f"invoice-{order_id}"


@task(name="order.linger")
def linger(seconds: float) -> int:
    """Work for a while; says when it begins and when it is done."""
    note("begun")
    time.sleep(seconds)
    note("done")
    return os.getpid()


@task(name="order.plain")
def plain(value: Any) -> Any:
    """An ordinary task, for canvas around workflows."""
    return value


@pikku.workflow(name="order.main")
def order(wf: Workflow, order_id: int) -> dict[str, Any]:
    """The main job: in place, retried, in parallel, asleep, on another queue, as a child."""
    lines = wf.do("reserve stock", reserve.s(order_id))
    paid = wf.do(charge.s(4200), retries=3)
    labels = wf.map(label, lines)
    wf.sleep("cool off", 0.5)
    first, second = wf.gather(wf.submit(invoice.s(order_id)), wf.submit("noted", lambda: "noted"))
    shipped = wf.do(ship.s(order_id))
    return {"paid": paid, "labels": labels, "invoice": first, "noted": second, "shipped": shipped}


@pikku.workflow(name="order.ship")
def ship(wf: Workflow, order_id: int) -> str:
    """A child run."""
    wf.state.set("order", order_id)
    return str(wf.do("parcel", lambda: f"parcel-{order_id}"))


@pikku.workflow(name="order.lingering")
def lingering(wf: Workflow, seconds: float, steps: int = 1, dispatch: Dispatch = Dispatch.AUTO) -> list[int]:
    """Steps that take a while, one after another."""
    return [wf.do(f"linger {i}", linger.s(seconds), dispatch=dispatch) for i in range(steps)]


@pikku.workflow(name="order.failing")
def failing(wf: Workflow) -> None:
    """Fails at once."""
    raise ValueError("nothing to order")
