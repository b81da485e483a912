"""Steps in place: one write a step, the outcome committed before the body sees it (design 2)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.domain.ids import RunId, StepName, invocation_id
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.engine.current_step import current_step
from pikkuflow.errors import PayloadError, StepFailed, StoreUnavailable
from pikkuflow.ports import AttemptEnd
from tests.unit.engine.bench import Bench, Say, Task


class CountingStore:
    """Counts the acts of a pass."""

    def __init__(self, bench: Bench) -> None:
        self.calls: list[str] = []
        self.record: Any = None
        self._store = bench.store
        for name in (
            "open_pass",
            "record",
            "insert_steps",
            "close_pass",
            "start_child",
            "get_run",
            "list_steps",
            "get_step",
        ):
            setattr(self, name, self._counted(name))

    def _counted(self, name: str) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            self.calls.append(name)
            return getattr(self._store, name)(*args, **more)

        return call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_a_chain_of_steps_costs_one_write_each_and_no_message() -> None:
    """Design 2, T3.7: one opening, one record a step, one closing; nothing is published, nothing is read again."""
    bench = Bench()
    bench.task(lambda n: n + 1, name="inc")

    def flow(wf: Any) -> int:
        number = 0
        for _ in range(10):
            number = wf.do(Task("inc", (number,)))
        return number

    bench.workflow(flow)
    bench.start("flow")
    bench.broker.lose_all()
    store = CountingStore(bench)

    bench.orchestrate(store=store)

    assert bench.output() == 10
    assert store.calls == ["open_pass", *["record"] * 10, "close_pass"]
    assert not bench.broker.wakes
    assert not bench.broker.messages


def test_the_outcome_is_stored_before_the_body_sees_it() -> None:
    """Design 2: the body's next line finds the row settled."""
    bench = Bench()
    bench.task(lambda: "done", name="work")
    seen: list[StepStatus] = []

    def flow(wf: Any) -> str:
        value: str = wf.do(Task("work"))
        seen.append(bench.step("work").status)
        return value

    bench.workflow(flow)
    bench.start("flow")
    bench.work()

    assert seen == [StepStatus.SUCCEEDED]
    assert bench.output() == "done"


def test_a_body_sees_what_was_stored_not_what_was_returned() -> None:
    """Every pass sees the same value: a tuple comes back as a list in the first pass as well."""
    bench = Bench()
    bench.task(lambda: (1, 2), name="pair")
    seen: list[Any] = []

    def flow(wf: Any) -> None:
        seen.append(wf.do(Task("pair")))

    bench.workflow(flow)
    bench.start("flow")
    bench.work()

    assert seen == [[1, 2]]


def test_a_task_gets_its_arguments_as_they_are_stored() -> None:
    """In place and dispatched, first attempt and later ones: the same values."""
    bench = Bench()
    seen: list[Any] = []
    bench.task(seen.append, name="look")

    def flow(wf: Any) -> None:
        wf.do(Task("look", ((1, 2),)))

    bench.workflow(flow)
    bench.start("flow")
    bench.work()

    assert seen == [[1, 2]]


def test_a_failing_task_is_tried_retries_plus_one_times() -> None:
    """T4.1, D10: five retries are six attempts, with growing delays, each with a history row (I9)."""
    bench = Bench()

    def fail() -> None:
        raise ValueError("boom")

    bench.task(fail)

    def flow(wf: Any) -> None:
        wf.do(Task("fail"))

    bench.workflow(flow)
    bench.start("flow")
    bench.work()
    for _ in range(10):
        bench.pass_time(600)

    assert len(bench.runner.works) == 6
    assert bench.runner.lasts == [False] * 5 + [True]
    assert bench.step("fail").status is StepStatus.FAILED
    assert [attempt.attempt for attempt in bench.attempts()] == [1, 2, 3, 4, 5]
    assert bench.run().status is RunStatus.FAILED
    assert "boom" in bench.error()


def test_a_delay_of_zero_is_tried_again_in_the_same_pass() -> None:
    """D29: no park, no message; the failed attempt is stored all the same."""
    bench = Bench()
    tries: list[int] = []

    def shaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("not yet")
        return "ok"

    bench.task(shaky)

    def flow(wf: Any) -> str:
        value: str = wf.do(Task("shaky"), retry_delay=0)
        return value

    bench.workflow(flow)
    bench.start("flow")
    bench.work_one()

    assert bench.output() == "ok"
    assert len(bench.ear.passes) == 1
    assert [attempt.error and attempt.error.message for attempt in bench.attempts()] == ["not yet", "not yet"]


