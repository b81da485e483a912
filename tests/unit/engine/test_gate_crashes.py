"""A process dies at every moment around gates: the worker at its gate, the person's own process in the middle of an answer (spec 16.6)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from pikkuflow.domain.gate import Decider
from pikkuflow.domain.gate_act import AuditOutcome
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.engine.run_handle import Run
from pikkuflow.engine.runtime import Runtime
from pikkuflow.errors import ApprovalResolved, GateNotFound
from tests.unit.engine.bench import Bench, Died, Life, Task
from tests.unit.engine.test_crashes import tick

_PATIENCE = 60
R1 = RunId("r1")


def a_bench() -> Bench:
    """A run that waits for each kind of gate, and times out at one, with a step after each."""
    bench = Bench()
    bench.task(lambda text: text, name="note")
    bench.task(lambda: "far", name="far", leaves="queue")

    def flow(wf: Any) -> list[Any]:
        beside = wf.submit("beside", Task("far"))
        wf.suspend("papers")
        wf.do("after papers", Task("note", ("papers",)))
        letter = wf.wait_for("letter")
        late = wf.wait_for("nothing", timeout=7, default="over")
        answer = wf.approval("release", approvers="not-initiator", schema=int)
        wf.do("after release", Task("note", ("release",)))
        return [letter, late, answer.data, answer.decided_by.user, beside.result()]

    bench.workflow(flow)
    return bench


def answer(bench: Bench, rt: Runtime) -> None:
    """A person looks what the run waits for, and says it; whoever got no answer says it again."""
    handle: Run[Any] = Run("r1", lambda: rt)
    waiting = {step.task for step in bench.steps() if step.status is StepStatus.SUSPENDED}
    if "papers" in waiting:
        with suppress(GateNotFound):
            handle.resume("papers")
    if "letter" in waiting:
        handle.signal("letter", 1, idempotency_key="only once")
    if "release" in waiting:
        with suppress(ApprovalResolved):
            handle.approve("release", "42", by=Decider("u2"))


def live_through(bench: Bench, rt: Runtime) -> None:
    """Workers and people go on until the run is settled."""
    for _ in range(_PATIENCE):
        bench.work(rt=rt)
        if bench.run().is_settled:
            return
        answer(bench, rt)
        bench.work(rt=rt)
        tick(bench, rt, seconds=5)
    raise AssertionError(f"the run is {bench.run().status}: {[(step.name, step.status) for step in bench.steps()]}")


def moments() -> int:
    """How many moments a healthy life has."""
    bench, life = a_bench(), Life()
    bench.start("flow", owner="u1")
    live_through(bench, bench.process(life))
    return life.moments


@pytest.mark.parametrize("part", range(4))
def test_a_death_at_any_moment_loses_no_answer_and_repeats_none(part: int) -> None:
    """C2, T1.10, D4: whatever dies, the run ends as it was answered, each signal is taken once, and one decision is admitted."""
    for moment in range(1 + part, moments() + 1, 4):
        bench = a_bench()
        bench.start("flow", owner="u1")
        with suppress(Died):
            live_through(bench, bench.process(Life(dies_at=moment)))
        bench.clock.advance(61)
        live_through(bench, bench.rt)
        assert bench.run().status is RunStatus.COMPLETED, moment
        assert bench.output() == [1, "over", 42, "u2", "far"], moment
        assert [one.taken_by for one in bench.store.list_signals(R1)] == ["__workflow_signal:letter"], moment
        admitted = [entry for entry in bench.store.list_audit(R1) if entry.outcome is AuditOutcome.SUCCESS]
        assert len(admitted) == len(bench.store.list_decisions(R1)) == 1, moment


def test_a_gate_is_as_closed_after_any_death_of_its_pass() -> None:
    """D3: a pass that dies before, at or after its gate is followed by passes that suspend again, until somebody resumes."""

    def flow(wf: Any) -> str:
        wf.do("before", Task("note", ("before",)))
        wf.suspend("papers")
        return "passed"

    for moment in range(1, 40):
        bench = Bench()
        bench.task(lambda text: text, name="note")
        bench.start(bench.workflow(flow))
        with suppress(Died):
            bench.work(rt=bench.process(Life(dies_at=moment)))
        for _ in range(3):
            bench.clock.advance(31)
            bench.recover()
            bench.work()
        assert (bench.run().status, bench.error()) == (RunStatus.SUSPENDED, "papers"), moment
        assert Run[Any]("r1", lambda b=bench: b.rt).resume()  # type: ignore[misc]
        bench.work()
        assert bench.output() == "passed", moment
