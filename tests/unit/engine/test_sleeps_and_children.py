"""Sleeps and child runs: rows that something else brings on (design 4, D1)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.domain.status import RunStatus, StepStatus
from tests.unit.engine.bench import Bench, Child


def test_a_sleep_is_a_row_and_a_hint_and_nothing_else() -> None:
    """Scenario 02: no message while it lasts; woken once; early passes leave it."""
    bench = Bench()

    def flow(wf: Any) -> str:
        wf.sleep("2h")
        return "awake"

    bench.workflow(flow)
    bench.start("flow")
    bench.work()
    bench.clock.advance(3600)
    bench.orchestrate()
    assert bench.step("sleep").status is StepStatus.SCHEDULED
    assert bench.due() == pytest.approx(3600)
    assert not bench.broker.wakes

    bench.pass_time(3600)

    assert bench.output() == "awake"
    assert bench.step("sleep").status is StepStatus.SUCCEEDED


def test_a_sleep_of_nothing_does_not_park() -> None:
    """It is a recorded step like any other."""
    bench = Bench()

    def flow(wf: Any) -> str:
        wf.sleep(0)
        return "awake"

    bench.workflow(flow)
    bench.start("flow")
    bench.work_one()

    assert bench.output() == "awake"


def test_a_child_run_is_started_once_and_its_end_wakes_the_parent() -> None:
    """D1, D9, T5.6: its wire has the parent and the parent's owner; its outcome is the parent's step."""
    bench = Bench()

    def child(wf: Any, number: int) -> int:
        wf.sleep(10)
        return number * 2

    def parent(wf: Any) -> int:
        value: int = wf.do(Child("child", (21,)))
        return value

    bench.workflow(child)
    bench.workflow(parent)
    bench.start("parent", owner="u1")
    bench.work()
    bench.orchestrate()
    step = bench.step("child")
    assert step.child_run_id is not None
    below = bench.run(step.child_run_id)
    assert below.owner == "u1"
    assert '"parentRunId": "r1"' in below.wire
    assert bench.run().status is RunStatus.RUNNING

    bench.pass_time(10)

    assert bench.output() == 42
    assert bench.step("child").attempt == 1


def test_a_child_that_fails_fails_the_parents_step_with_its_own_error() -> None:
    """Spec 2.4: propagated, once; never charged as an attempt."""
    bench = Bench()

    def child(wf: Any) -> None:
        raise ValueError("small trouble")

    def parent(wf: Any) -> str:
        try:
            wf.do(Child("child"))
        except Exception as error:  # noqa: BLE001 - any error of ours
            return str(error)
        return ""

    bench.workflow(child)
    bench.workflow(parent)
    bench.start("parent")
    bench.work()

    assert "small trouble" in bench.output()
