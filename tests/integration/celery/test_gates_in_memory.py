"""A user's own tests of a workflow that waits: no broker, no database, and time that the test moves (``pikkuflow.testing``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from celery import Celery

from pikkuflow import AuditEntry, Decider, PikkuFlow, PikkuFlowError, ResultTimeout, Workflow
from pikkuflow.testing import MemoryWorld, in_memory

app = Celery("gates-in-memory", broker="memory://")
pikku = PikkuFlow(app)
HEARD: list[AuditEntry] = []


@dataclass
class Release:
    """A decision."""

    ok: bool


@pikku.on_audit
def heard(entry: AuditEntry) -> None:
    """Remember it."""
    HEARD.append(entry)


@pikku.workflow(name="memory.release")
def release(wf: Workflow) -> list[Any]:
    """Each kind of gate."""
    wf.suspend("freeze")
    answer = wf.approval("ship", schema=Release, expiry="3d")
    return [answer.status, answer.is_expired or answer.data.ok, wf.wait_for("courier", timeout="1d", default="nobody")]


@pytest.fixture
def world() -> Iterator[MemoryWorld]:
    """The world of one test."""
    HEARD.clear()
    with in_memory(pikku) as made:
        yield made


def test_a_test_answers_what_its_workflow_waits_for(world: MemoryWorld) -> None:
    """And the run goes on when its result is asked for."""
    run = release.start()
    world.work()
    run.resume("freeze")
    world.work()
    run.approve("ship", {"ok": True}, by=Decider("u2"))
    run.signal("courier", "bob")
    assert run.result() == ["decided", True, "bob"]
    assert [entry.by.user for entry in HEARD] == ["u2"]


def test_deadlines_come_as_the_test_moves_time(world: MemoryWorld) -> None:
    """Three days and one more in no time."""
    run = release.start()
    world.work()
    run.resume()
    world.advance("2d")
    assert run.head().error == "ship"
    world.advance("25h")
    assert run.head().error == "courier"
    assert run.result() == ["expired", True, "nobody"]


def test_a_test_that_waits_for_nothing_is_told(world: MemoryWorld) -> None:
    """Instead of hanging: nobody will resume this run."""
    run = release.start()
    with pytest.raises(PikkuFlowError, match="nothing is left to happen"):
        run.result()
    with pytest.raises(ResultTimeout):
        run.result(timeout=60)
    assert world.work() == 0
