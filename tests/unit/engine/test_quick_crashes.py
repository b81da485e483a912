"""Quick steps when a process dies, a run is lost or stopped, or the store is away: what was kept is written whole or worked again."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.domain.ids import PassId, RunId
from pikkuflow.domain.status import RunStatus
from pikkuflow.engine.current_step import current_step
from pikkuflow.engine.orchestrate import orchestrate
from pikkuflow.errors import StoreUnavailable
from tests.unit.engine.bench import Died, Life, Task
from tests.unit.engine.quick_bench import Acts, a_bench, acts_of, do


def test_a_crash_repeats_only_what_was_kept_under_the_same_invocations() -> None:
    """Issue C, Build 3, the documented price: stored steps never run again, kept ones do, with the ids that they had."""
    bench = a_bench()
    worked: list[tuple[str, str]] = []

    def note() -> None:
        step = current_step()
        worked.append((step.step, step.invocation_id))
        if step.step == "s23":
            bench.die_if_told()

    def flow(wf: Any) -> None:
        for number in range(25):
            wf.do(f"s{number}", note)

    bench.workflow(flow, quick=True)
    bench.start("flow")
    bench.orchestrate_and_die()
    assert [step.name for step in bench.steps()] == [f"s{n}" for n in range(20)]
    first = dict(worked)
    assert len(worked) == 24
    bench.orchestrate()
    again = worked[24:]
    assert [name for name, _ in again] == [f"s{n}" for n in range(20, 25)]
    assert all(first.get(name, invocation) == invocation for name, invocation in again)
    assert bench.run().status is RunStatus.COMPLETED


def test_a_process_may_die_around_every_act_of_a_quick_run() -> None:
    """Issue C, Build 3: whichever act it dies before or after, the run ends as it should and no stored step is worked again."""
    for moment in range(1, 60):
        bench = a_bench()
        worked: list[str] = []
        bench.task(lambda bench=bench, worked=worked: worked.append(bench.runner.works[-1].step), name="note")

        def flow(wf: Any) -> str:
            for number in range(30):
                wf.do(f"s{number}", Task("note"))
                if number == 10:
                    wf.sleep(0)
            return "done"

        bench.workflow(flow, quick=True)
        bench.start("flow")
        life = Life(dies_at=moment)
        try:
            orchestrate(bench.process(life), [RunId("r1")])
        except Died:
            stored, before = {step.name for step in bench.steps()}, len(worked)
            bench.clock.advance(31)
            bench.orchestrate()
            assert not stored & set(worked[before:])
        else:
            return
        assert bench.output() == "done"
        assert len(bench.steps()) == 31
    raise AssertionError("it dies for ever")


def test_a_pass_that_lost_its_run_writes_nothing_and_ends() -> None:
    """Issue C, Build 3, design 3.3: another pass has the run; what was kept is refused whole, the body sees no more."""
    bench = a_bench()
    seen: list[str] = []

    def steal() -> None:
        bench.store._tables.runs[RunId("r1")].pass_id = PassId("other")

    bench.task(steal)

    def flow(wf: Any) -> None:
        do(wf, "a")
        wf.do(Task("steal"))
        do(wf, "b")
        wf.do("c", Task("inc"), quick=False)
        seen.append("more")

    acts = acts_of(bench, flow)
    assert acts == ["a+steal+b"]
    assert bench.steps() == ()
    assert seen == []


def test_a_stop_is_seen_with_the_next_write() -> None:
    """Issue C, Build 3, design 2: the outcomes are recorded, the body sees no more."""
    bench = a_bench()

    def stop() -> None:
        bench.store._tables.runs[RunId("r1")].status = RunStatus.COMPENSATING

    bench.task(stop)
    seen: list[str] = []

    def flow(wf: Any) -> None:
        do(wf, "a")
        wf.do(Task("stop"))
        do(wf, "b")
        wf.do("c", Task("inc"), quick=False)
        seen.append("more")

    assert acts_of(bench, flow) == ["a+stop+b", "close"]
    assert [step.name for step in bench.steps()] == ["a", "stop", "b"]
    assert bench.run().status is RunStatus.COMPENSATING
    assert seen == []


def test_a_write_that_was_broken_off_is_tried_once_more_at_the_end() -> None:
    """Issue C, Build 3: an outage ends the pass; what was kept is written whole if the store takes it then, else it is worked again."""
    bench = a_bench()
    bench.workflow(lambda wf: do(wf, *(f"s{n}" for n in range(20))), name="flow", quick=True)
    bench.start("flow")
    store = Acts(bench.store)
    store.raises = [StoreUnavailable("away")]
    with pytest.raises(StoreUnavailable):
        bench.orchestrate(store=store)
    assert len(bench.steps()) == 20
    assert len(bench.runner.works) == 20
    bench.work()
    assert bench.run().status is RunStatus.COMPLETED
    assert len(bench.runner.works) == 20


def test_a_step_that_ends_its_process_leaves_what_was_kept_stored() -> None:
    """Issue C, Build 3: SystemExit in a body is no crash; the outcomes before it are written before the run is let go."""
    bench = a_bench()

    def flow(wf: Any) -> None:
        do(wf, "a", "b")
        raise SystemExit(3)

    bench.workflow(flow, quick=True)
    bench.start("flow")
    with pytest.raises(SystemExit):
        bench.orchestrate()
    assert [step.name for step in bench.steps()] == ["a", "b"]
