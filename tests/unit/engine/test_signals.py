"""Signals are kept from the first send and received in order; a wait that is over stays over."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.engine.run_handle import Run
from pikkuflow.errors import PayloadError, RunNotFound, RunSettled, SignalTimeout, StepNameError
from tests.unit.engine.bench import Bench, Task

COURIER = "__workflow_signal:courier"


@pytest.fixture
def bench() -> Bench:
    """A bench."""
    return Bench()


def _handle(bench: Bench, run_id: str = "r1") -> Run[Any]:
    return Run(run_id, lambda: bench.rt)


def _one(wf: Any) -> Any:
    return wf.wait_for("courier")


def _three(wf: Any) -> list[Any]:
    return [wf.wait_for("courier") for _ in range(3)]


def test_a_wait_is_shown_as_a_suspension_with_the_signals_name(bench: Bench) -> None:
    """Design 3.10: a pass that parks only on a signal leaves the run suspended, its name the reason."""
    bench.start(bench.workflow(_one))
    bench.work()
    run = bench.run()
    assert (run.status, run.code, bench.error(), run.due_at) == (
        RunStatus.SUSPENDED,
        "WAITING_FOR_SIGNAL",
        "courier",
        None,
    )


def test_a_signal_wakes_the_run_that_waits_for_it(bench: Bench) -> None:
    """D4: it is stored, the run is running, and only then the message is sent."""
    bench.start(bench.workflow(_one))
    bench.work()
    assert _handle(bench).signal("courier", {"parcel": 7})
    assert bench.run().status is RunStatus.RUNNING
    bench.work()
    assert bench.output() == {"parcel": 7}


def test_signals_sent_before_the_wait_are_kept_and_come_in_order(bench: Bench) -> None:
    """First in, first out by name; each is received once."""
    bench.start(bench.workflow(_three))
    for n in range(3):
        _handle(bench).signal("courier", n)
        _handle(bench).signal("weather", -n)
    assert len(bench.broker.wakes) == 1
    bench.work()
    assert bench.output() == [0, 1, 2]
    taken = [one.taken_by for one in bench.store.list_signals(RunId("r1")) if one.name == "courier"]
    assert taken == [COURIER, f"{COURIER}#1", f"{COURIER}#2"]


def test_a_signal_between_look_and_park_is_not_lost(bench: Bench) -> None:
    """Scenario 12: the wait's row is there, the pass has not closed; its closer wakes the run, and no sweep is needed."""
    sent: list[bool] = []

    def body(wf: Any) -> Any:
        try:
            return wf.wait_for("courier")
        finally:
            if not sent:
                sent.append(_handle(bench).signal("courier", "early bird"))

    bench.start(bench.workflow(body))
    bench.work()
    assert bench.output() == "early bird"


def test_a_signal_of_another_name_wakes_nobody(bench: Bench) -> None:
    """The run stays suspended for what it waits for, and keeps the other for later."""
    bench.start(bench.workflow(_one))
    bench.work()
    _handle(bench).signal("weather")
    assert (bench.run().status, bench.broker.wakes) == (RunStatus.SUSPENDED, [])


def test_an_idempotency_key_makes_two_sends_one(bench: Bench) -> None:
    """The first counts, and the second says so; the key is the name's own."""
    bench.start(bench.workflow(_three))
    bench.work()
    handle = _handle(bench)
    assert handle.signal("courier", 1, idempotency_key="k")
    assert not handle.signal("courier", 2, idempotency_key="k")
    assert handle.signal("weather", 3, idempotency_key="k")
    bench.work()
    assert not handle.signal("courier", 4, idempotency_key="k")
    assert handle.signal("courier", 5)
    assert handle.signal("courier", 6)
    bench.work()
    assert bench.output() == [1, 5, 6]


def test_a_null_payload_is_no_time_out(bench: Bench) -> None:
    """Scenario 28: None came, and that is what the body gets, default or not."""

    def body(wf: Any) -> list[Any]:
        return [wf.wait_for("courier", timeout="1h", default="none") for _ in range(2)]

    bench.start(bench.workflow(body))
    _handle(bench).signal("courier", None)
    bench.work()
    _handle(bench).signal("courier")
    bench.work()
    assert bench.output() == [None, None]


