"""The one file that was added: a durable workflow over the tasks the shop already has."""

from typing import Any

from pikkuflow import PikkuFlow, Workflow
from plainshop.celery_app import app
from plainshop.tasks import charge, check_address, measure, notify, print_label, reserve

pikku = PikkuFlow(app)


@pikku.workflow(name="plainshop.order")
def order(wf: Workflow, order_id: int) -> dict[str, Any]:
    """Reserve, charge, look up the address, print labels on the printers' queue, measure within a time limit, notify."""
    items = wf.do(reserve.s(order_id))
    paid = wf.do("charge card", charge.s(order_id, 999))
    address = wf.do(check_address.si(order_id))
    labels = wf.map(print_label, items)
    size = wf.do(measure.s(order_id))
    note = wf.do(notify.s(order_id, address=address))
    return {"paid": paid, "labels": labels, "size": size, "note": note}
