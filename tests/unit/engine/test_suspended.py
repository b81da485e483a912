"""Runs that meet code which is not here: suspended, and tried again like timers (design 3.10, D5, D17)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.engine.send import message_of
from pikkuflow.errors import DispatchError, StoreUnavailable
from tests.servers.processes import wait_until
from tests.unit.engine.bench import Bench, Task
from tests.unit.engine.shop import Shop, step


def test_an_unknown_workflow_suspends_its_run_and_is_tried_again_with_backoff() -> None:
    """D5, scenario 33, design 3.10: nothing is spent; a worker that knows it goes on without a person."""
    bench = Bench()
    bench.start("unheard")
    bench.work()
    assert bench.run().status is RunStatus.SUSPENDED
    assert bench.run().code == "WORKFLOW_NOT_FOUND"
    waits = []
    for _ in range(4):
        waits.append(bench.due() or 0)
        bench.pass_time(waits[-1])
    assert waits == pytest.approx([5, 5, 10, 20])

    def unheard(wf: Any) -> int:
        return 1

    bench.workflow(unheard)
    bench.pass_time(600)

    assert bench.output() == 1


def test_a_missing_task_leaves_its_step_pending_and_the_run_suspended() -> None:
    """D5: no attempt is spent; it goes on once the task is there."""
    bench = Bench()

    def flow(wf: Any) -> str:
        value: str = wf.do(Task("ghost", (1,)))
        return value

    bench.workflow(flow)
    bench.start("flow")
    bench.work()
    assert bench.run().status is RunStatus.SUSPENDED
    assert bench.run().code == "TASK_NOT_FOUND"
    assert bench.step("ghost").status is StepStatus.PENDING

    bench.task(lambda n: f"ghost {n}", name="ghost")
    bench.pass_time(5)

    assert bench.output() == "ghost 1"
    assert bench.step("ghost").attempt == 1


def test_a_message_that_met_a_worker_without_its_task_is_sent_again() -> None:
    """D5 for dispatched steps: the run is suspended with a time; that time, or a resume at once, sends the message again."""
    for is_resumed in (False, True):
        bench = Bench()
        bench.runner.leaves["ghost"] = "queue"

        def flow(wf: Any) -> str:
            value: str = wf.do(Task("ghost"))
            return value

        bench.workflow(flow)
        bench.start("flow")
        bench.work()
        assert bench.run().code == "TASK_NOT_FOUND"
        assert bench.step("ghost").attempt == 1

        bench.task(lambda: "here", name="ghost", leaves="queue")
        if is_resumed:
            assert bench.resume()
            bench.work()
        else:
            bench.pass_time(5)

        assert bench.output() == "here"
        assert not bench.resume()


def test_a_missing_task_shows_though_the_run_was_just_held() -> None:
    """D5: the message is faster than the write that closes the pass which sent it; a run that stays held goes on undisturbed."""
    bench = Bench()
    bench.runner.leaves["ghost"] = "queue"

    def flow(wf: Any) -> Any:
        return wf.do(Task("ghost"))

    bench.workflow(flow)
    bench.start("flow")
    bench.work_one()
    for seconds, code in ((60.0, None), (0.35, "TASK_NOT_FOUND")):
        held = bench.leases.acquire("workflow-run:r1", "other:1:p", seconds)
        assert held is not None
        bench.broker.send_steps([message_of(bench.rt, bench.step("ghost"))])
        bench.work()
        assert bench.run().code == code
        bench.leases.release(held)


def test_what_the_first_pass_after_a_suspension_sends_meets_a_running_run() -> None:
    """D5, D17: workers take steps of running runs only, so the messages leave once the closing write has ended the suspension."""
    bench = Bench()
    bench.start("flow")
    bench.work()
    assert bench.run().code == "WORKFLOW_NOT_FOUND"
    bench.task(lambda: 1, name="far", leaves="queue")
    bench.workflow(lambda wf: wf.gather(wf.submit(Task("far")), wf.submit(Task("far"))), name="flow")
    met: list[RunStatus] = []

    class Sends:
        refusals = 1

        def __getattr__(self, name: str) -> Any:
            return getattr(bench.broker, name)

        def send_steps(self, messages: Any, *, chunk: int = 1) -> None:
            met.append(bench.run().status)
            self.refusals -= 1
            if self.refusals >= 0:
                raise DispatchError("away")
            bench.broker.send_steps(messages, chunk=chunk)

    rt = bench.other(dispatcher=Sends())
    bench.wake("flow")
    bench.work(rt=rt)
    assert (met, bench.due()) == ([RunStatus.RUNNING], 1.0)
    bench.clock.advance(1)
    bench.wake("flow")
    bench.work(rt=rt)

    assert bench.output() == [1, 1]
    assert set(met) == {RunStatus.RUNNING}
    assert {step.attempt for step in bench.steps()} == {1}


@pytest.mark.parametrize("leaves", [None, "queue"])
def test_a_body_that_changed_suspends_its_run_until_it_fits_again(leaves: str | None) -> None:
    """D17, scenario 32 and 34: VERSION_CONFLICT names both steps; matching code continues."""
    bench = Bench()
    bench.task(lambda: 1, name="work", leaves=leaves)
    names = ["a", "pause"]

    def flow(wf: Any) -> str:
        wf.do(names[0], Task("work"))
        wf.sleep(names[1], 10)
        return "ok"

    bench.workflow(flow)
    bench.start("flow")
    bench.work()
    names[0] = "b"
    bench.pass_time(10)
    assert bench.run().status is RunStatus.SUSPENDED
    assert bench.run().code == "VERSION_CONFLICT"
    assert "'a'" in bench.error()
    assert "'b'" in bench.error()

    names[0] = "a"
    bench.pass_time(30)

    assert bench.output() == "ok"


def test_version_policy_fail_ends_a_run_of_another_version() -> None:
    """D17 with ``version_policy = "fail"``: failed with VERSION_CONFLICT, the body is not entered."""
    bench = Bench(version_policy="fail")

    def flow(wf: Any) -> None:
        raise AssertionError

    bench.workflow(flow, version="v2")
    bench.start("flow")
    bench.work()

    assert bench.run().status is RunStatus.FAILED
    assert bench.run().code == "VERSION_CONFLICT"
    assert "v2" in bench.error()


def test_a_long_history_warns_once() -> None:
    """Scenario 36: a warning at the threshold; the run goes on."""
    bench = Bench(history_warning_steps=3)

    def flow(wf: Any) -> int:
        for _ in range(5):
            wf.do("step", lambda: 1)
        return 5

    bench.workflow(flow)
    bench.start("flow")
    bench.work()

    assert bench.output() == 5
    assert len([text for text in bench.ear.warnings if "3 steps" in text]) == 1


@pytest.mark.parametrize("opens", [False, True])
def test_a_suspension_for_a_missing_task_that_meets_an_outage_is_kept(*, opens: bool) -> None:
    """D5, design 3.4: the pass of it, opened or closed without an answer, is closed once the store is back."""
    bench = Bench()
    bench.task(lambda: 1, name="far", leaves="queue")
    bench.workflow(lambda wf: wf.do(Task("far")), name="flow")
    bench.start("flow")
    bench.work_one()
    bench.runner.tasks.clear()

    class Away:
        failures = 1

        def __getattr__(self, name: str) -> Any:
            return getattr(bench.store, name)

        def open_pass(self, opening: Any) -> Any:
            opened = bench.store.open_pass(opening)
            return self._answer(opened) if opens else opened

        def close_pass(self, ref: Any, closing: Any) -> Any:
            if not opens:
                self._answer(None)
            return bench.store.close_pass(ref, closing)

        def _answer(self, answer: Any) -> Any:
            self.failures -= 1
            if self.failures >= 0:
                raise StoreUnavailable("away")
            return answer

    with pytest.raises(StoreUnavailable):
        bench.work_one(bench.other(store=Away()))

    assert bench.run().pass_holder is not None
    wait_until(lambda: bench.run().pass_holder is None, seconds=10)
    assert bench.run().code == (None if opens else "TASK_NOT_FOUND")
    assert bench.step("far").attempt == 1


def unknown_undo() -> tuple[Shop, Callable[[], Any]]:
    """A run whose dispatched compensation has just met the only worker there is, without its task; and how that gets to know it."""
    shop = Shop("away")
    known = shop.bench.runner.tasks.pop("una")

    def flow(wf: Any) -> None:
        wf.do(step("a", 1))
        wf.do(Task("boom"), retries=0)

    shop.begin(flow)
    return shop, lambda: shop.bench.task(known, name="una")


def opened_passes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When passes open from now on, whoever opens them."""
    times: list[float] = []
    opens = bench.store.open_pass

    def counted(opening: Any) -> Any:
        times.append(bench.clock.monotonic())
        return opens(opening)

    monkeypatch.setattr(bench.store, "open_pass", counted)
    return times


