"""Work that is done is not done again because its outcome could not be encoded or written at once (docs/guarantees.md)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.adapters.json_codec import JsonCodec
from pikkuflow.domain.status import StepStatus
from pikkuflow.errors import StoreUnavailable
from tests.unit.engine.bench import Bench
from tests.unit.engine.far_step import a_bench, execute


class SoftLimit(Exception):
    """What Celery raises in a child wherever it happens to be."""


class Store:
    """A store whose settling raises these, one after another, before or after it wrote."""

    def __init__(self, bench: Bench, *errors: Exception, writes: bool = False) -> None:
        self._bench = bench
        self._errors = list(errors)
        self._writes = writes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bench.store, name)

    def settle_steps(self, *args: Any) -> Any:
        """Raise what is next."""
        if self._errors:
            if self._writes:
                self._bench.store.settle_steps(*args)
            raise self._errors.pop(0)
        return self._bench.store.settle_steps(*args)


class Hook:
    """A codec hook whose service is away for the first so many texts, encoded or decoded."""

    def __init__(self, failures: int, *, decodes: bool = False) -> None:
        self.failures = failures
        self._decodes = decodes

    def encode(self, text: str) -> str:
        """As it is."""
        return text if self._decodes else self._served(text)

    def decode(self, text: str) -> str:
        """As it is."""
        return self._served(text) if self._decodes else text

    def _served(self, text: str) -> str:
        self.failures -= 1
        if self.failures >= 0:
            raise KeyError("the key service does not know us just now")
        return text


def codec(hook: Hook) -> JsonCodec:
    """A codec with the hook."""
    return JsonCodec(1_000_000, hook)


def test_an_outcome_waits_for_a_codec_hook_that_is_away() -> None:
    """Design 3.4: the work is not repeated and no attempt is charged; a person is told once a minute."""
    bench = a_bench()

    execute(bench, codec=codec(Hook(20)))

    assert len(bench.runner.works) == 1
    assert bench.attempts() == ()
    assert bench.output() == 2
    told = [warning for warning in bench.ear.warnings if "outcome of step 'far' has to wait" in warning]
    assert 1 <= len(told) <= 3
    assert "the key service" in told[0]


def test_an_outcome_that_can_never_be_encoded_fails_its_step_at_once() -> None:
    """Design 6: a refused result is a final failure whatever attempts remain."""
    bench = a_bench()
    bench.task(lambda _: {1, 2}, name="far", leaves="queue")
    began = bench.clock.monotonic()

    execute(bench)

    assert bench.step("far").status is StepStatus.FAILED
    assert bench.clock.monotonic() == began


def test_an_outcome_waits_for_a_database_that_is_away() -> None:
    """An outage is no failure: it is written when the database is back, by the attempt that did the work."""
    bench = a_bench()

    execute(bench, store=Store(bench, *[StoreUnavailable("away")] * 30))

    assert len(bench.runner.works) == 1
    assert bench.attempts() == ()
    assert bench.output() == 2


@pytest.mark.parametrize("writes", [False, True])
def test_a_soft_limit_that_strikes_the_write_does_not_lose_the_outcome(*, writes: bool) -> None:
    """It is raised wherever the process happens to be: before the row was written, or after."""
    bench = a_bench()

    execute(bench, store=Store(bench, SoftLimit(), writes=writes))

    assert len(bench.runner.works) == 1
    assert bench.output() == 2
    assert bench.ear.warnings == []


def test_a_write_that_fails_for_no_outage_is_not_tried_for_ever() -> None:
    """A fault of ours is raised, and the worker is free for other work."""
    bench = a_bench()

    with pytest.raises(ZeroDivisionError):
        execute(bench, store=Store(bench, *[ZeroDivisionError()] * 9))

    assert bench.step("far").status is StepStatus.RUNNING
    assert bench.attempts() == ()


def test_a_worker_that_stops_tries_for_ten_seconds_more() -> None:
    """Spec 5.6: then the outage is raised; nothing is recorded in the outcome's place."""
    bench = a_bench()
    bench.stopping = True
    began = bench.clock.monotonic()

    with pytest.raises(StoreUnavailable):
        execute(bench, store=Store(bench, *[StoreUnavailable("away")] * 99))

    assert 10 <= bench.clock.monotonic() - began < 20
    assert bench.step("far").status is StepStatus.RUNNING
    assert bench.attempts() == ()


def test_arguments_wait_for_a_codec_hook_that_is_away() -> None:
    """Nothing was begun, so nothing failed."""
    bench = a_bench()

    execute(bench, codec=codec(Hook(5, decodes=True)))

    assert [work.attempt for work in bench.runner.works] == [1]
    assert bench.output() == 2


def test_a_worker_that_stops_gives_a_step_back_whose_arguments_it_could_not_read() -> None:
    """It never began: another worker has it at once, and no attempt is charged."""
    bench = a_bench()
    bench.broker.lose_all()
    bench.stopping = True

    with pytest.raises(StoreUnavailable, match="arguments of step 'far'"):
        execute(bench, codec=codec(Hook(99, decodes=True)))

    assert (bench.step("far").status, bench.step("far").attempt) == (StepStatus.PENDING, 1)
    assert [(step.name, step.attempt) for (step,) in bench.broker.messages] == [("far", 1)]
    assert bench.attempts() == ()
