"""Quick steps: outcomes of consecutive ones are written together, before what rests on them leaves the process (issue C, Build 3)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.errors import StepFailed
from pikkuflow.ports import AttemptEnd
from tests.servers.processes import wait_until
from tests.unit.engine.bench import Child, Say, Task
from tests.unit.engine.quick_bench import Acts, a_bench, acts_of, do


def test_outcomes_of_quick_steps_are_written_together_at_the_end_of_the_pass() -> None:
    """Issue C, Build 3: one write for all of them, and the body sees each result at once."""
    bench = a_bench()

    def flow(wf: Any) -> int:
        number = 0
        for _ in range(5):
            number = wf.do(Task("inc", (number,)))
        return number

    assert acts_of(bench, flow) == ["inc+inc#1+inc#2+inc#3+inc#4+close"]
    assert bench.output() == 5
    assert [(step.name, step.seq, step.result) for step in bench.steps()] == [
        (f"inc#{n}" if n else "inc", n, str(n + 1)) for n in range(5)
    ]


def test_at_most_twenty_outcomes_are_kept() -> None:
    """Issue C, Build 3: the twentieth brings the others along."""
    bench = a_bench()
    acts = acts_of(bench, lambda wf: do(wf, *(f"s{n}" for n in range(45))))
    assert [len(act.split("+")) for act in acts] == [20, 20, 6]


def test_an_outcome_is_kept_for_ten_milliseconds_of_work_at_most() -> None:
    """Issue C, Build 3: by the clock port, from the beginning of the first step that is kept."""
    bench = a_bench()
    bench.task(lambda: bench.clock.advance(0.004), name="four")

    def flow(wf: Any) -> None:
        for _ in range(7):
            wf.do(Task("four"))

    acts = [act.split("+") for act in acts_of(bench, flow)]
    # While the third one works the watching thread may come first.
    assert all(len(names) <= 3 for names in acts)
    assert [name for names in acts for name in names] == ["four", *(f"four#{n}" for n in range(1, 7)), "close"]


def test_a_large_result_is_written_at_once() -> None:
    """Issue C, Build 3: it takes along what was kept; twenty of them together would be no quick write."""
    bench = a_bench()

    def flow(wf: Any) -> None:
        do(wf, "a")
        wf.do("b", lambda: "x" * 100_000)
        do(wf, "c")

    assert acts_of(bench, flow) == ["a+b", "c+close"]


def test_a_slow_step_takes_along_what_was_kept_before_it() -> None:
    """Issue C, Build 3: a step that was long is not kept for another."""
    bench = a_bench()

    def flow(wf: Any) -> None:
        do(wf, "a", "b")
        wf.do("c", lambda: bench.clock.advance(0.011))
        do(wf, "d")

    # While it works the watching thread may come first.
    assert acts_of(bench, flow) in (["a+b+c", "d+close"], ["a+b", "c", "d+close"])


def test_what_is_kept_is_written_while_a_long_step_works() -> None:
    """Issue C, Build 3: ten milliseconds hold also when the next step takes its time; its own start follows, never before them."""
    bench = a_bench()

    def long() -> list[str]:
        bench.clock.advance(1.0)
        wait_until(lambda: len(bench.steps()) == 3, every=0.005)
        return [f"{step.name} {step.status}" for step in bench.steps()]

    bench.task(long)

    def flow(wf: Any) -> Any:
        do(wf, "a", "b")
        return wf.do(Task("long"))

    acts = acts_of(bench, flow)
    assert bench.output() == ["a succeeded", "b succeeded", "long running"]
    assert acts == ["a+b", "long running", "long", "close"]


def test_only_steps_that_are_called_quick_are_kept() -> None:
    """Issue C, Build 3: opt-in, by step or by workflow; the step's own word counts. What another rests on is stored before it begins."""
    bench = a_bench()
    stored: list[list[str]] = []
    bench.task(lambda: stored.append([step.name for step in bench.steps()]), name="look")

    def mixed(wf: Any) -> None:
        do(wf, "a", "b", quick=True)
        wf.do(Task("look"))
        do(wf, "c", "d")

    assert acts_of(bench, mixed, quick=False) == ["a+b", "look", "c", "d", "close"]
    assert stored == [["a", "b"]]

    def mostly(wf: Any) -> None:
        do(wf, "a", "b")
        do(wf, "c", quick=False)
        do(wf, "d")

    assert acts_of(bench, mostly, run_id="r2") == ["a+b", "c", "d+close"]


@pytest.mark.parametrize("options", [{"retries": 0}, {"record_start": True}], ids=["retries=0", "a recorded start"])
def test_steps_with_a_recorded_start_are_never_kept(options: dict[str, Any]) -> None:
    """Issue C, Build 3: the start is recorded (with what was kept), the outcome by itself, before the body goes on."""
    bench = a_bench()

    def flow(wf: Any) -> None:
        do(wf, "a")
        do(wf, "b", **options)
        do(wf, "c")

    assert acts_of(bench, flow) == ["a+b", "b", "c+close"]