def test_a_wait_that_is_over_is_remembered(bench: Bench) -> None:
    """Scenario 28: five waits of a second each time out; a replay raises at once and arms nothing; later signals go to later waits."""

    def body(wf: Any) -> list[Any]:
        got: list[Any] = []
        for n in range(5):
            try:
                got.append(wf.wait_for(f"tick-{n}", timeout="1s"))
            except SignalTimeout as error:
                got.append((error.reason, error.status))
        got.append(wf.wait_for("tick-0"))
        return got

    name = bench.workflow(body)
    bench.start(name)
    bench.work()
    for _ in range(5):
        assert bench.due() == pytest.approx(1.0)
        bench.pass_time(1.01)
    rows = [(step.name, step.status, step.due_at) for step in bench.steps()]
    bench.wake(name)
    bench.work()
    assert [(step.name, step.status, step.due_at) for step in bench.steps()] == rows
    assert {status for _, status, _ in rows[:5]} == {StepStatus.FAILED}
    _handle(bench).signal("tick-0", "late")
    bench.work()
    assert bench.output() == [[f"tick-{n}", 408] for n in range(5)] + ["late"]


def test_a_signal_after_the_time_is_for_the_next_wait(bench: Bench) -> None:
    """The time-out is a moment, not the pass that finds it: what was sent before it is in time however late it is looked at."""

    def body(wf: Any) -> list[Any]:
        return [
            wf.wait_for("courier", timeout="10s", default="over"),
            wf.wait_for("courier", timeout="10s", default="over"),
        ]

    bench.start(bench.workflow(body), run_id="late")
    bench.start("body", run_id="in-time")
    bench.work()
    _handle(bench, "in-time").signal("courier", 1)
    bench.broker.lose_all()
    bench.clock.advance(11)
    _handle(bench, "late").signal("courier", 2)
    bench.wake("body", "late")
    bench.wake("body", "in-time")
    bench.work()
    bench.pass_time(11)
    assert bench.output("late") == ["over", 2]
    assert bench.output("in-time") == [1, "over"]


def test_a_time_out_without_a_default_fails_the_run_with_its_code(bench: Bench) -> None:
    """A body that does not catch it ends by it, and a listing can ask for the code."""
    bench.start(bench.workflow(lambda wf: wf.wait_for("courier", timeout=0), name="impatient"))
    bench.work()
    assert (bench.run().status, bench.run().code) == (RunStatus.FAILED, "SIGNAL_TIMEOUT")


def test_a_lost_hint_costs_one_sweep(bench: Bench) -> None:
    """Design 4: the time-out is a column; the sweep for what is due finds it."""
    bench.start(bench.workflow(lambda wf: wf.wait_for("courier", timeout="1m", default="over"), name="patient"))
    bench.work()
    bench.hints.pop_due(100)
    bench.clock.advance(61)
    bench.recover()
    bench.work()
    assert bench.output() == "over"


def test_a_step_in_flight_keeps_the_run_running(bench: Bench) -> None:
    """Design 3.10: and its outcome, when it comes, leaves the run suspended."""
    bench.task(lambda: 1, name="slow", leaves="route")

    def body(wf: Any) -> Any:
        wf.submit("slow", Task("slow"))
        return wf.wait_for("courier")

    bench.start(bench.workflow(body))
    bench.orchestrate()
    assert bench.run().status is RunStatus.RUNNING
    bench.work()
    assert bench.run().status is RunStatus.SUSPENDED
    _handle(bench).signal("courier", 1)
    bench.work()
    assert bench.output() == 1


def test_a_bare_resume_passes_no_signal(bench: Bench) -> None:
    """A resume has a pass look again, and it finds nothing."""
    bench.start(bench.workflow(_one))
    bench.work()
    assert _handle(bench).resume()
    bench.work()
    assert bench.run().status is RunStatus.SUSPENDED


def test_what_cannot_be_sent_is_a_typed_error_and_stores_nothing(bench: Bench) -> None:
    """A name that is no text, a payload that cannot be stored, a run that has ended or was never there (spec 10.6)."""
    bench.start(bench.workflow(lambda _wf: "done", name="brief"))
    handle = _handle(bench)
    for name in (7, None, "", "a#1", "x" * 201):
        with pytest.raises(StepNameError):
            handle.signal(name)  # type: ignore[arg-type]
    with pytest.raises(PayloadError, match="signal 'courier'"):
        handle.signal("courier", {1, 2})
    with pytest.raises(TypeError, match="idempotency key"):
        handle.signal("courier", idempotency_key=7)  # type: ignore[arg-type]
    with pytest.raises(RunNotFound):
        _handle(bench, "never").signal("courier")
    bench.work()
    with pytest.raises(RunSettled) as settled:
        handle.signal("courier")
    assert settled.value.status == 409
    assert bench.store.list_signals(RunId("r1")) == ()
