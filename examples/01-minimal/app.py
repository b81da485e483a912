"""The smallest useful workflow: two tasks that exist already, and a wait between them."""

from celery import Celery

from pikkuflow import PikkuFlow, Workflow

app = Celery("minimal")
pikku = PikkuFlow(app)


@app.task
def charge(order_id: int, cents: int) -> str:
    """An ordinary Celery task."""
    return f"payment-{order_id}-{cents}"


@app.task
def ship(order_id: int) -> str:
    """Another."""
    return f"parcel-{order_id}"


@pikku.workflow(name="minimal.order")
def order(wf: Workflow, order_id: int) -> dict[str, str]:
    """Charge, wait, ship."""
    paid = wf.do("charge card", charge.s(order_id, 999))
    wf.sleep("cool off", 0.1)
    return {"paid": paid, "parcel": wf.do(ship.s(order_id))}


if __name__ == "__main__":
    print(order.run_inline(42).result())
