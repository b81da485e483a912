"""A workflow as a step of another: a run of its own, with its own id and history."""

from celery import Celery

from pikkuflow import PikkuFlow, Workflow

app = Celery("children")
pikku = PikkuFlow(app)


@app.task
def render(line: str) -> str:
    """A step of the child."""
    return f"[{line}]"


@pikku.workflow(name="children.invoice")
def invoice(wf: Workflow, lines: list[str]) -> str:
    """Render each line."""
    return " ".join(wf.do(render.s(line)) for line in lines)


@pikku.workflow(name="children.order")
def order(wf: Workflow, order_id: int) -> dict[str, object]:
    """Have the invoice made by a child run."""
    return {"order": order_id, "invoice": wf.do("invoice", invoice.s(["tea", "cup"]))}


if __name__ == "__main__":
    print(order.run_inline(7).result())
