"""Passes that end without closing: what they held is taken back, charged where it must be, and never worked twice where it must not."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.domain.status import RunStatus, StepStatus
from tests.unit.engine.bench import Bench, Task


def a_poisoned_bench(**options: Any) -> tuple[Bench, list[int]]:
    """A run whose only step takes its process down as long as the test says so; the list holds the attempts that began."""
    bench = Bench()
    begun: list[int] = []

    def poison() -> str:
        begun.append(bench.runner.works[-1].attempt)
        bench.die_if_told()
        return "survived"

    bench.task(poison)

    def flow(wf: Any) -> str:
        value: str = wf.do(Task("poison"), **options)
        return value

    bench.workflow(flow)
    bench.start("flow")
    return bench, begun


def test_a_lost_pass_leaves_the_run_marked_and_its_first_step_begins_at_attempt_two() -> None:
    """Design 2, scenario 50: the step that may have taken the process down is charged; its start is recorded this time."""
    bench, begun = a_poisoned_bench()
    bench.orchestrate_and_die()

    bench.orchestrate()

    assert begun == [1, 2]
    assert bench.step("poison").attempt == 2
    assert bench.output() == "survived"
    assert [loss.attempt for loss in bench.ear.losses] == [1]


def test_a_step_that_takes_its_process_down_every_time_runs_out_of_attempts() -> None:
    """Scenario 50: deaths count as attempts; after the limit the step fails with its lease named, and nothing runs any more."""
    bench, begun = a_poisoned_bench(retries=3)
    for _ in range(4):
        bench.orchestrate_and_die()

    bench.orchestrate()

    assert begun == [1, 2, 3, 4]
    assert bench.run().status is RunStatus.FAILED
    assert "lease expired" in bench.error()
    assert bench.ear.losses[-1].exhausted
    assert [attempt.attempt for attempt in bench.attempts()] == [2, 3]


def test_a_step_without_retries_never_starts_twice() -> None:
    """D10, design 2: its start was recorded, so a lost pass fails it instead of repeating it."""
    bench, begun = a_poisoned_bench(retries=0)
    bench.orchestrate_and_die()

    bench.orchestrate()

    assert begun == [1]
    assert bench.step("poison").status is StepStatus.FAILED
    assert bench.run().status is RunStatus.FAILED


def test_a_recorded_start_is_taken_back_as_a_new_attempt_with_the_same_invocation() -> None:
    """T6.16: counted, told, and the stale attempt keeps its history row as running."""
    bench, begun = a_poisoned_bench(record_start=True)
    bench.orchestrate_and_die()

    bench.orchestrate()

    assert begun == [1, 2]
    assert [(attempt.attempt, attempt.status) for attempt in bench.attempts()] == [(1, StepStatus.RUNNING)]
    assert [loss.attempt for loss in bench.ear.losses] == [1]
    assert bench.output() == "survived"


def test_only_the_first_step_after_a_lost_pass_is_charged() -> None:
    """Design 2: an in-place outcome clears the mark; later steps begin at attempt 1 and record no start."""
    bench = Bench()
    statuses: list[Any] = []
    bench.task(bench.die_if_told, name="first")
    bench.task(lambda: statuses.append([step.name for step in bench.steps()]), name="second")

    def flow(wf: Any) -> None:
        wf.do(Task("first"))
        wf.do(Task("second"))

    bench.workflow(flow)
    bench.start("flow")
    bench.orchestrate_and_die()
    bench.orchestrate()

    assert bench.step("first").attempt == 2
    assert bench.step("second").attempt == 1
    assert statuses == [["first"]]


@pytest.mark.parametrize("options", [{"retries": 0}, {"record_start": True}, {"dispatch": "queue"}])
def test_a_step_that_would_have_left_a_trace_is_not_charged(options: dict[str, Any]) -> None:
    """Design 2: steps with retries=0, with a recorded start, or dispatched are never charged for a lost pass."""
    bench = Bench()
    bench.task(lambda: "done", name="work")

    def flow(wf: Any) -> str:
        bench.die_if_told()
        value: str = wf.do(Task("work"), **options)
        return value

    bench.workflow(flow)
    bench.start("flow")
    bench.orchestrate_and_die()
    bench.orchestrate()
    bench.work()

    assert bench.step("work").attempt == 1
    assert bench.output() == "done"


def test_a_body_that_kills_its_process_is_suspended_after_ten_lost_passes() -> None:
    """Design 2, PASS_LOST: announced, not driven any more, and a resume gives it ten more."""
    bench = Bench()

    def flow(wf: Any) -> str:
        bench.die_if_told()
        return "survived"

    bench.workflow(flow)
    bench.start("flow")
    for _ in range(10):
        bench.orchestrate_and_die()
    bench.orchestrate()
    assert bench.run().status is RunStatus.SUSPENDED
    assert bench.run().code == "PASS_LOST"

    assert bench.resume()
    bench.work()

    assert bench.output() == "survived"


def test_a_retry_that_waited_through_a_lost_pass_is_worked_at_its_attempt() -> None:
    """A pending row says where it stands: nothing is charged for it."""
    bench = Bench()
    tries: list[int] = []

    def shaky() -> str:
        tries.append(bench.runner.works[-1].attempt)
        if len(tries) == 1:
            raise ValueError("not yet")
        bench.die_if_told()
        return "ok"

    bench.task(shaky)

    def flow(wf: Any) -> str:
        value: str = wf.do(Task("shaky"), retry_delay="5s")
        return value

    bench.workflow(flow)
    bench.start("flow")
    bench.work()
    bench.clock.advance(5)
    bench.orchestrate_and_die()
    bench.orchestrate()

    assert tries == [1, 2, 2]
    assert bench.output() == "ok"


def test_a_lost_pass_is_found_by_the_sweep() -> None:
    """T6.5, spec 16.5: the stalled sweep finds the lapsed pass; no message, no hint is needed."""
    bench, _ = a_poisoned_bench()
    bench.orchestrate_and_die()
    bench.broker.lose_all()

    bench.recover()
    bench.work()

    assert bench.output() == "survived"
