"""What a step that is at work learns when it asks, and what its next attempt learns from it (design 3.7, scenarios 08 and 24)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.engine.beat import beat_of
from pikkuflow.engine.cancel import cancel_run
from pikkuflow.engine.current_step import CurrentStep, current_step
from pikkuflow.errors import PayloadError, RunCancelled, StepSuperseded
from tests.unit.engine.bench import Bench


def in_place(body: Any) -> Bench:
    """A run whose one step calls the function in place."""
    bench = Bench()

    def flow(wf: Any) -> Any:
        return wf.do("work", lambda: body(bench, current_step()), retry_delay=0)

    bench.workflow(flow)
    bench.start("flow")
    bench.work()
    return bench


def test_details_of_a_heartbeat_are_there_for_the_next_attempt() -> None:
    """Issue D: also of a step in place, whose start is recorded with them."""
    seen: list[Any] = []

    def work(bench: Bench, step: CurrentStep) -> str:
        seen.append(step.details)
        if step.attempt == 1:
            step.heartbeat({"page": 3})
            assert bench.step("work").status is StepStatus.RUNNING
            raise ValueError("once")
        return "done"

    bench = in_place(work)

    assert bench.output() == "done"
    assert seen == [None, {"page": 3}]


def test_details_survive_a_lost_process() -> None:
    """The pass that takes the step back hands them on."""
    bench = Bench()
    seen: list[Any] = []

    def work() -> str:
        step = current_step()
        seen.append(step.details)
        step.heartbeat(len(seen))
        bench.die_if_told()
        return "done"

    def flow(wf: Any) -> Any:
        return wf.do("work", work)

    bench.workflow(flow)
    bench.start("flow")
    bench.orchestrate_and_die()
    bench.orchestrate()

    assert bench.output() == "done"
    assert seen == [None, 1]


def test_a_step_learns_that_its_run_was_stopped() -> None:
    """Scenario 24: by asking, by leaving, at its next heartbeat."""
    told: list[str] = []

    def work(bench: Bench, step: CurrentStep) -> None:
        assert not step.is_cancelled()
        step.raise_if_cancelled()
        step.heartbeat()
        cancel_run(bench.rt, RunId("r1"), "enough")
        assert step.is_cancelled()
        for ask in (step.raise_if_cancelled, step.heartbeat):
            with pytest.raises(RunCancelled):
                ask()
            told.append("cancelled")
        step.raise_if_cancelled()

    bench = in_place(work)

    assert told == ["cancelled"] * 2
    assert bench.run().status is RunStatus.CANCELLED
    assert bench.step("work").attempt == 1, "it is not tried again"
    assert bench.step("work").status is StepStatus.FAILED


def test_an_attempt_that_was_taken_over_learns_it() -> None:
    """Scenario 08: attempt 1 still works when attempt 2 has taken its place."""
    bench = Bench()
    steps: list[CurrentStep] = []

    def work() -> str:
        steps.append(current_step())
        bench.die_if_told()
        return "done"

    bench.task(work, name="work")

    def flow(wf: Any) -> Any:
        return wf.do("work", work, record_start=True)

    bench.workflow(flow)
    bench.start("flow")
    bench.orchestrate_and_die()
    bench.orchestrate()

    assert bench.output() == "done"
    late = replace(steps[0], _beat=beat_of(bench.rt, RunId("r1"), bench.step("work"), 1))
    with pytest.raises(StepSuperseded):
        late.heartbeat()
    assert late.is_cancelled()


def test_details_that_cannot_be_stored_are_refused() -> None:
    """They never get lost in silence."""

    def work(_bench: Bench, step: CurrentStep) -> str:
        with pytest.raises(PayloadError):
            step.heartbeat({1, 2})
        return "done"

    assert in_place(work).output() == "done"
