"""Retries of steps in place: counted, stored, and as far apart as they were asked to be (D10, D29)."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.domain.step import Place
from pikkuflow.engine.fire_timer import fire_due
from pikkuflow.engine.run_inline import run_inline
from pikkuflow.errors import StepFailed
from pikkuflow.ports import AttemptEnd
from tests.unit.engine.bench import Bench, Say, Task


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


@pytest.mark.parametrize("delay", [0.0, 3.0])
def test_a_retry_that_names_a_queue_travels_there_and_back(delay: float) -> None:
    """Design 1: ``retry(queue=…)`` of a step in place holds for the next attempt only; a delay of 0 leaves at once."""
    bench = Bench()
    seen: list[int] = []
    bench.task(lambda number: _moody(seen, number, delay), name="moody")

    def flow(wf: Any) -> int:
        value: int = wf.do(Task("moody", (1,)), retry_delay=0)
        return value

    bench.workflow(flow)
    bench.start("flow")
    bench.work_one()
    if delay:
        assert bench.broker.messages == []
        bench.clock.advance(delay)
        fire_due(bench.rt)
        bench.work_one()

    ((message,),) = bench.broker.messages
    assert json.loads(message.options) == {"queue": "vip", "routing_key": None}
    assert Place.is_queue(bench.step("moody").place)
    bench.work_one()
    ((message,),) = bench.broker.messages
    assert (message.attempt, json.loads(message.options)) == (3, {})
    bench.work()
    assert (bench.output(), seen) == (3, [1, 1, 1])


class AwayOnce:
    """A codec whose hook is away once, when it reads changed options for that time."""

    def __init__(self, bench: Bench, at: int) -> None:
        self._codec = bench.rt.codec
        self._left = at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codec, name)

    def decode(self, text: str) -> Any:
        """The value of a text."""
        self._left -= "options" in text
        if "options" in text and not self._left:
            raise ConnectionError("the hook's service is away")
        return self._codec.decode(text)


@pytest.mark.parametrize("away_at", [1, 2, 3])
def test_a_codec_hook_that_is_away_while_a_retry_travels_is_no_failure(away_at: int) -> None:
    """D26, design 3.4: what the retry changed could not be read; the pass ends as in any outage, and the next one goes on."""
    bench = Bench()
    tried: list[int] = []

    def shaky() -> str:
        tried.append(1)
        if len(tried) == 1:
            raise Say(AttemptEnd.RAISED, delay=0.0, override={"options": {"queue": "other"}})
        return "done"

    bench.task(shaky)

    def flow(wf: Any) -> Any:
        return wf.do(Task("shaky"))

    bench.workflow(flow)
    bench.start("flow")
    bench.broker.lose_all()
    with suppress(ConnectionError):
        bench.orchestrate(codec=AwayOnce(bench, away_at))
    assert bench.run().status is RunStatus.RUNNING
    assert bench.run().passes_lost == 0
    for _ in range(3):
        bench.pass_time(60)
    assert bench.output() == "done"
    assert len(tried) <= 3


def test_a_travelling_retry_whose_message_was_lost_is_sent_there_again() -> None:
    """Design 3.8: a sweep, and the take-over of its worker, know the queue too."""
    bench = Bench()
    seen: list[int] = []
    bench.task(lambda number: _moody(seen, number, 0.0), name="moody")

    def flow(wf: Any) -> int:
        value: int = wf.do(Task("moody", (1,)), retry_delay=0)
        return value

    bench.workflow(flow)
    bench.start("flow")
    bench.work_one()
    bench.broker.lose_all()
    bench.clock.advance(31)

    assert bench.recover()
    ((message,),) = bench.broker.messages
    assert json.loads(message.options)["queue"] == "vip"


def test_a_retry_that_names_a_queue_stays_in_an_inline_run() -> None:
    """D26: an inline run has no broker to travel by."""
    bench = Bench()
    seen: list[int] = []
    bench.task(lambda number: _moody(seen, number, 0.0), name="moody")

    def flow(wf: Any) -> int:
        value: int = wf.do(Task("moody", (1,)), retry_delay=0)
        return value

    bench.workflow(flow)
    bench.start("flow", inline=True)
    run_inline(bench.rt, RunId("r1"))

    assert (bench.output(), bench.broker.messages) == (3, [])


def _moody(seen: list[int], number: int, delay: float) -> int:
    seen.append(number)
    if len(seen) == 1:
        options = {"queue": "vip", "routing_key": None}
        raise Say(AttemptEnd.RAISED, delay=delay, override={"options": options})
    if len(seen) == 2:
        raise ValueError("again")
    return len(seen)


def _raise(tries: list[Any], error: Exception) -> None:
    tries.append(error)
    raise error
