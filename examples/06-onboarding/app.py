"""An onboarding that waits for people: an approval with a deadline, and a signal that may come early."""

from celery import Celery
from pydantic import BaseModel

from pikkuflow import Decider, PikkuFlow, Workflow

app = Celery("onboarding")
pikku = PikkuFlow(app)


class Access(BaseModel):
    """What the person who decides says."""

    granted: bool
    note: str = ""


@app.task
def open_account(name: str) -> str:
    """An ordinary task."""
    return f"account of {name}"


@app.task
def close_account(account: str) -> str:
    """Another one: it takes back what the first one did."""
    return f"{account} is closed"


@pikku.workflow(name="onboarding.join")
def join(wf: Workflow, name: str, within: str) -> dict[str, object]:
    """No worker waits meanwhile, whatever it takes."""
    account = wf.do(open_account.s(name))
    wf.sleep("let the mail arrive", "100ms")
    answer = wf.approval(f"access for {name}", schema=Access, expiry=within, approvers="not-initiator")
    if answer.is_expired or not answer.data.granted:
        wf.do(close_account.s(account))
        return {"access": False, "why": "expired" if answer.is_expired else answer.data.note}
    badge = wf.wait_for("badge printed", timeout="1d", default="none yet")
    return {"access": True, "by": answer.decided_by and answer.decided_by.user, "badge": badge}


if __name__ == "__main__":
    print(join.run_inline("Ada", "0s").result())

    run = join.run_inline("Bob", "3d")
    print([waiting.reason for waiting in pikku.runs.approvals()])
    run.signal("badge printed", "B-7")
    run.approve("access for Bob", {"granted": True}, by=Decider("carol"))
    print(run.result())

    run = join.run_inline("Cid", "3d")
    run.approve("access for Cid", {"granted": False, "note": "who is Cid?"}, by=Decider("carol"))
    print(run.result())
