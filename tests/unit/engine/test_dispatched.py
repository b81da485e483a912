"""Dispatched steps: row, message, park; claim, work, outcome, and the run goes on (design 2, spec 5.6)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.domain.status import Dispatch, RunStatus, StepStatus
from pikkuflow.errors import StepFailed, StepFunctionMismatch
from pikkuflow.ports import AttemptEnd
from tests.unit.engine.bench import Bench, Say, Task
from tests.unit.engine.far_step import a_bench, execute


def test_a_step_that_leaves_is_stored_then_sent_then_scheduled() -> None:
    """Spec 16.1, 16.4: row, message, park; the closing write marks what was sent."""
    bench = a_bench()

    assert [message.name for (message,) in bench.broker.messages] == ["far"]
    assert bench.step("far").status is StepStatus.SCHEDULED
    assert bench.run().status is RunStatus.RUNNING
    assert bench.run().pass_id is None


def test_a_step_worker_works_it_and_continues_the_run_in_place() -> None:
    """Design 2: no extra message when the worker consumes the workflow's queue and the run is free."""
    bench = a_bench()

    bench.work_one()

    assert bench.output() == 2
    assert not bench.broker.wakes


def test_what_a_light_pass_works_itself_is_shown_before() -> None:
    """A server that dies may forget its opening: the first step in place is begun on disk, those after it are not held up."""
    bench = Bench()
    bench.task(lambda n: n + 1, name="far", leaves="queue")
    shown: list[tuple[str, ...]] = []

    def flow(wf: Any) -> None:
        wf.do(Task("far", (1,)))
        for name in ("one", "two"):
            wf.do(name, lambda: shown.append(tuple(f"{step.name} {step.status}" for step in bench.steps())))

    bench.workflow(flow, dispatch=Dispatch.QUEUE)
    bench.start("flow")
    bench.work()

    assert shown == [("far succeeded", "one running"), ("far succeeded", "one succeeded")]
    assert bench.run().status is RunStatus.COMPLETED


@pytest.mark.parametrize(
    ("may_continue", "consumes", "stopping"), [(False, True, False), (True, False, False), (True, True, True)]
)
def test_a_step_worker_that_may_not_continue_wakes_the_run(
    *, may_continue: bool, consumes: bool, stopping: bool
) -> None:
    """Design 2: a message with a time limit, a foreign queue, or a warm shutdown: the run gets a wake-up."""
    bench = a_bench()

    execute(bench, may_continue=may_continue, consumes=lambda _: consumes, is_stopping=lambda: stopping)

    assert [ref.id for ref in bench.broker.wakes] == ["r1"]
    assert bench.run().status is RunStatus.RUNNING


def test_a_message_delivered_twice_runs_once() -> None:
    """T6.1, T5.4: the live or settled claim decides; the second delivery is quietly done."""
    bench = a_bench()

    execute(bench)
    execute(bench)

    assert len(bench.runner.works) == 1
    assert bench.output() == 2


def test_a_message_that_names_another_task_is_refused() -> None:
    """T6.15, spec 12.4: nothing is written, the row keeps its task and its attempt."""
    bench = a_bench()
    bench.task(lambda n: n, name="evil")
    before = bench.step("far")

    with pytest.raises(StepFunctionMismatch, match="'evil'"):
        execute(bench, task="evil")
    with pytest.raises(StepFunctionMismatch, match="'unheard'"):
        execute(bench, task="unheard")

    assert bench.step("far") == before
    assert not bench.runner.works


def test_a_failed_attempt_writes_the_next_one_with_its_due_time() -> None:
    """D2, D21: pending, due, its failure in the history; a hint instead of a delayed message."""
    bench = a_bench()
    bench.task(lambda _: _boom(), name="far", leaves="queue")

    bench.work_one()

    assert bench.step("far").status is StepStatus.PENDING
    assert bench.step("far").attempt == 2
    assert [attempt.status for attempt in bench.attempts()] == [StepStatus.FAILED]
    assert bench.due() == pytest.approx(10)
    assert not bench.broker.messages


def test_an_early_message_for_the_next_attempt_claims_nothing() -> None:
    """Design 3.6: a claim needs due_at reached and the row's attempt."""
    bench = a_bench()
    bench.task(lambda _: _boom(), name="far", leaves="queue")
    bench.work_one()

    execute(bench, attempt=1)
    execute(bench, attempt=2)

    assert len(bench.runner.works) == 1


def test_the_next_attempt_is_sent_when_it_is_due_and_exhausting_it_fails_the_run() -> None:
    """T4.3, T5.2: attempts = retries + 1; a real step error fails the run, once, with the step's own error."""
    bench = a_bench()
    bench.task(lambda _: _boom(), name="far", leaves="queue")
    bench.work_one()

    bench.pass_time(10)

    assert [work.attempt for work in bench.runner.works] == [1, 2]
    assert bench.runner.lasts == [False, True]
    assert bench.step("far").status is StepStatus.FAILED
    assert bench.run().status is RunStatus.FAILED
    assert "boom" in bench.error()


def test_a_retry_that_was_due_and_sent_asks_for_no_pass_of_its_own() -> None:
    """Design 4: only what is not due leaves a hint again; a due retry that waits for a worker costs no passes (simulation, seed 2797)."""
    bench = a_bench()
    bench.task(lambda _: _boom(), name="far", leaves="queue")
    bench.work_one()
    bench.clock.advance(13)
    bench.orchestrate()
    assert bench.step("far").status is StepStatus.SCHEDULED

    bench.hints.pop_due(100)
    bench.orchestrate()

    assert bench.due() is None


