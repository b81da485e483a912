"""A run waits at ``wf.suspend`` until somebody resumes it, and for nothing else (spec 2.6, D3, D4)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.engine.run_handle import Run
from pikkuflow.errors import GateNotFound, RunNotSuspended, RunSettled, StepNameError
from tests.unit.engine.bench import Bench, Task


@pytest.fixture
def bench() -> Bench:
    """A bench with a counted step."""
    made = Bench()
    made.task(lambda text: text, name="note")
    return made


def _handle(bench: Bench) -> Run[Any]:
    return Run("r1", lambda: bench.rt)


def _two_gates(wf: Any) -> str:
    wf.do("before", Task("note", ("before",)))
    for gate in ("stock", "weather"):
        wf.suspend(gate)
        wf.do(f"after {gate}", Task("note", (gate,)))
    return "done"


def test_each_suspension_pauses_once_and_names_its_reason(bench: Bench) -> None:
    """T1.8: the status is suspended, and several reasons in one workflow pause one after the other."""
    bench.start(bench.workflow(_two_gates))
    bench.work()
    for reason in ("stock", "weather"):
        run = bench.run()
        assert (run.status, run.code, bench.error()) == (RunStatus.SUSPENDED, "WORKFLOW_SUSPENDED", reason)
        assert run.due_at is None
        assert _handle(bench).resume(reason)
        assert bench.run().status is RunStatus.RUNNING
        bench.work()
    assert bench.output() == "done"
    assert [work.step for work in bench.runner.works] == ["before", "after stock", "after weather"]


def test_a_stray_pass_suspends_again(bench: Bench) -> None:
    """D3, H3: a message that nobody sent for the gate finds it as closed as before."""
    name = bench.workflow(_two_gates)
    bench.start(name)
    bench.work()
    for _ in range(3):
        bench.wake(name)
        bench.work()
    assert (bench.run().status, bench.error()) == (RunStatus.SUSPENDED, "stock")
    assert len(bench.runner.works) == 1


def test_two_resumes_are_one(bench: Bench) -> None:
    """Scenario 26: what ran before the pause is not run again, and a second resume opens nothing more."""
    bench.start(bench.workflow(_two_gates))
    bench.work()
    handle = _handle(bench)
    assert handle.resume("stock")
    assert handle.resume("stock") is False
    bench.work()
    assert handle.resume("stock") is False
    assert (bench.run().status, bench.error()) == (RunStatus.SUSPENDED, "weather")
    assert [work.step for work in bench.runner.works] == ["before", "after stock"]


def test_a_bare_resume_opens_what_waits(bench: Bench) -> None:
    """Without a reason the suspension that waits is opened, whatever it is for."""
    bench.start(bench.workflow(_two_gates))
    for _ in range(2):
        bench.work()
        assert _handle(bench).resume()
    bench.work()
    assert bench.output() == "done"


def test_a_resume_that_meets_the_pass_at_its_gate_is_not_lost(bench: Bench) -> None:
    """D4: the gate's row is there, the pass has not closed; the closer hears the news and another pass goes on."""
    handle = _handle(bench)
    told: list[bool] = []

    def body(wf: Any) -> str:
        wf.do("before", Task("note", ("before",)))
        try:
            wf.suspend("stock")
        finally:
            if not told:
                told.append(handle.resume("stock"))
        return "done"

    bench.start(bench.workflow(body))
    bench.work()
    assert told == [True]
    assert bench.output() == "done"


def test_parallel_work_beside_a_gate_goes_on(bench: Bench) -> None:
    """Steps in flight keep the run running; when they have settled it is suspended, and the gate is as closed as before."""
    bench.task(lambda: 1, name="slow", leaves="route")

    def body(wf: Any) -> list[int]:
        handles = [wf.submit(f"slow {n}", Task("slow")) for n in range(2)]
        wf.suspend("stock")
        return list(wf.gather(*handles))

    bench.start(bench.workflow(body))
    bench.orchestrate()
    assert bench.run().status is RunStatus.RUNNING
    assert bench.step("__workflow_suspend:stock").status is StepStatus.SUSPENDED
    bench.work()
    assert (bench.run().status, bench.error()) == (RunStatus.SUSPENDED, "stock")
    assert _handle(bench).resume()
    bench.work()
    assert bench.output() == [1, 1]


