"""The shop's tasks: bound, retried by themselves, with a base class of their own, with time limits, on two queues."""

import json
import os
import time
from pathlib import Path
from typing import Any

from celery import Task
from celery.exceptions import SoftTimeLimitExceeded

from plainshop.celery_app import app


def note(**line: Any) -> None:
    """Append a line to the shop's journal, if it keeps one."""
    journal = os.environ.get("PLAINSHOP_JOURNAL")
    if journal:
        with Path(journal).open("a") as file:
            file.write(json.dumps({"pid": os.getpid(), **line}) + "\n")


class AuditedTask(Task):
    """The house's base class: every start, success and failure is noted, and calls go through ``super().__call__``."""

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the task as ever."""
        return super().__call__(*args, **kwargs)

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        """Note the start."""
        note(event="before_start", task=self.name, id=task_id)

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        """Note the success."""
        note(event="on_success", task=self.name, id=task_id)

    def on_failure(self, exc: Exception, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        """Note the final failure."""
        note(event="on_failure", task=self.name, id=task_id)


@app.task(base=AuditedTask)
def reserve(order_id: int) -> list[str]:
    """Reserve stock."""
    note(event="reserved", order=order_id)
    return ["tea", "cup"]


@app.task(bind=True, base=AuditedTask, max_retries=3)
def charge(self: Any, order_id: int, cents: int) -> str:
    """Charge the card; the bank is busy at the first try, and the task asks for another by itself."""
    note(event="charge", order=order_id, id=self.request.id, retries=self.request.retries)
    if self.request.retries == 0:
        raise self.retry(countdown=0.2, exc=ConnectionError("the bank is busy"))
    return f"payment-{order_id}-{cents}"


@app.task(bind=True, autoretry_for=(ConnectionError,), retry_backoff=False, default_retry_delay=0.1, max_retries=5)
def check_address(self: Any, order_id: int) -> str:
    """Look the address up; the line breaks twice."""
    note(event="check_address", order=order_id, retries=self.request.retries)
    if self.request.retries < 2:
        raise ConnectionError("line is down")
    return "1 Harbour Street"


@app.task
def print_label(sku: str) -> str:
    """Print a label, on the printers' queue."""
    note(event="printed", sku=sku)
    return f"label-{sku}"


@app.task(soft_time_limit=1, time_limit=20)
def measure(order_id: int) -> str:
    """Measure the parcel for as long as the soft limit lets it."""
    try:
        time.sleep(15)
    except SoftTimeLimitExceeded:
        note(event="soft_limit", order=order_id)
        return "about a metre"
    return "exactly a metre"


@app.task(typing=True)
def notify(order_id: int, *, address: str) -> str:
    """Tell the customer."""
    note(event="notified", order=order_id)
    return f"order {order_id} goes to {address}"
