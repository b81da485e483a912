"""Steps in place: one write a step, the outcome committed before the body sees it (design 2)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.domain.ids import RunId, StepName, invocation_id
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.engine.current_step import current_step
from pikkuflow.errors import PayloadError, StoreUnavailable
from tests.unit.engine.bench import Bench, Task


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


@pytest.mark.parametrize(("asked", "compensable"), [(True, False), (False, True)])
def test_a_start_is_recorded_before_the_work_when_asked_or_to_be_undone(*, asked: bool, compensable: bool) -> None:
    """T1.7, design 2: pending or absent -> running before success."""
    bench = Bench()
    statuses: list[StepStatus] = []
    bench.task(lambda: statuses.append(bench.step("work").status), name="work")

    def flow(wf: Any) -> None:
        wf.do(Task("work", undone_by="unwork" if compensable else None), record_start=asked)

    bench.workflow(flow)
    bench.start("flow")
    bench.work()

    assert statuses == [StepStatus.RUNNING]


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