def test_a_delay_parks_the_run_until_it_is_due() -> None:
    """D29: any other delay is a due time with a hint; an early pass leaves the step alone."""
    bench = Bench()
    tries: list[int] = []

    def shaky() -> str:
        tries.append(1)
        if len(tries) < 2:
            raise ValueError("not yet")
        return "ok"

    bench.task(shaky)

    def flow(wf: Any) -> str:
        value: str = wf.do(Task("shaky"), retry_delay="10s")
        return value

    bench.workflow(flow)
    bench.start("flow")
    bench.work()
    assert bench.due() == pytest.approx(10)
    bench.orchestrate()
    assert len(tries) == 1
    assert bench.due() == pytest.approx(10)

    bench.pass_time(10)

    assert bench.output() == "ok"
    assert bench.runner.works[1].attempt == 2


def test_retries_of_zero_are_one_attempt() -> None:
    """T4.2: one attempt, no backoff; its start was recorded before it worked."""
    bench = Bench()
    statuses: list[StepStatus] = []

    def fail() -> None:
        statuses.append(bench.step("fail").status)
        raise ValueError("boom")

    bench.task(fail)

    def flow(wf: Any) -> None:
        wf.do(Task("fail"), retries=0)

    bench.workflow(flow)
    bench.start("flow")
    bench.work()

    assert statuses == [StepStatus.RUNNING]
    assert bench.run().status is RunStatus.FAILED


@pytest.mark.parametrize(("asked", "compensable"), [(True, False), (False, True)])
def test_a_start_is_recorded_before_the_work_when_asked_or_to_be_undone(*, asked: bool, compensable: bool) -> None:
    """T1.7, design 2: pending or absent -> running before success."""
    bench = Bench()
    statuses: list[StepStatus] = []
    bench.task(lambda: statuses.append(bench.step("work").status), name="work")

    def flow(wf: Any) -> None:
        wf.do(Task("work", compensable=compensable), record_start=asked)

    bench.workflow(flow)
    bench.start("flow")
    bench.work()

    assert statuses == [StepStatus.RUNNING]


def test_a_final_exception_is_not_tried_again() -> None:
    """no_retry_on: final at once, for tasks and for functions."""
    bench = Bench()
    tries: list[str] = []

    def flow(wf: Any) -> list[str]:
        errors = []
        for name in ("one", "two"):
            try:
                wf.do(name, lambda: _raise(tries, KeyError("no")), no_retry_on=(KeyError,))
            except StepFailed as error:
                errors.append(error.error_type)
        return errors

    bench.workflow(flow)
    bench.start("flow")
    bench.work()

    assert bench.output() == ["KeyError", "KeyError"]
    assert len(tries) == 2


def test_a_task_that_gave_up_or_was_ignored_is_final() -> None:
    """AttemptEnd.GAVE_UP and IGNORED: final whatever attempts remain; the body sees StepIgnored by its code."""
    bench = Bench()
    bench.task(lambda: _raise([], Say(AttemptEnd.GAVE_UP)), name="gives_up")
    bench.task(lambda: _raise([], Say(AttemptEnd.IGNORED)), name="ignores")

    def flow(wf: Any) -> list[str]:
        seen = []
        for name in ("gives_up", "ignores"):
            try:
                wf.do(Task(name))
            except StepFailed as error:
                seen.append(type(error).__name__)
        return seen

    bench.workflow(flow)
    bench.start("flow")
    bench.work()

    assert bench.output() == ["StepFailed", "StepIgnored"]
    assert len(bench.runner.works) == 2


def test_a_delay_and_arguments_that_the_task_asked_for_hold_for_the_next_attempt() -> None:
    """D29, design 1: retry(countdown=, args=) wins over the step's delay, for the next attempt only."""
    bench = Bench()
    seen: list[int] = []

    def moody(number: int) -> int:
        seen.append(number)
        if len(seen) == 1:
            raise Say(AttemptEnd.RAISED, delay=3.0, override={"args": [number + 100]})
        if len(seen) == 2:
            raise Say(AttemptEnd.RAISED, delay=0.0)
        return number

    bench.task(moody)

    def flow(wf: Any) -> int:
        value: int = wf.do(Task("moody", (1,)), retry_delay="1h")
        return value

    bench.workflow(flow)
    bench.start("flow")
    bench.work()
    assert bench.due() == pytest.approx(3)
    bench.pass_time(3)

    assert seen == [1, 101, 1]
    assert bench.output() == 1


