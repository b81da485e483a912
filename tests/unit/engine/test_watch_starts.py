"""Long steps become visible while they work: their start is recorded once they have worked for a while (design 2)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pikkuflow.domain.status import StepStatus
from pikkuflow.engine.watch_starts import StartWatch
from tests.unit.engine.bench import Bench, Task


def wait_for(question: Callable[[], bool], seconds: float = 10) -> bool:
    """Whether the answer became yes in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if question():
            return True
        time.sleep(0.01)
    return False


def test_a_long_step_is_shown_running_while_it_works() -> None:
    """T1.7 as D15 has it: past record_start_seconds the row is there, running, with the time at which it began."""
    bench = Bench()
    began = bench.clock.now()

    def long() -> bool:
        bench.clock.advance(0.3)
        return wait_for(lambda: any(step.status is StepStatus.RUNNING for step in bench.steps()))

    bench.task(long)

    def flow(wf: Any) -> bool:
        value: bool = wf.do(Task("long"))
        return value

    bench.workflow(flow)
    bench.start("flow")
    bench.work()

    assert bench.output() is True
    assert bench.step("long").running_at == began
    assert bench.step("long").status is StepStatus.SUCCEEDED


def test_a_long_step_that_fails_keeps_one_history_row_for_each_attempt() -> None:
    """I9: the recorded start becomes the row of the attempt that failed."""
    bench = Bench()
    seen: list[bool] = []

    def long() -> None:
        bench.clock.advance(0.3)
        seen.append(wait_for(lambda: any(step.status is StepStatus.RUNNING for step in bench.steps())))
        if len(seen) == 1:
            raise ValueError("once")

    bench.task(long)

    def flow(wf: Any) -> None:
        wf.do(Task("long"), retry_delay=0)

    bench.workflow(flow)
    bench.start("flow")
    bench.work()

    assert seen == [True, True]
    assert [(attempt.attempt, attempt.status) for attempt in bench.attempts()] == [(1, StepStatus.FAILED)]
    assert bench.step("long").attempt == 2


def test_a_quick_step_records_no_start() -> None:
    """One write a step: the watch never calls for it."""
    watch = StartWatch()
    called: list[str] = []

    key = watch.begin(lambda: False, lambda: called.append("start"), after_seconds=0.2)
    watch.look()
    watch.end(key)
    watch.look()

    assert called == []


def test_a_start_is_recorded_once() -> None:
    """However often the watch looks."""
    watch = StartWatch()
    called: list[str] = []

    key = watch.begin(lambda: True, lambda: called.append("start"), after_seconds=100)
    watch.look()
    watch.look()
    watch.end(key)

    assert called == ["start"]


def test_the_watch_rests_and_wakes_again() -> None:
    """Nothing to watch costs nothing; the next step is watched all the same."""
    watch = StartWatch()
    called: list[int] = []
    for number in range(2):
        key = watch.begin(lambda: True, lambda number=number: called.append(number), after_seconds=0.01)  # type: ignore[misc]
        assert wait_for(lambda number=number: called == list(range(number + 1)))  # type: ignore[misc]
        watch.end(key)
        assert wait_for(lambda: not watch._busy.is_set())

    assert called == [0, 1]


def test_a_forked_child_starts_with_an_empty_watch() -> None:
    """The thread stayed behind with what it watched."""
    watch = StartWatch()
    watch.begin(lambda: True, lambda: None, after_seconds=100)

    watch.forget()

    assert watch._watched == {}
    assert watch._thread is None
