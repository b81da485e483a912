"""The shop of ``versions_old`` after a change: a patch, a comment, two steps in another order, a task and a workflow that are new."""

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
    note_step("reserve", code="new")
    return "reserved"


@app.task(name="versions.charge")
def charge() -> str:
    """Both codes have it; this one for runs that began before."""
    note_step("charge", code="new")
    return "charged"


@app.task(name="versions.pay")
def pay() -> str:
    """It is new."""
    note_step("pay", code="new")
    return "paid"


@app.task(name="versions.receipt")
def receipt() -> str:
    """It is new."""
    note_step("receipt", code="new")
    return "receipt"


@app.task(name="versions.ship")
def ship() -> str:
    """Both codes have it."""
    note_step("ship", code="new")
    return "shipped"


@pikku.workflow(name="versions.order")
def order(wf: Workflow, dispatch: Dispatch) -> list[Any]:
    """Pays between two nights, and sends a receipt; a run that has charged stays with that."""
    done = [wf.do(reserve.s(), dispatch=dispatch)]
    wf.sleep("first night", "8h")
    if wf.patched("receipts"):
        done.append(wf.do(pay.s(), dispatch=dispatch))
        done.append(wf.do(receipt.s(), dispatch=dispatch))
    else:
        done.append(wf.do(charge.s(), dispatch=dispatch))
    wf.sleep("second night", "8h")
    return [*done, wf.do(ship.s(), dispatch=dispatch)]


@pikku.workflow(name="versions.commented")
def commented(wf: Workflow) -> list[Any]:
    """It has a comment now, and other line breaks."""
    done = [wf.do(reserve.s())]
    # A night's rest is good for parcels.
    wf.sleep(
        "night",
        "8h",
    )
    return [*done, wf.do(ship.s())]


@pikku.workflow(name="versions.reordered")
def reordered(wf: Workflow) -> list[Any]:
    """Charges, then reserves."""
    done = [wf.do(charge.s()), wf.do(reserve.s())]
    wf.sleep("night", "8h")
    return [*done, wf.do(ship.s())]


@pikku.workflow(name="versions.gift")
def gift(wf: Workflow) -> list[Any]:
    """It is new."""
    return [wf.do(receipt.s(), dispatch="queue"), wf.do(ship.s())]