def test_compensable_steps_are_never_kept() -> None:
    """Issue C, Build 3: something may have to be undone."""
    bench = a_bench()
    assert acts_of(bench, lambda wf: wf.do(Task("inc", undone_by="undo inc"))) == ["inc running", "inc", "close"]


def test_nothing_is_kept_when_every_start_is_recorded() -> None:
    """Issue C, Build 3: pikkuflow_record_start_seconds = 0 asks for that."""
    bench = a_bench(record_start_seconds=0)
    assert acts_of(bench, lambda wf: do(wf, "a", "b")) == ["a running", "a", "b running", "b", "close"]


def test_nothing_is_kept_while_the_run_is_marked_lost() -> None:
    """Issue C, Build 3: until the first outcome after a lost pass; from then on as usual."""
    bench = a_bench()
    bench.task(bench.die_if_told, name="deadly")

    def flow(wf: Any) -> None:
        wf.do(Task("deadly"))
        do(wf, "a", "b", "c")

    bench.workflow(flow, quick=True)
    bench.start("flow")
    bench.orchestrate_and_die()
    store = Acts(bench.store)
    bench.orchestrate(store=store)
    assert store.acts == ["deadly running", "deadly", "a+b+c+close"]
    assert bench.step("deadly").attempt == 2


def test_what_is_kept_is_written_before_anything_leaves_the_process() -> None:
    """Issue C, Build 3: before rows of dispatched steps, sleeps and children are inserted."""
    bench = a_bench()
    bench.workflow(lambda wf: wf.do(Task("inc")), name="child")

    def sends(wf: Any) -> None:
        do(wf, "a", "b")
        wf.do(Task("far"))

    def sleeps(wf: Any) -> None:
        do(wf, "a", "b")
        wf.sleep(60)

    def begets(wf: Any) -> None:
        do(wf, "a", "b")
        wf.do(Child("child"))

    assert acts_of(bench, sends, run_id="r1") == ["a+b", "insert", "close"]
    assert acts_of(bench, sleeps, run_id="r2") == ["a+b", "insert", "close"]
    assert acts_of(bench, begets, run_id="r3") == ["a+b", "child", "close"]


def test_what_is_kept_is_written_before_a_wait() -> None:
    """Issue C, Build 3: a later pass that has to wait for a row which is there."""
    bench = a_bench()

    def flow(wf: Any) -> None:
        handle = wf.submit(Task("far"))
        do(wf, "a", "b")
        handle.result()

    bench.task(lambda: "far", name="far", leaves="its queue")
    acts = acts_of(bench, flow)
    assert acts == ["insert", "a+b", "close"]
    bench.work()
    assert bench.run().status is RunStatus.COMPLETED


def test_what_is_kept_is_written_before_an_attempt_that_failed() -> None:
    """Issue C, Build 3: only successes are kept, and a failure's row does not overtake them."""
    bench = a_bench()

    def flow(wf: Any) -> str:
        do(wf, "a", "b")
        try:
            wf.do(Task("bad"), no_retry_on=ValueError)
        except StepFailed:
            do(wf, "c")
        return "caught"

    assert acts_of(bench, flow) == ["a+b+bad", "c+close"]
    assert bench.step("bad").status is StepStatus.FAILED
    assert bench.output() == "caught"


def test_a_quick_step_that_is_tried_again_at_once_is_kept_with_its_last_attempt() -> None:
    """Issue C, Build 3, D2: the failed attempt is stored when it ends; the success after it may be kept."""
    bench = a_bench()
    tried: list[int] = []

    def shaky() -> int:
        tried.append(1)
        if len(tried) == 1:
            raise Say(AttemptEnd.RAISED, delay=0)
        return len(tried)

    bench.task(shaky)

    def flow(wf: Any) -> None:
        do(wf, "a")
        wf.do(Task("shaky"))
        do(wf, "b")

    assert acts_of(bench, flow) == ["a+shaky", "shaky+b+close"]
    assert (bench.step("shaky").attempt, len(bench.attempts())) == (2, 1)


def test_functions_and_state_of_a_quick_workflow_are_kept_too() -> None:
    """Issue C, Build 3: everything that is worked in place; of several sets of a key the last is stored."""
    bench = a_bench()

    def flow(wf: Any) -> Any:
        first = wf.uuid()
        wf.state.set("k", 1)
        wf.state.set("k", 2)
        return [str(first), wf.do("f", lambda: 7), wf.state.get("k")]

    acts = acts_of(bench, flow)
    assert [len(act.split("+")) for act in acts] == [5]
    assert bench.output()[1:] == [7, 2]
    assert bench.store.get_state(RunId("r1")) == {"k": "2"}
