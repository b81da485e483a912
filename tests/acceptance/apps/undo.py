"""An application whose steps can be undone, and fail, hang and die as they are told."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from celery import Celery

from pikkuflow import PikkuFlow, Undo, Workflow, current_step
from tests.acceptance.apps.configured import configure
from tests.acceptance.apps.journal import note_step

app = configure(Celery("undo"))
pikku = PikkuFlow(app)


@app.task(name="undo.reserve")
def reserve(what: str) -> str:
    """Put something aside."""
    note_step("reserved", what=what)
    return f"shelf of {what}"


@pikku.compensates(reserve)
def release(undo: Undo, what: str) -> None:
    """Put it back. A name tells how that goes: ``hang`` hangs in the first attempt, ``die`` ends its process, ``never`` always fails."""
    step = current_step()
    note_step("releasing", what=what, ok=undo.ok, output=undo.output, undone=undo.step)
    if what == "hang" and step.attempt == 1:
        time.sleep(120)
    if what == "die" and step.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "flaky" and step.attempt < 3:
        raise ConnectionError("not now")
    if what == "never":
        raise ConnectionError("never")
    note_step("released", what=what)


@app.task(name="undo.pay")
def pay(card: str) -> str:
    """Charge a card that is ``good``, ``dead``, or ``flaky`` (the third attempt works)."""
    if card == "dead" or (card == "flaky" and current_step().attempt < 3):
        raise ConnectionError(f"the {card} card was not charged")
    note_step("paid", card=card)
    return f"paid by {card}"


@app.task(name="undo.long")
def long(seconds: float) -> str:
    """Work in small parts; say how far it is, and stop when nobody wants it any more."""
    step = current_step()
    note_step("begun", details=step.details)
    until = time.monotonic() + seconds
    number = 0
    while time.monotonic() < until:
        number += 1
        step.heartbeat({"part": number})
        time.sleep(0.05)
    return "done"


@pikku.compensates("undo.long")
def forget_long(undo: Undo, seconds: float) -> None:
    """Note how it ended."""
    note_step("forgotten", ok=undo.ok, error=undo.error)


@app.task(name="undo.hang")
def hang(until: int, beats: int) -> int:
    """Hang in the attempts before that one, after so many heartbeats."""
    step = current_step()
    note_step("begun", details=step.details)
    for number in range(beats):
        step.heartbeat({"beat": number})
        time.sleep(0.1)
    if step.attempt < until:
        time.sleep(25)
    note_step("ended")
    return step.attempt


@pikku.workflow(name="undo.hangs")
def hangs(wf: Workflow, until: int, beats: int, options: dict[str, Any]) -> int:
    """One step that may hang."""
    attempt: int = wf.do("hang", hang.s(until, beats), retry_delay=0.1, **options)
    return attempt


@pikku.workflow(name="undo.order")
def order(wf: Workflow, names: list[str], card: str, options: dict[str, Any]) -> str:
    """Reserve one after another, then pay."""
    for name in names:
        wf.do(f"reserve {name}", reserve.s(name), **options)
    paid: str = wf.do("pay", pay.s(card), **{"retries": 2, "retry_delay": 0.2, **options})
    return paid


@pikku.workflow(name="undo.waits")
def waits(wf: Workflow, names: list[str], options: dict[str, Any]) -> str:
    """Reserve, then sleep for a day."""
    for name in names:
        wf.do(f"reserve {name}", reserve.s(name), **options)
    wf.sleep("1d")
    return "slept"


@pikku.workflow(name="undo.nobody")
def nobody(wf: Workflow, seconds: int) -> None:
    """Reserve, then wait for a worker of a queue that has none."""
    wf.do("reserve tea", reserve.s("tea"))
    wf.do("pay", pay.s("good").set(queue="nobody", expires=seconds))


@pikku.workflow(name="undo.works")
def works(wf: Workflow, seconds: float, options: dict[str, Any]) -> str:
    """One long step that asks whether it is still wanted."""
    wf.do("reserve tea", reserve.s("tea"), **options)
    done: str = wf.do("long", long.s(seconds), **options)
    return done


@pikku.workflow(name="undo.parent")
def parent(wf: Workflow, names: list[str], seconds: float, options: dict[str, Any]) -> None:
    """A child run between two reservations; it sleeps, and then the parent fails."""
    wf.do("reserve before", reserve.s("before"), **options)
    wf.do("child", child.s(names, seconds, options))
    wf.do("reserve after", reserve.s("after"), **options)
    raise ValueError("the parent fails")


@pikku.workflow(name="undo.child")
def child(wf: Workflow, names: list[str], seconds: float, options: dict[str, Any]) -> None:
    """Reserve, then sleep."""
    for name in names:
        wf.do(f"reserve {name}", reserve.s(name), **options)
    wf.sleep(seconds)
