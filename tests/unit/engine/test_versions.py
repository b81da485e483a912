"""Runs and code that change beside each other: old and new processes over one store (D17, spec 3.7)."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from pikkuflow.domain.definition import Registry, WorkflowDefinition
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import RunStatus, SuspendCode
from pikkuflow.engine.call_off import call_off
from pikkuflow.engine.run_inline import run_inline
from tests.unit.engine.bench import Bench, Child, Task
from tests.unit.engine.fleet import NEW_WAY, OLD_WAY, Fleet
from tests.unit.engine.parts import Runner


@pytest.mark.parametrize("leaves", [None, "queue"])
@pytest.mark.parametrize("first", ["old", "new"])
def test_old_and_new_workers_take_turns_and_no_run_is_mixed(first: str, leaves: str | None) -> None:
    """D17, scenario 33, V4: whichever code a run began with, and whoever gets its messages, it goes one way, each step once."""
    fleet = Fleet(leaves)
    fleet.bench.start("order")
    order = [fleet.old, fleet.new] if first == "old" else [fleet.new, fleet.old]
    fleet.nights(*order)

    assert fleet.bench.run().status is RunStatus.COMPLETED
    assert fleet.way in (OLD_WAY, NEW_WAY)
    assert {step.attempt for step in fleet.bench.steps()} == {1}
    assert all(code == "new" for task, code in fleet.done if task in {"pay", "receipt"})


@pytest.mark.parametrize("leaves", [None, "queue"])
@pytest.mark.parametrize("nights", [0, 1, 2])
def test_a_run_asleep_across_the_change_is_ended_by_the_new_code(nights: int, leaves: str | None) -> None:
    """D17, T1.6: before the place it takes the new way, past it the old one."""
    fleet = Fleet(leaves)
    fleet.begin(nights=nights)
    if nights:
        fleet.bench.wake("order")
    fleet.nights(fleet.new)

    assert fleet.bench.run().status is RunStatus.COMPLETED
    assert fleet.way == (OLD_WAY if nights == 2 else NEW_WAY)


@pytest.mark.parametrize("leaves", [None, "queue"])
def test_a_run_with_a_mark_waits_for_its_code_when_the_deploy_is_taken_back(leaves: str | None) -> None:
    """D17, scenario 32: the old code names the patch, works nothing and spends nothing; the new one ends the run."""
    fleet = Fleet(leaves)
    fleet.begin(nights=2, process=fleet.new)
    done = list(fleet.done)
    for _ in range(5):
        fleet.bench.wake("order")
        fleet.bench.work(rt=fleet.old)
        fleet.bench.clock.advance(max(1.0, fleet.bench.due() or 0))
        assert fleet.bench.run().code == SuspendCode.VERSION_CONFLICT
        assert "expected patch 'receipts', found step 'charge'" in fleet.bench.error()
    assert fleet.done == done
    fleet.nights(fleet.new)

    assert fleet.bench.run().status is RunStatus.COMPLETED
    assert fleet.way == NEW_WAY


@pytest.mark.parametrize("leaves", [None, "queue"])
def test_a_process_may_die_at_any_moment_of_a_deploy(leaves: str | None) -> None:
    """D17: a new process dies between any two acts, an old one comes next, then a new one; no run is mixed, and each ends."""
    survived = False
    for dies_at in count(1):
        fleet = Fleet(leaves)
        fleet.begin(nights=1)
        survived = fleet.works_until(dies_at)
        fleet.bench.wake("order")
        fleet.bench.work(rt=fleet.old)
        fleet.recover_with(fleet.new)
        # What the dead process worked and could not record is worked again.
        once = list(dict.fromkeys(fleet.way))
        assert once in (OLD_WAY, NEW_WAY), (dies_at, fleet.way)
        names = [step.name for step in fleet.bench.steps()]
        assert ("__patch:receipts" in names) == (once == NEW_WAY)
        if survived:
            assert dies_at > 5
            break


def test_parallel_steps_in_flight_outlive_a_pass_of_the_old_code() -> None:
    """D17: an old worker that meets the run between their sending and their work stops it; they are sent again, and none is charged."""
    fleet = Fleet("queue")

    def parallel(wf: Any) -> Any:
        if not wf.patched("parallel"):
            return wf.do(Task("charge"))
        return wf.gather(wf.submit(Task("pay")), wf.submit(Task("receipt")))

    for process, body in ((fleet.old, lambda wf: wf.do(Task("charge"))), (fleet.new, parallel)):
        process.registry.add(WorkflowDefinition(name="parallel", body=body, version="v1"))
    fleet.bench.start("parallel")
    fleet.bench.work_one(fleet.new)
    assert len(fleet.bench.broker.messages) == 2
    sent, fleet.bench.broker.messages[:] = list(fleet.bench.broker.messages), []
    fleet.bench.wake("parallel")
    fleet.bench.work_one(fleet.old)
    assert fleet.bench.run().code == SuspendCode.VERSION_CONFLICT
    fleet.bench.broker.messages.extend(sent)
    fleet.bench.work(rt=fleet.new)
    fleet.bench.clock.advance(5)
    fleet.bench.wake("parallel")
    fleet.bench.work(rt=fleet.new)

    assert fleet.bench.output() == ["pay", "receipt"]
    assert sorted(fleet.done) == [("pay", "new"), ("receipt", "new")]
    assert {step.attempt for step in fleet.bench.steps()} == {1}


def test_an_inline_run_has_its_patches_too() -> None:
    """D17, D26: the mark is recorded like in any other run."""
    fleet = Fleet()
    fleet.bench.store.insert_runs([fleet.bench.new_run("order", inline=True)])
    run_inline(fleet.bench.other(registry=fleet.new.registry, runner=fleet.new.runner, has_broker=False), RunId("r1"))

    assert fleet.way == NEW_WAY
    assert fleet.bench.step("__patch:receipts").attempt == 1


def test_a_quick_workflow_keeps_its_mark_before_what_follows() -> None:
    """D17: the mark is never stored after a step of the branch it opened."""
    bench = Bench()
    bench.task(lambda: 1, name="far", leaves="queue")

    def flow(wf: Any) -> Any:
        return [wf.patched("p"), wf.do("near", lambda: 1), wf.do(Task("far"))]

    bench.workflow(flow, quick=True)
    bench.start("flow")
    bench.work_one()

    assert [step.name for step in bench.steps()] == ["__patch:p", "near", "far"]
    bench.work()
    assert bench.output() == [True, 1, 1]


def test_a_step_is_worked_as_it_was_recorded_and_not_as_it_is_defined_today() -> None:
    """D8: task, arguments and options come from the row; calls are compared by name, kind and task."""
    bench = Bench()
    calls: list[Any] = []
    arguments = ["recorded"]
    bench.task(lambda *args: calls.append(args), name="far", leaves="queue")
    bench.workflow(lambda wf: wf.do(Task("far", tuple(arguments))), name="flow")
    bench.start("flow")
    bench.work_one()
    arguments[:] = ["of", "today"]
    bench.work()

    assert calls == [("recorded",)]
    assert bench.run().status is RunStatus.COMPLETED


def test_a_new_workflow_waits_for_a_worker_that_knows_it_as_a_child_too() -> None:
    """D5, scenario 33: the old worker puts it back with a delay, without an attempt; the parent waits with it."""
    fleet = Fleet()
    fleet.new.registry.add(WorkflowDefinition(name="parent", body=lambda wf: wf.do(Child("gift")), version="v1"))
    fleet.old.registry.add(WorkflowDefinition(name="parent", body=lambda wf: wf.do(Child("gift")), version="v1"))
    fleet.bench.start("parent")
    fleet.bench.work(rt=fleet.old)
    child = fleet.bench.step("gift").child_run_id
    assert child is not None
    assert fleet.bench.run(child).code == SuspendCode.WORKFLOW_NOT_FOUND
    assert fleet.bench.run(child).version == ""
    assert fleet.bench.run().status is RunStatus.RUNNING
    fleet.bench.clock.advance(5)
    fleet.bench.wake("gift", child)
    fleet.bench.work(rt=fleet.new)

    assert fleet.bench.output() == "receipt"
    assert {step.attempt for step in [*fleet.bench.steps(), *fleet.bench.steps(child)]} == {1}


def test_an_unwinding_run_needs_no_code_of_its_workflow() -> None:
    """D17, D20: what undoes a run is on its rows, so a deploy without its workflow does not keep it from being undone."""
    bench = Bench()
    undone: list[Any] = []
    bench.task(lambda: 1, name="a")
    bench.task(lambda *_: undone.append("a"), name="una")

    def flow(wf: Any) -> None:
        wf.do(Task("a", undone_by="una"))
        wf.sleep("10d")

    bench.workflow(flow)
    bench.start("flow")
    bench.work()
    call_off(bench.rt, bench.run(), None)
    bench.work(rt=bench.other(registry=Registry()))

    assert undone == ["a"]
    assert bench.run().status is RunStatus.COMPENSATED


@pytest.mark.parametrize("leaves", [None, "queue"])
def test_a_compensation_waits_for_a_worker_that_has_its_task(leaves: str | None) -> None:
    """D5, scenario 33: an unwind that meets a worker without it spends no attempt, in place and dispatched."""
    bench = Bench()
    undone: list[Any] = []
    bench.task(lambda: 1, name="a", leaves=leaves)
    older = Runner()
    older.tasks, older.leaves = dict(bench.runner.tasks), dict(bench.runner.leaves)
    bench.task(lambda *_: undone.append("a"), name="una", leaves=leaves)

    def flow(wf: Any) -> None:
        wf.do(Task("a", undone_by="una"))
        wf.sleep("10d")

    bench.workflow(flow)
    bench.start("flow")
    bench.work()
    call_off(bench.rt, bench.run(), None)
    bench.work(rt=bench.other(runner=older))
    assert bench.run().status is RunStatus.COMPENSATING
    for _ in range(6):
        bench.clock.advance(31)
        bench.recover()
        bench.work()

    assert undone == ["a"]
    assert bench.run().status is RunStatus.COMPENSATED
    assert bench.step("a:compensate").attempt == 1


@pytest.mark.parametrize("leaves", [None, "queue"])
def test_a_changed_workflow_fails_its_runs_where_that_is_asked_for(leaves: str | None) -> None:
    """T14.7, D32: under ``version_policy = "fail"`` a run of another version fails, naming both, and nothing of it is worked."""
    fleet = Fleet(leaves, version_policy="fail")
    fleet.bench.start("order")
    fleet.bench.work(rt=fleet.old)
    fleet.bench.clock.advance(100)
    fleet.bench.wake("order")
    fleet.bench.work(rt=fleet.new)

    assert fleet.bench.run().status is RunStatus.FAILED
    assert fleet.bench.run().code == SuspendCode.VERSION_CONFLICT
    assert "v1" in fleet.bench.error()
    assert "v2" in fleet.bench.error()
    assert fleet.way == ["reserve"]


def test_a_run_whose_version_nobody_knew_is_no_conflict() -> None:
    """D17: a child that was started where its workflow was unknown belongs to whatever code meets it first."""
    fleet = Fleet(version_policy="fail")
    fleet.bench.start("gift")
    fleet.bench.store.insert_runs([fleet.bench.new_run("gift", run_id="r2")])
    run = fleet.bench.store._tables.runs[RunId("r2")]
    run.version = ""
    fleet.bench.wake("gift", "r2")
    fleet.bench.work(rt=fleet.new)

    assert fleet.bench.run("r2").status is RunStatus.COMPLETED