def test_a_result_that_cannot_be_stored_is_a_final_failure_that_names_the_step() -> None:
    """Design 6, scenario 48: the work is done and must not be done again, whatever attempts remain."""
    bench = Bench()
    bench.task(lambda: {1, 2}, name="sets")

    def flow(wf: Any) -> None:
        wf.do(Task("sets"))

    bench.workflow(flow)
    bench.start("flow")
    bench.work()

    assert len(bench.runner.works) == 1
    failure = bench.step("sets").error
    assert failure is not None
    assert "'sets'" in failure.message
    assert failure.code == PayloadError.code
    assert bench.run().status is RunStatus.FAILED


def test_arguments_that_cannot_be_stored_raise_in_the_body_before_any_row() -> None:
    """Bad input: a typed error at the call, nothing half written; the body may go on."""
    bench = Bench()
    bench.task(lambda value: value, name="work")

    def flow(wf: Any) -> str:
        try:
            wf.do(Task("work", ({1, 2},)))
        except PayloadError as error:
            return error.message
        return ""

    bench.workflow(flow)
    bench.start("flow")
    bench.work()

    assert "'work'" in bench.output()
    assert bench.steps() == ()


def test_an_output_that_cannot_be_stored_fails_the_run_and_names_it() -> None:
    """Bad input: a readable failure instead of a run that stays running."""
    bench = Bench()

    def flow(wf: Any) -> object:
        return object()

    bench.workflow(flow)
    bench.start("flow")
    bench.work()

    assert bench.run().status is RunStatus.FAILED
    assert "output of workflow 'flow'" in bench.error()


def test_a_result_that_cannot_be_recorded_does_not_run_the_work_again() -> None:
    """T4.5, spec 2.3: a store that fails ends the pass; the body does not see it as a failing step, the run is not failed."""
    bench = Bench()
    bench.task(lambda: "done", name="work")
    caught: list[BaseException] = []

    def flow(wf: Any) -> None:
        try:
            wf.do(Task("work"))
        except Exception as error:  # noqa: BLE001 - what a careless body does
            caught.append(error)

    bench.workflow(flow)
    bench.start("flow")
    bench.broker.lose_all()

    def refuse(*_: Any) -> None:
        raise StoreUnavailable("the database is away")

    store = CountingStore(bench)
    store.record = refuse
    with pytest.raises(StoreUnavailable):
        bench.orchestrate(store=store)

    assert caught == []
    assert len(bench.runner.works) == 1
    assert bench.run().status is RunStatus.RUNNING
    assert bench.run().pass_id is None


def test_state_is_written_with_its_step() -> None:
    """wf.state.set is a recorded step that also sets the run's state."""
    bench = Bench()

    def flow(wf: Any) -> Any:
        wf.state.set("color", {"name": "red"})
        return wf.state.get("color")

    bench.workflow(flow)
    bench.start("flow")
    bench.work()

    assert bench.output() == {"name": "red"}
    assert {key: bench.rt.codec.decode(text) for key, text in bench.store.get_state(RunId("r1")).items()} == {
        "color": {"name": "red"}
    }


def test_current_step_answers_inside_a_function() -> None:
    """The invocation id is the idempotency key, the same over all attempts (T3.3)."""
    bench = Bench()
    seen: list[tuple[int, str]] = []

    def work() -> None:
        step = current_step()
        seen.append((step.attempt, step.invocation_id))
        if len(seen) < 2:
            raise ValueError("again")

    def flow(wf: Any) -> None:
        wf.do("work", work, retry_delay=0)

    bench.workflow(flow)
    bench.start("flow")
    bench.work()

    assert seen == [
        (1, invocation_id(RunId("r1"), StepName("work"))),
        (2, invocation_id(RunId("r1"), StepName("work"))),
    ]


def _raise(tries: list[Any], error: Exception) -> None:
    tries.append(error)
    raise error
