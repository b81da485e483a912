"""An app whose workflows end their passes in ways that no engine likes."""

from __future__ import annotations

from typing import Any

from celery import Celery

from pikkuflow import PikkuFlow, Workflow
from pikkuflow.domain.status import Dispatch
from pikkuflow.engine import close_pass, work_pass
from pikkuflow.engine.open_pass import OpenPass

app = Celery("unruly_app")
app.conf.update(
    {
        "worker_prefetch_multiplier": 1,
        "broker_connection_retry_on_startup": True,
        "pikkuflow_sweep_interval": 1.0,
        "pikkuflow_passes_lost": 3,
    }
)
pikku = PikkuFlow(app)


@app.task(shared=False, name="unruly.add")
def add(left: int, right: int) -> int:
    """Add."""
    return left + right


@pikku.workflow(name="unruly.sound")
def sound(wf: Workflow, number: int) -> int:
    """A dispatched step."""
    return int(wf.do(add.s(number, number), dispatch=Dispatch.QUEUE))


@pikku.workflow(name="unruly.leaves")
def leaves(wf: Workflow) -> None:
    """Takes its process down, politely."""
    raise SystemExit(1)


@pikku.workflow(name="unruly.broken")
def broken(wf: Workflow) -> int:
    """Its passes cannot be closed."""
    return 1


def _broken_closing(p: OpenPass, outcome: Any) -> Any:
    if p.run.workflow == "unruly.broken":
        raise ZeroDivisionError("a programming error")
    return close_pass.closing_of(p, outcome)


vars(work_pass)["closing_of"] = _broken_closing