def test_a_compensation_that_met_a_worker_without_its_task_is_sent_again() -> None:
    """D5: no sweep is needed, no attempt is spent, the run's own error stays; a worker that knows the task comes later and undoes it."""
    shop, deploy = unknown_undo()
    bench = shop.bench
    row = bench.step("a:compensate")
    assert (row.status, row.attempt) == (StepStatus.PENDING, 1)
    assert bench.due() == pytest.approx(5)
    bench.pass_time(5)
    bench.pass_time(5)
    assert not bench.run().is_settled

    deploy()
    bench.pass_time(bench.due() or 0)

    assert shop.status is RunStatus.COMPENSATED
    assert shop.diary == ["a", "boom", "una[1]"]
    assert bench.step("a:compensate").attempt == 1
    assert bench.error().endswith("payment dead")


def test_a_compensation_that_no_worker_knows_is_tried_ever_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """No loop: 5 s, then as long as it has waited, at most 10 min; each try is a pass that sends, and one that met no task."""
    shop, _ = unknown_undo()
    bench = shop.bench
    times = opened_passes(bench, monkeypatch)
    waits = []
    for _ in range(8):
        waits.append(bench.due() or 0)
        bench.pass_time(waits[-1])
    assert waits == pytest.approx([5, 5, 10, 20, 40, 80, 160, 320])
    assert len(times) == 2 * len(waits)

    begun = bench.clock.monotonic()
    while bench.clock.monotonic() < begun + 7200:
        bench.pass_time(10)

    assert len(times) - 16 <= 2 * 13


def test_a_missing_compensation_keeps_no_other_time_of_its_run_waiting() -> None:
    """What the unwind was due for anyway, it is still due for then."""
    shop = Shop("mixed")
    bench = shop.bench
    shop.fails = {"a": 1}
    bench.runner.tasks.pop("unb")

    def flow(wf: Any) -> None:
        wf.gather(wf.submit(step("a"), retry_delay=3, dispatch="inline"), wf.submit(step("b")))
        wf.do(Task("boom"), retries=0)

    shop.begin(flow)
    assert bench.step("a:compensate").status is StepStatus.PENDING
    assert bench.due() == pytest.approx(3, abs=0.5)
    bench.pass_time(3.1)

    assert bench.step("a:compensate").status is StepStatus.SUCCEEDED
    assert shop.status is RunStatus.COMPENSATING
