"""An order that is undone when it cannot be paid: each task says how it is undone, and the workflow does not."""

from celery import Celery

from pikkuflow import PikkuFlow, Undo, Workflow, current_step

app = Celery("saga")
pikku = PikkuFlow(app)


@app.task
def reserve(order_id: int) -> str:
    """Put the goods aside."""
    return f"shelf-{order_id}"


@pikku.compensates(reserve)
def release(undo: Undo, order_id: int) -> None:
    """Put them back: ``undo.output`` is what ``reserve`` returned."""
    print(f"released {undo.output} of order {order_id}")


@app.task
def pay(order_id: int, card: str) -> str:
    """Charge the card."""
    if card == "dead" or (card == "flaky" and current_step().attempt < 3):
        raise ConnectionError(f"the {card} card was not charged")
    return f"payment-{order_id}"


@pikku.compensates(pay)
def refund(undo: Undo, order_id: int, card: str) -> None:
    """Give the money back. A payment that failed may have gone through all the same: a real shop asks its bank."""
    print(f"refunded order {order_id}" if undo.ok else f"no payment of order {order_id} by the {card} card")


@app.task
def ship(order_id: int) -> str:
    """Send the parcel."""
    return f"parcel-{order_id}"


@pikku.workflow(name="saga.order")
def order(wf: Workflow, order_id: int, card: str) -> dict[str, object]:
    """Reserve, pay, ship. Nothing here says how to go back."""
    wf.do(reserve.s(order_id))
    paid = wf.do("pay", pay.s(order_id, card), retries=3, retry_delay="1s")
    return {"paid": paid, "parcel": wf.do(ship.s(order_id))}


if __name__ == "__main__":
    print(order.run_inline(1, "good").result())
    print(order.run_inline(2, "flaky").result())
    print(order.run_inline(3, "dead").status().status)
