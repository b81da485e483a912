"""The log as an observer (``Observer`` port)."""

from __future__ import annotations

import logging

import pytest

from pikkuflow.adapters.logging_observer import LoggingObserver
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.ports import PassEnded, PassOutcome, StepLost

_RUN = RunId("order-42")


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The log of pikkuflow, with everything in it."""
    caplog.set_level(logging.DEBUG, logger="pikkuflow")
    return caplog


@pytest.mark.parametrize(
    ("outcome", "said", "level"),
    [
        (PassOutcome.COMPLETED, "completed", logging.DEBUG),
        (PassOutcome.FAILED, "failed", logging.DEBUG),
        (PassOutcome.INTERRUPTED, "parked", logging.INFO),
    ],
)
def test_a_pass_is_one_line(log: pytest.LogCaptureFixture, outcome: PassOutcome, said: str, level: int) -> None:
    """D31: one event a pass. That a run waits is no alarm, so it is not called an interruption."""
    event = PassEnded(run_id=_RUN, workflow="shop.order", outcome=outcome, steps_worked=3, seconds=0.25)

    LoggingObserver().pass_ended(event)

    (record,) = log.records
    assert record.levelno == level
    assert record.getMessage() == f"pass over run order-42 of shop.order {said}: 3 steps worked in 0.250 s"
    assert record.run_id == _RUN  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("exhausted", "then"),
    [(False, "it is worked again as a new attempt"), (True, "no attempt is left: it failed")],
)
def test_a_lost_step_is_a_warning(log: pytest.LogCaptureFixture, *, exhausted: bool, then: str) -> None:
    """Spec 5.1: it names run, step and attempt."""
    LoggingObserver().step_lost(StepLost(run_id=_RUN, step=StepName("charge"), attempt=2, exhausted=exhausted))

    (record,) = log.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == f"step 'charge' of run order-42 lost its worker in attempt 2; {then}"


def test_a_warning_names_its_run(log: pytest.LogCaptureFixture) -> None:
    """And what is in the text is text, also a percent sign."""
    LoggingObserver().warn("100 %s of it", run_id=_RUN)
    LoggingObserver().warn("beat is down")

    assert [record.getMessage() for record in log.records] == ["run order-42: 100 %s of it", "beat is down"]
