"""The small shop that ``pikkuflow demo`` runs: ordinary Celery tasks, and one workflow over them.

Every task writes what it did to the ledger file, so that the demo can show each effect, who had it and under which idempotency key.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from celery import Celery

from pikkuflow import PikkuFlow, Workflow, current_step

__all__ = ["app", "order", "pikku"]

app = Celery("demo")
app.config_from_object(
    {
        "worker_prefetch_multiplier": 1,
        "broker_connection_retry_on_startup": True,
        "worker_hijack_root_logger": False,
        "task_ignore_result": True,
    }
)
pikku = PikkuFlow(app)


def _note(event: str, what: str) -> None:
    step = current_step()
    line = {
        "event": event,
        "what": what,
        "step": step.step,
        "attempt": step.attempt,
        "key": step.invocation_id,
        "pid": os.getpid(),
    }
    with Path(os.environ["SHOP_LEDGER"]).open("a") as ledger:
        ledger.write(json.dumps(line) + "\n")


@app.task
def reserve(order_id: int) -> list[str]:
    """Reserve the lines of an order."""
    _note("done", f"reserved stock for order {order_id}")
    return ["tea", "cup", "spoon"]


@app.task
def print_label(item: str) -> str:
    """Print one label."""
    time.sleep(0.3)
    _note("done", f"printed the label for {item}")
    return f"label-{item}"


@app.task
def charge(order_id: int, cents: int) -> str:
    """Charge the card; the bank is busy the first time."""
    if current_step().attempt == 1:
        raise ConnectionError("the bank is busy")
    _note("done", f"charged {cents / 100:.2f} for order {order_id}")
    return f"payment-{order_id}"


@app.task
def pack(order_id: int) -> str:
    """Pack the parcel: long enough to be killed in the middle."""
    _note("begun", f"packing order {order_id}")
    time.sleep(3)
    _note("done", f"packed order {order_id}")
    return f"parcel-{order_id}"


@app.task
def notify(order_id: int, parcel: str) -> str:
    """Tell the customer."""
    _note("done", f"told the customer about {parcel}")
    return f"order {order_id} is on its way"


@pikku.workflow(name="demo.order")
def order(wf: Workflow, order_id: int) -> dict[str, Any]:
    """Reserve, label in parallel, charge with retries, wait, pack, notify."""
    items = wf.do("reserve stock", reserve.s(order_id))
    labels = wf.map(print_label, items, name="label")
    paid = wf.do("charge card", charge.s(order_id, 4200), retries=3, retry_delay="1s")
    wf.sleep("cool off", "2s")
    parcel = wf.do("pack", pack.s(order_id))
    note = wf.do("notify", notify.s(order_id, parcel))
    return {"labels": labels, "paid": paid, "parcel": parcel, "note": note}