def test_a_gate_opens_while_steps_beside_it_are_in_flight(bench: Bench) -> None:
    """The run is running, and the resume of its gate is no mistake."""
    bench.task(lambda: 1, name="slow", leaves="route")

    def body(wf: Any) -> int:
        handle = wf.submit("slow", Task("slow"))
        wf.submit("slower", Task("slow"))
        wf.suspend("stock")
        wf.do("after", Task("note", ("after",)))
        return int(handle.result())

    bench.start(bench.workflow(body))
    bench.orchestrate()
    assert _handle(bench).resume("stock")
    bench.orchestrate()
    assert bench.step("after").status is StepStatus.SUCCEEDED
    bench.work()
    assert bench.output() == 1


def test_a_reason_that_is_used_again_waits_again(bench: Bench) -> None:
    """A repeat is a gate of its own, and a resume of the reason opens the one that waits."""

    def body(wf: Any) -> str:
        for _ in range(2):
            wf.suspend("stock")
        return "done"

    bench.start(bench.workflow(body))
    bench.work()
    assert _handle(bench).resume("stock")
    bench.work()
    assert bench.run().status is RunStatus.SUSPENDED
    assert _handle(bench).resume("stock")
    bench.work()
    assert bench.output() == "done"


def test_what_cannot_be_resumed_is_a_typed_error_and_changes_nothing(bench: Bench) -> None:
    """Unknown reason 404, running and settled runs 409, a reason that is no text; the run stays as it is (spec 10.6)."""
    bench.start(bench.workflow(_two_gates))
    handle = _handle(bench)
    with pytest.raises(RunNotSuspended) as running:
        handle.resume()
    bench.work()
    before = bench.run()
    with pytest.raises(GateNotFound) as unknown:
        handle.resume("sun")
    for bad in (7, "", "a[1]", "x" * 201):
        with pytest.raises(StepNameError):
            handle.resume(bad)  # type: ignore[arg-type]
    assert bench.run() == before
    for _ in range(2):
        handle.resume()
        bench.work()
    with pytest.raises(RunSettled) as settled:
        handle.resume()
    assert [error.value.status for error in (running, unknown, settled)] == [409, 404, 409]


def test_a_suspension_without_a_usable_reason_fails_in_the_body(bench: Bench) -> None:
    """The reason is the gate's identity; a type that is no text is named, and no row is written."""

    def body(wf: Any) -> None:
        wf.suspend(7)

    bench.start(bench.workflow(body))
    bench.work()
    assert bench.run().status is RunStatus.FAILED
    assert "int" in bench.error()
    assert bench.steps() == ()


def test_a_run_stopped_meanwhile_is_not_suspended(bench: Bench) -> None:
    """T11.41: the write of a pass that meets a stop does not cover it."""

    def body(wf: Any) -> None:
        bench.store._tables.runs[RunId("r1")].status = RunStatus.COMPENSATING
        wf.suspend("stock")

    bench.start(bench.workflow(body))
    bench.orchestrate()
    assert bench.run().status is RunStatus.COMPENSATING


def test_an_inline_run_stops_at_its_gate_and_goes_on_when_it_is_resumed() -> None:
    """D26: without a broker the resume works the run here."""
    bench = Bench()
    bench.task(lambda text: text, name="note")
    rt = bench.other(has_broker=False)
    bench.start(bench.workflow(_two_gates), inline=True)
    handle: Run[Any] = Run("r1", lambda: rt)
    handle.resume()
    assert bench.error() == "stock"
    assert handle.resume("stock")
    assert bench.error() == "weather"
    assert handle.resume()
    assert handle.result(timeout=0) == "done"
