"""Samples of customers, notifications and orders."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pikkuflow import StepFailed, Workflow
from tests.acceptance.apps.samples.application import pikku, sample
from tests.acceptance.apps.samples.tasks import (
    auto,
    flaky,
    ignored,
    make,
    mark,
    retrying,
    send,
    square,
    total,
    upper,
)


@sample(2, output="cold", name="cold")
@sample(5, output="warm: 25", name="warm")
@sample(9, output="hot: sms: call", name="hot")
@pikku.workflow(name="crm.lead")
def lead(wf: Workflow, interest: int) -> str:
    """Scores decide about the tier."""
    score = wf.do("score", square.s(interest))
    if score < 10:
        return "cold"
    return f"warm: {score}" if score < 50 else f"hot: {wf.do('call', send.s('sms', 'call'))}"


@sample(["ann", "Ann", "bob"], output=["ANN", "BOB"])
@pikku.workflow(name="crm.dedupe")
def dedupe(wf: Workflow, names: list[str]) -> list[str]:
    """A fan-out whose results are filtered."""
    return sorted(set(wf.map(upper, names, name="normalise")))


@sample(output="worked at attempt 3")
@pikku.workflow(name="crm.sync")
def sync(wf: Workflow) -> str:
    """Two failures, then a success."""
    return str(wf.do("sync", flaky.s(3), retries=3, retry_delay=0.05))


@sample(output=["worked at attempt 2", "worked at attempt 2", "worked at attempt 2"])
@pikku.workflow(name="crm.refresh")
def refresh(wf: Workflow) -> list[str]:
    """Members of a fan-out that fail once each."""
    return wf.map(flaky, [2, 2, 2], name="refresh", retries=2, retry_delay=0)


@sample(output={"fax": "the fax is gone", "mail": "mail: hello"})
@pikku.workflow(name="crm.enrich")
def enrich(wf: Workflow) -> dict[str, str]:
    """Failures in their places among results."""
    channels = ["fax", "mail"]
    asked = [wf.submit(channel, send.s(channel, "hello"), retries=0) for channel in channels]
    answers = wf.gather(*asked, return_exceptions=True)
    shown = [a.error_message if isinstance(a, StepFailed) else str(a) for a in answers]
    return dict(zip(channels, shown, strict=True))


@sample(output="mail: digest")
@pikku.workflow(name="notify.digest")
def digest(wf: Workflow) -> Any:
    """A sleep, then a message."""
    wf.sleep("until evening", timedelta(seconds=0.2))
    return wf.do(send.s("mail", "digest"))


@sample(3, output=["mail: 1", "mail: 2", "sms: 3"])
@pikku.workflow(name="notify.escalate")
def escalate(wf: Workflow, steps: int) -> list[str]:
    """A loop with a wait in every turn."""
    sent = []
    for turn in range(1, steps + 1):
        sent.append(str(wf.do("remind", send.s("sms" if turn == steps else "mail", str(turn)))))
        wf.sleep("wait", 0.05)
    return sent


@sample(["mail", "fax", "sms"], error="the fax is gone")
@pikku.workflow(name="notify.all")
def notify_all(wf: Workflow, channels: list[str]) -> list[str]:
    """One member of a fan-out fails, and with it the run, after the others have settled."""
    sent = [wf.submit("send", send.s(channel, "hi"), retries=0) for channel in channels]
    return list(wf.gather(*sent))


@sample(output=[True, True, True])
@pikku.workflow(name="notify.quiet")
def quiet(wf: Workflow) -> list[bool]:
    """Time, an id and a number, each the same on every replay."""
    first = (wf.now(), wf.uuid(), wf.random())
    wf.sleep(0.05)
    kept = wf.do("keep", lambda: [first[0].isoformat(), str(first[1]), first[2]])
    return [kept[0] == first[0].isoformat(), kept[1] == str(first[1]), kept[2] == first[2]]


@sample(7, output={"paid": "PAY-7", "parcel": {"title": "parcel 7", "state": "sent"}})
@pikku.workflow(name="order.simple")
def simple(wf: Workflow, order_id: int) -> dict[str, Any]:
    """Pay, pack, send."""
    paid = wf.do("pay", upper.s(f"pay-{order_id}"))
    parcel = wf.do("pack", make.s(f"parcel {order_id}"))
    return {"paid": paid, "parcel": wf.do("send", mark.s(parcel, "sent"))}


@sample(error="the fax is gone")
@pikku.workflow(name="order.declined")
def declined(wf: Workflow) -> Any:
    """A step that is tried no more fails the run."""
    return wf.do("pay by fax", send.s("fax", "pay"), retries=2, retry_delay=0)


@sample(error="nothing in stock")
@pikku.workflow(name="order.sold_out")
def sold_out(wf: Workflow) -> None:
    """The workflow's own error fails the run."""
    if wf.do("count", total.s([])) == 0:
        raise ValueError("nothing in stock")


@sample(error="no route to bank")
@pikku.workflow(name="order.bank_down")
def bank_down(wf: Workflow) -> Any:
    """A task's own autoretry ends."""
    return wf.do("bank", auto.s("no route to bank"))


@sample(output="2 retries")
@pikku.workflow(name="order.bank_busy")
def bank_busy(wf: Workflow) -> Any:
    """A task asks for its retries itself."""
    return wf.do("bank", retrying.s(2))


@sample(output="not taken up")
@pikku.workflow(name="order.ignored")
def order_ignored(wf: Workflow) -> str:
    """A task that raises Ignore has no result to go on with."""
    try:
        wf.do("ignored", ignored.s())
    except StepFailed:
        return "not taken up"
    return "taken up"


@sample(output="refunded, as the fax is gone")
@pikku.workflow(name="order.child_fails")
def child_fails(wf: Workflow) -> str:
    """A child's failure is its parent's step's."""
    try:
        wf.do("pay", declined.s())
    except StepFailed as error:
        return "refunded, as the fax is gone" if "the fax is gone" in error.error_message else error.error_message
    return "paid"


@sample(error="nothing in stock")
@pikku.workflow(name="order.parent_fails")
def parent_fails(wf: Workflow) -> Any:
    """A child's failure that nobody catches."""
    return wf.do("stock", sold_out.s())
