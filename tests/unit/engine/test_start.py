"""Starting runs: durable once it returns, woken when it may begin, one run an id."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pikkuflow.adapters.memory.hints import MemoryHints
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import RunStatus
from pikkuflow.engine.start import start_runs
from pikkuflow.errors import NoBroker, PayloadError, RunExists
from tests.unit.engine.bench import Bench


def a_bench() -> Bench:
    """A bench with a workflow of one task that must not run at the start."""
    bench = Bench()
    bench.task(lambda: bench.runner.works, name="work")

    def flow(wf: object, number: int = 0) -> int:
        return number

    bench.workflow(flow)
    return bench


def test_a_start_sends_the_run_id_and_executes_nothing() -> None:
    """T1.4, T2.1: one wake-up for the run; no body is entered, no code of the workflow is needed."""
    bench = Bench()

    bench.start("elsewhere", 1)

    assert [ref.id for ref in bench.broker.wakes] == ["r1"]
    assert bench.run().status is RunStatus.RUNNING
    assert bench.steps() == ()


def test_the_same_id_with_the_same_input_is_the_same_run() -> None:
    """Design 1: the second start changes nothing and wakes no one."""
    bench = a_bench()
    bench.start("flow", 1)
    bench.broker.lose_all()

    (found,) = start_runs(bench.rt, [bench.new_run("flow", 1)])

    assert not found.created
    assert not bench.broker.wakes


@pytest.mark.parametrize(("workflow", "number"), [("flow", 2), ("other", 1)])
def test_the_same_id_with_another_start_is_refused(workflow: str, number: int) -> None:
    """RunExists names the run; the run that is there is untouched."""
    bench = a_bench()
    bench.start("flow", 1)
    before = bench.run()

    with pytest.raises(RunExists, match="'r1' exists") as refused:
        start_runs(bench.rt, [bench.new_run(workflow, number)])

    assert refused.value.run_id == "r1"
    assert bench.run() == before


def test_one_bad_start_of_many_keeps_the_others() -> None:
    """start_many: the new ones are inserted and woken although one id is taken."""
    bench = a_bench()
    bench.start("flow", 1)
    bench.broker.lose_all()

    with pytest.raises(RunExists):
        start_runs(bench.rt, [bench.new_run("flow", 2), bench.new_run("flow", 3, run_id="r2")])

    assert [ref.id for ref in bench.broker.wakes] == ["r2"]


def test_a_broker_that_is_down_does_not_lose_the_run() -> None:
    """D21, scenario 14: the run is durable, a hint is left, and the sweep's message would find it."""
    bench = a_bench()
    bench.broker.is_down = True

    bench.start("flow", 7)
    (said,) = bench.ear.warnings
    assert "could not be woken" in said
    assert said.endswith("It is stored, and begins by itself once the broker runs, with a worker of this application.")
    bench.broker.is_down = False
    bench.pass_time(1.1)

    assert bench.output() == 7


def test_a_delayed_run_waits_for_its_time() -> None:
    """Countdown and eta are a column with a hint, never a broker message (D22)."""
    bench = a_bench()
    bench.start("flow", 7, delay_seconds=60.0)
    assert not bench.broker.wakes

    bench.pass_time(30)
    assert bench.run().status is RunStatus.RUNNING
    bench.pass_time(31)

    assert bench.output() == 7


def test_a_message_before_the_time_of_a_delayed_run_leaves_its_hint_again() -> None:
    """Due or not is judged when the pass opens; nothing is lost by an early message."""
    bench = a_bench()
    bench.start("flow", 7, delay_seconds=60.0)
    bench.clock.advance(20)
    hints = MemoryHints(bench.clock)

    bench.orchestrate(hints=hints)

    assert hints.due_in_seconds(RunId("r1")) == pytest.approx(40)


def test_without_a_broker_only_inline_runs_start() -> None:
    """D26, T4.9: the error names what is missing; nothing was written."""
    bench = a_bench()
    rt = replace(bench.rt, has_broker=False)

    with pytest.raises(NoBroker, match="needs a broker"):
        start_runs(rt, [bench.new_run("flow")])

    assert bench.store.get_run(RunId("r1")) is None
    start_runs(rt, [bench.new_run("flow", inline=True)])
    assert bench.run().inline


@pytest.mark.parametrize("what", ["run_id", "owner"])
@pytest.mark.parametrize("value", [7, "", "x" * 256, "a\0b", "a\ud800b"])
def test_an_id_or_owner_that_cannot_be_stored_is_refused_before_anything_is(what: str, value: Any) -> None:
    """Issue E, bad input: one clear error that names it; the good runs beside it are not started either."""
    bench = a_bench()
    wrong = replace(bench.new_run("flow", 1, run_id="r2"), **{"id" if what == "run_id" else what: value})

    with pytest.raises(PayloadError, match=what):
        start_runs(bench.rt, [bench.new_run("flow", 1), wrong])

    assert bench.store.get_run(RunId("r1")) is None
    assert not bench.broker.wakes