def test_a_delay_of_zero_is_sent_again_at_once() -> None:
    """D29 for dispatched steps: no pass in between."""
    bench = a_bench()
    tries: list[int] = []

    def far(number: int) -> int:
        tries.append(number)
        if len(tries) == 1:
            raise Say(AttemptEnd.RAISED, delay=0.0, override={"args": [41]})
        return number

    bench.task(far, leaves="queue")
    bench.work_one()
    assert [message.attempt for (message,) in bench.broker.messages] == [2]
    bench.work()

    assert tries == [1, 41]
    assert bench.output() == 41


def test_a_step_that_exhausted_its_attempts_raises_in_the_body() -> None:
    """D6: remembered for every kind of step; the body may go on."""
    bench = Bench()
    bench.task(_boom, name="far", leaves="queue")

    def flow(wf: Any) -> str:
        try:
            wf.do(Task("far"), retries=0)
        except StepFailed as error:
            return f"{error.step}: {error.error_message}"
        return ""

    bench.workflow(flow)
    bench.start("flow")
    bench.work()

    assert bench.output() == "far: boom"


def test_a_broker_that_is_down_leaves_the_step_pending_and_the_run_running() -> None:
    """T5.1, T5.2, D21: the message succeeds, a hint is left a second ahead, the next pass sends it."""
    bench = Bench()
    bench.task(lambda n: n + 1, name="far", leaves="queue")

    def flow(wf: Any) -> int:
        value: int = wf.do(Task("far", (1,)))
        return value

    bench.workflow(flow)
    bench.start("flow")
    bench.broker.is_down = True
    bench.orchestrate()
    assert bench.step("far").status is StepStatus.PENDING
    assert bench.run().status is RunStatus.RUNNING
    assert bench.due() == pytest.approx(1)

    bench.broker.is_down = False
    bench.pass_time(1)

    assert bench.output() == 2
    assert len(bench.runner.works) == 1


def test_a_step_with_a_countdown_is_sent_when_it_is_due() -> None:
    """Design 1: countdown and eta become a column; no message before."""
    bench = Bench()
    bench.task(lambda: "late", name="far", leaves="queue")

    def flow(wf: Any) -> str:
        value: str = wf.do(Task("far", countdown=60.0))
        return value

    bench.workflow(flow)
    bench.start("flow")
    bench.work()
    assert not bench.runner.works
    assert bench.due() == pytest.approx(60)

    bench.pass_time(60)

    assert bench.output() == "late"


def test_a_step_in_place_with_a_countdown_waits_for_its_time() -> None:
    """Design 1: countdown and eta become a column, wherever the step is worked."""
    bench = Bench()
    bench.task(lambda: "late", name="near")

    def flow(wf: Any) -> str:
        value: str = wf.do(Task("near", countdown=60.0))
        return value

    bench.workflow(flow)
    bench.start("flow")
    bench.work()
    assert not bench.runner.works
    assert bench.due() == pytest.approx(60)

    bench.pass_time(60)

    assert bench.output() == "late"
    assert len(bench.runner.works) == 1


def test_members_of_a_map_wake_their_run_once() -> None:
    """Design 2: one insert, one publish, a shared counter; only the member that reaches zero wakes the run."""
    bench = Bench()
    bench.task(lambda n: n * 10, name="member")

    def flow(wf: Any) -> list[int]:
        values: list[int] = wf.map(Task("member"), [1, 2, 3, 4])
        return values

    bench.workflow(flow)
    bench.start("flow")
    bench.work_one()
    assert len(bench.broker.messages) == 4
    assert all(step.fan_id is not None for step in bench.steps())
    bench.work()

    assert bench.output() == [10, 20, 30, 40]
    assert len(bench.ear.passes) == 2


def test_a_failing_member_neither_loses_nor_repeats_the_others() -> None:
    """Spec 2.10: healthy siblings keep their results; the first failure in call order is raised after all have settled."""
    bench = Bench()
    bench.task(lambda n: _boom() if n == 2 else n, name="member")

    def flow(wf: Any) -> str:
        try:
            wf.map(Task("member"), [1, 2, 3], retries=0)
        except StepFailed as error:
            return error.step
        return ""

    bench.workflow(flow)
    bench.start("flow")
    bench.work()

    assert bench.output() == "member[1]"
    assert len(bench.runner.works) == 3


def test_a_chunk_travels_together_and_each_member_is_a_step() -> None:
    """Design 2: claimed together, each with its own outcome; a failing one does not stop the rest."""
    bench = Bench()
    bench.task(lambda n: _boom() if n == 2 else n, name="member")

    def flow(wf: Any) -> list[Any]:
        values: list[Any] = wf.map(Task("member"), [1, 2, 3, 4, 5], chunk=2, retries=1, retry_delay=0)
        return values

    bench.workflow(flow)
    bench.start("flow")
    bench.work_one()
    assert [len(message) for message in bench.broker.messages] == [2, 2, 1]
    bench.work()

    assert bench.run().status is RunStatus.FAILED
    assert {step.name: step.status for step in bench.steps()} == {
        "member[0]": StepStatus.SUCCEEDED,
        "member[1]": StepStatus.FAILED,
        "member[2]": StepStatus.SUCCEEDED,
        "member[3]": StepStatus.SUCCEEDED,
        "member[4]": StepStatus.SUCCEEDED,
    }


def _boom() -> int:
    raise ValueError("boom")
