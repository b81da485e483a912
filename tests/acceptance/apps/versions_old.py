"""A shop before a change; ``versions_new`` is the same shop after it."""

from __future__ import annotations

from typing import Any, Literal

from celery import Celery

from pikkuflow import PikkuFlow, Workflow
from tests.acceptance.apps.configured import configure
from tests.acceptance.apps.journal import note_step

app = configure(Celery("versions"))
pikku = PikkuFlow(app)

Dispatch = Literal["auto", "queue"]


@app.task(name="versions.reserve")
def reserve() -> str:
    """Both codes have it."""
    note_step("reserve", code="old")
    return "reserved"


@app.task(name="versions.charge")
def charge() -> str:
    """Both codes have it; the new one for runs that began before."""
    note_step("charge", code="old")
    return "charged"


@app.task(name="versions.ship")
def ship() -> str:
    """Both codes have it."""
    note_step("ship", code="old")
    return "shipped"


@pikku.workflow(name="versions.order")
def order(wf: Workflow, dispatch: Dispatch) -> list[Any]:
    """Charges between two nights."""
    done = [wf.do(reserve.s(), dispatch=dispatch)]
    wf.sleep("first night", "8h")
    done.append(wf.do(charge.s(), dispatch=dispatch))
    wf.sleep("second night", "8h")
    return [*done, wf.do(ship.s(), dispatch=dispatch)]


@pikku.workflow(name="versions.commented")
def commented(wf: Workflow) -> list[Any]:
    """It has no comment yet."""
    done = [wf.do(reserve.s())]
    wf.sleep("night", "8h")
    return [*done, wf.do(ship.s())]


@pikku.workflow(name="versions.reordered")
def reordered(wf: Workflow) -> list[Any]:
    """Reserves, then charges."""
    done = [wf.do(reserve.s()), wf.do(charge.s())]
    wf.sleep("night", "8h")
    return [*done, wf.do(ship.s())]
