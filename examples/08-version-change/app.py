"""A workflow that changes while a run of it is under way: RELEASE says which code this process has."""

import os
import subprocess
import sys

from celery import Celery

from pikkuflow import PikkuFlow, Workflow

RELEASE = int(os.environ.get("RELEASE", "2"))

app = Celery("changes")
pikku = PikkuFlow(app)


@app.task
def charge(order_id: int) -> str:
    """How orders were paid before; runs that have charged stay with it."""
    return f"charged {order_id}"


@app.task
def pay(order_id: int) -> str:
    """How they are paid now."""
    return f"paid {order_id}"


@app.task
def receipt(order_id: int) -> str:
    """New with it."""
    return f"receipt {order_id}"


if RELEASE == 1:

    @pikku.workflow(name="changes.order")
    def order(wf: Workflow, order_id: int, courier: str) -> list[str]:
        """The first release."""
        done = [wf.do("charge", charge.s(order_id))]
        if courier == "late":
            wf.suspend("the courier")
        return [*done, "sent"]

else:

    @pikku.workflow(name="changes.order")
    def order(wf: Workflow, order_id: int, courier: str) -> list[str]:
        """The second: runs that were past this place before the deploy go on as they began, all others take the new way."""
        if wf.patched("receipts"):
            done = [wf.do("pay", pay.s(order_id)), wf.do("receipt", receipt.s(order_id))]
        else:
            done = [wf.do("charge", charge.s(order_id))]
        if courier == "late":
            wf.suspend("the courier")
        return [*done, "sent"]


def deploy() -> None:
    """A run that the first release began, then one of the second; then the courier comes for the old one."""
    subprocess.run([sys.executable, __file__], env={**os.environ, "RELEASE": "1"}, check=True)  # noqa: S603
    print(order.run_inline(2, "here").result())
    began_before = pikku.runs.get("order-1")
    began_before.resume("the courier")
    print(began_before.result())


if __name__ == "__main__":
    if RELEASE == 1:
        order.using(run_id="order-1").run_inline(1, "late")
    else:
        deploy()
