"""An application whose runs wait for people: the onboarding of C2, and what can go on beside a wait."""

from __future__ import annotations

import time
from typing import Any

from celery import Celery
from pydantic import BaseModel

from pikkuflow import PikkuFlow, Workflow
from tests.acceptance.apps.configured import configure
from tests.acceptance.apps.journal import note_step

app = configure(Celery("gates"))
pikku = PikkuFlow(app)


class Access(BaseModel):
    """What is decided."""

    granted: bool


@app.task(name="gates.effect")
def effect(what: str, seconds: float = 0.0) -> str:
    """Note an effect, after a while."""
    note_step("begun", what=what)
    time.sleep(seconds)
    note_step(what)
    return what


@pikku.workflow(name="gates.onboarding")
def onboarding(wf: Workflow, expiry: float, checks: list[str]) -> str:
    """C2: sleep, optional suspend, approval with three endings."""
    wf.do("invite", effect.s("invited"))
    wf.sleep("settle in", 0.3)
    for check in checks:
        wf.suspend(check)
    answer = wf.approval("access", schema=Access, expiry=expiry, approvers="not-initiator")
    if not answer.is_expired and answer.data.granted:
        wf.do("grant", effect.s("granted"))
        return "active"
    wf.do("revoke", effect.s("revoked"))
    return "expired" if answer.is_expired else "rejected"


@pikku.workflow(name="gates.ticks")
def ticks(wf: Workflow, count: int) -> list[Any]:
    """Scenario 28: waits that time out, and one that does not."""
    got = [wf.wait_for(f"tick-{number}", timeout=0.3, default="over") for number in range(count)]
    return [*got, wf.wait_for("tick-0")]


@pikku.workflow(name="gates.inbox")
def inbox(wf: Workflow, count: int) -> list[Any]:
    """Receive so many letters, and work after each."""
    got = []
    for number in range(count):
        got.append(wf.wait_for("letter"))
        wf.do(f"read {number}", effect.s("read"))
    return got


@pikku.workflow(name="gates.six")
def six(wf: Workflow) -> int:
    """Scenario 26: six steps and a pause after the third."""
    for number in range(3):
        wf.do(f"step {number}", effect.s("worked"))
    wf.suspend("half time")
    for number in range(3, 6):
        wf.do(f"step {number}", effect.s("worked"))
    return 6


@pikku.workflow(name="gates.beside")
def beside(wf: Workflow) -> list[Any]:
    """Dispatched steps go on while the run waits for a decision."""
    handles = [wf.submit(f"slow {number}", effect.s("worked", 0.5), dispatch="queue") for number in range(3)]
    return [wf.approval("go").data, *wf.gather(*handles)]
