"""Runs and code that change beside each other: old and new processes over one store (D17, spec 1.4, 3.7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from pikkuflow.domain.definition import Registry, WorkflowDefinition
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import RunStatus, SuspendCode
from pikkuflow.domain.summary import summary_of
from pikkuflow.domain.version import VersionKind
from pikkuflow.engine.call_off import call_off
from pikkuflow.engine.run_inline import run_inline
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.versions import store_versions, versions_of
from pikkuflow.errors import WorkflowNotFound
from tests.unit.engine.bench import Bench, Child, Died, Life, Task
from tests.unit.engine.parts import Runner

OLD_WAY, NEW_WAY = ["reserve", "charge", "ship"], ["reserve", "pay", "receipt", "ship"]


class Fleet:
    """One store and broker; processes with the code before a change, and with that after it. ``done`` is what was worked, by code."""

    def __init__(self, leaves: str | None = None, **settings: Any) -> None:
        self.bench = Bench(**settings)
        self.done: list[tuple[str, str]] = []
        self.leaves = leaves
        self.old = self._process("old", ["reserve", "charge", "ship"], before, "v1")
        self.new = self._process("new", ["reserve", "charge", "pay", "receipt", "ship"], after, "v2")

    def _process(self, code: str, tasks: list[str], body: Callable[..., Any], version: str) -> Runtime:
        runner, registry = Runner(), Registry()
        for task in tasks:
            runner.tasks[task] = self._noting(code, task)
            if self.leaves is not None:
                runner.leaves[task] = self.leaves
        registry.add(WorkflowDefinition(name="order", body=body, version=version))
        if code == "new":
            registry.add(WorkflowDefinition(name="gift", body=lambda wf: wf.do(Task("receipt")), version="v1"))
        return self.bench.other(registry=registry, runner=runner)

    def _noting(self, code: str, task: str) -> Callable[..., str]:
        def work(*_: Any) -> str:
            self.done.append((task, code))
            return task

        return work

    def nights(self, *processes: Runtime, run_id: str = "r1") -> None:
        """Messages and timers, each handled by one of these processes, until the run has ended."""
        # As uneven as a broker: the Thue-Morse sequence has no period that a run could fall in step with.
        turns = (number.bit_count() % len(processes) for number in count())
        for _ in range(60):
            while self.bench.work_one(processes[next(turns)]):
                pass
            if self.bench.run(run_id).is_settled:
                return
            self.bench.clock.advance(30)
            self.bench.wake("order", run_id)
        raise AssertionError(f"it does not end: {self.bench.run(run_id)}")

    def begin(self, *, nights: int, process: Runtime | None = None) -> None:
        """A run that a process (an old one unless given) works until it sleeps, and for each further night until it sleeps again."""
        self.bench.start("order")
        for night in range(nights):
            if night:
                self.bench.wake("order")
            self.bench.work(rt=process or self.old)
            self.bench.clock.advance(100)

    def works_until(self, dies_at: int) -> bool:
        """A new process handles messages until it dies at that moment; its leases lapse then. True: it survived."""
        mortal = self.bench.process(Life(dies_at))
        doomed = replace(mortal, registry=self.new.registry, runner=self.new.runner)
        self.bench.wake("order")
        try:
            self.bench.work(rt=doomed)
        except Died:
            self.bench.clock.advance(61)
            return False
        return True

    def recover_with(self, process: Runtime) -> None:
        """Sweeps, and all that they find, until the run has ended."""
        for _ in range(8):
            self.bench.clock.advance(61)
            self.bench.recover()
            self.bench.work(rt=process)
        self.nights(process)

    @property
    def way(self) -> list[str]:
        """What was worked, in order."""
        return [task for task, _ in self.done]


def before(wf: Any) -> None:
    """The code before the change."""
    wf.do(Task("reserve"))
    wf.sleep("first", 100)
    wf.do(Task("charge"))
    wf.sleep("second", 100)
    wf.do(Task("ship"))


def after(wf: Any) -> None:
    """The code after it."""
    wf.do(Task("reserve"))
    wf.sleep("first", 100)
    if wf.patched("receipts"):
        wf.do(Task("pay"))
        wf.do(Task("receipt"))
    else:
        wf.do(Task("charge"))
    wf.sleep("second", 100)
    wf.do(Task("ship"))


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


@pytest.mark.parametrize("nights", [0, 1, 2])
def test_a_run_asleep_across_the_change_is_ended_by_the_new_code(nights: int) -> None:
    """D17, T1.6: before the place it takes the new way, past it the old one."""
    fleet = Fleet()
    fleet.begin(nights=nights)
    if nights:
        fleet.bench.wake("order")
    fleet.nights(fleet.new)

    assert fleet.bench.run().status is RunStatus.COMPLETED
    assert fleet.way == (OLD_WAY if nights == 2 else NEW_WAY)


def test_a_run_with_a_mark_waits_for_its_code_when_the_deploy_is_taken_back() -> None:
    """D17, scenario 32: the old code names the patch, works nothing and spends nothing; the new one ends the run."""
    fleet = Fleet()
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


def test_a_changed_workflow_fails_its_runs_where_that_is_asked_for() -> None:
    """T14.7, D32: under ``version_policy = "fail"`` a run of another version fails, naming both, and nothing of it is worked."""
    fleet = Fleet(version_policy="fail")
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


# --- versions that are stored -------------------------------------------------------------------------------------------


def test_a_worker_stores_what_it_has_once_and_for_all() -> None:
    """Spec 1.4: both versions of a changed workflow are kept, with what they plan, and the first is never overwritten."""
    fleet = Fleet()
    store_versions(fleet.old)
    fleet.bench.clock.advance(60)
    store_versions(fleet.new)
    store_versions(fleet.old)
    stored = fleet.bench.store.list_versions("order")

    assert [(one.version, one.kind) for one in stored] == [("v1", VersionKind.FUNCTION), ("v2", VersionKind.FUNCTION)]
    assert '"source": "tests.unit.engine.test_versions.before"' in stored[0].definition


def test_versions_are_shown_with_the_runs_that_need_them() -> None:
    """Spec 1.4: stored ones first; one that only runs know, and what this process has, are among them."""
    fleet = Fleet()
    store_versions(fleet.old)
    fleet.bench.start("order", run_id="r1")
    fleet.bench.start("order", run_id="r2")
    fleet.bench.work(rt=fleet.old)
    run = fleet.bench.store._tables.runs[RunId("r2")]
    run.version = "v0"

    shown = {one.version: one for one in versions_of(fleet.new, "order")}

    assert list(shown) == ["v1", "v0", "v2"]
    assert {version: one.open_runs for version, one in shown.items()} == {"v1": 1, "v0": 1, "v2": 0}
    assert [version for version, one in shown.items() if one.here] == ["v2"]
    assert shown["v0"].kind is None
    assert shown["v1"].to_dict()["kind"] == "function"
    assert "storedAt" not in shown["v2"].to_dict()


def test_versions_of_a_workflow_nobody_has_heard_of_are_an_error() -> None:
    """One that is stored or has runs is shown though this process does not know it."""
    fleet = Fleet()
    with pytest.raises(WorkflowNotFound):
        versions_of(fleet.old, "gift")
    store_versions(fleet.new)

    assert [one.here for one in versions_of(fleet.old, "gift")] == [False]


# --- plans ----------------------------------------------------------------------------------------------------------------


def test_a_child_run_has_its_workflows_plan_and_flag() -> None:
    """V10, D16: both are copied when the run begins, and shown with its status."""
    bench = Bench()

    def child(wf: Any) -> int:
        wf.do("a", lambda: 1)
        return int(wf.do("b", lambda: 2))

    bench.workflow(child, planned_steps=("a", "b"), deterministic=True)
    bench.workflow(lambda wf: wf.do(Child("child")), name="flow")
    bench.start("flow")
    bench.work()
    run_id = bench.step("child").child_run_id
    assert run_id is not None

    shown = summary_of(bench.run(run_id), bench.steps(run_id), bench.rt.codec.decode)

    assert shown.deterministic
    assert shown.planned_steps == tuple(step.name for step in shown.steps) == ("a", "b")
    assert not summary_of(bench.run(), bench.steps(), bench.rt.codec.decode).deterministic
