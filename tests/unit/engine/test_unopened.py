"""A pass that only sends steps is previewed, worked, and written in one act; whatever else it does opens it.

docs/decisions/unopened-passes.md.
"""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.domain.ids import Holder, RunId, StepName
from pikkuflow.domain.status import Dispatch, RunStatus, StepStatus
from pikkuflow.engine.take_over import take_over_holder
from pikkuflow.errors import StoreUnavailable
from tests.unit.engine.bench import Bench, Task


class Store:
    """A store that notes the acts of passes, and does something between a preview and what follows."""

    def __init__(self, bench: Bench) -> None:
        self._real: Any = bench.store
        self.acts: list[str] = []
        self.meanwhile: Any = None
        self.fails: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        if name not in {"preview_pass", "advance", "open_pass", "close_pass", "insert_steps", "record"}:
            return real

        def act(*given: Any, **more: Any) -> Any:
            if name in self.fails:
                raise StoreUnavailable(name)
            self.acts.append(name)
            answer = real(*given, **more)
            if name == "preview_pass" and self.meanwhile is not None:
                meanwhile, self.meanwhile = self.meanwhile, None
                meanwhile()
            return answer

        return act


def a_bench(body: Any, **more: Any) -> tuple[Bench, Store]:
    """A started run whose steps all leave, with its wake-up in the broker."""
    bench = Bench(dispatch="queue")
    bench.task(lambda n: n + 1, name="far")
    bench.workflow(body, name="flow")
    bench.start("flow", **more)
    return bench, Store(bench)


def _line(wf: Any) -> int:
    number = 0
    for _ in range(3):
        number = wf.do(Task("far", (number,)))
    return number


def _mixed(wf: Any) -> list[int]:
    sent = wf.submit("a", Task("far", (1,)))
    here = wf.do("here", lambda: 5)
    return [here, sent.result()]


def test_a_run_that_only_sends_steps_opens_the_pass_that_ends_it() -> None:
    """One act for each step that is sent; its row says that it was sent, and the run goes on where its outcome is."""
    bench, store = a_bench(_line)
    bench.orchestrate(store=store)
    assert store.acts == ["preview_pass", "advance"]
    assert bench.steps()[0].status is StepStatus.SCHEDULED
    assert bench.run().pass_id is None
    while bench.broker.messages:
        bench.work_one(bench.other(store=store))
    assert store.acts == [*["preview_pass", "advance"] * 3, "preview_pass", "open_pass", "close_pass"]
    assert bench.output() == 3


def test_what_is_done_here_is_done_in_an_open_pass() -> None:
    """Design 3.3: what was kept back is written and sent first, then the work begins under the run's own fence."""
    bench, store = a_bench(_mixed)
    bench.orchestrate(store=store)
    assert store.acts == ["preview_pass", "open_pass", "insert_steps", "record", "close_pass"]
    assert [(step.name, step.status) for step in bench.steps()] == [("a", "scheduled"), ("here", "succeeded")]
    assert [message.name for (message,) in bench.broker.messages] == ["a"]
    bench.work()
    assert bench.output() == [5, 2]


def test_a_run_that_moved_since_its_preview_is_worked_afresh() -> None:
    """I1: another pass sent the step first; nothing is sent twice, and this one finds the run as it is."""
    bench, store = a_bench(_line)
    store.meanwhile = bench.orchestrate
    bench.orchestrate(store=store)
    assert store.acts == ["preview_pass", "advance", "open_pass", "close_pass"]
    assert [message.name for (message,) in bench.broker.messages] == [bench.steps()[0].name]
    bench.work()
    assert bench.output() == 3


def test_work_that_would_begin_in_a_run_that_moved_does_not() -> None:
    """I1, I2: the late opening finds that another pass had the run; the body is left, and begins anew on what is there."""
    worked: list[str] = []

    def flow(wf: Any) -> None:
        wf.do("here", lambda: worked.append("here"))
        wf.do(Task("far", (1,)))

    bench, store = a_bench(flow)
    store.meanwhile = bench.orchestrate
    bench.orchestrate(store=store)
    assert worked == ["here"]
    assert bench.steps()[0].name == "here"
    bench.work()
    assert bench.run().status is RunStatus.COMPLETED


def test_a_late_opening_that_finds_the_run_held_leaves_it() -> None:
    """D11: a hint, and the message succeeds."""
    bench, store = a_bench(_mixed)
    store.meanwhile = lambda: bench.leases.acquire("workflow-run:r1", "node:9:p9", 30)
    bench.orchestrate(store=store)
    assert bench.steps() == ()
    assert bench.due() is not None


def test_a_broker_that_takes_no_message_leaves_rows_that_are_sent_again() -> None:
    """D21: the rows say that their messages left; they are set right, and the next pass sends them."""
    bench, store = a_bench(_line)
    bench.broker.is_down = True
    bench.orchestrate(store=store)
    assert bench.steps()[0].status is StepStatus.PENDING
    bench.broker.is_down = False
    bench.pass_time(1.0)
    assert bench.output() == 3


def test_a_store_that_goes_away_leaves_the_run_as_it_was() -> None:
    """Design 3.4: nothing was opened, so there is nothing to close; a hint brings it back."""
    bench, store = a_bench(_line)
    store.fails = {"advance"}
    with pytest.raises(StoreUnavailable):
        bench.orchestrate(store=store)
    assert (bench.steps(), bench.run().pass_id) == ((), None)
    bench.pass_time(1.0)
    assert bench.output() == 3


def test_a_process_that_dies_in_such_a_pass_leaves_its_run_to_be_woken() -> None:
    """Design 3.9: it held nothing; its main process knows which message it had in hand."""
    bench, _ = a_bench(_line)
    bench.broker.lose_all()
    take_over_holder(bench.rt, Holder("node:2"), in_hand=[RunId("r1")])
    assert [ref.id for ref in bench.broker.wakes] == ["r1"]


def test_a_message_that_may_not_have_left_is_sent_again_when_its_sender_dies() -> None:
    """The row says that it was sent; whoever takes a message that came twice claims it once."""
    bench, _ = a_bench(_line)
    bench.orchestrate()
    bench.broker.lose_all()
    take_over_holder(bench.rt, Holder("node:2"), in_hand=[RunId("r1")])
    assert [message.name for (message,) in bench.broker.messages] == [StepName(bench.steps()[0].name)]
    bench.work()
    assert bench.output() == 3


def test_what_was_sent_long_before_its_latest_taker_died_is_left_alone() -> None:
    """The queue may be long; what is lost of it is a sweep's to find."""
    bench, _ = a_bench(_line)
    bench.orchestrate()
    bench.broker.lose_all()
    bench.store.ask_pass(RunId("r1"), 60.0)
    bench.clock.advance(5.0)
    bench.start("flow", run_id="r2")
    bench.broker.lose_all()
    take_over_holder(bench.rt, Holder("node:2"), in_hand=[RunId("r2"), RunId("absent")])
    assert bench.broker.messages == []
    assert [ref.id for ref in bench.broker.wakes] == ["r2"]


def test_a_workflow_that_works_its_steps_itself_is_opened_at_once() -> None:
    """The author's word for one workflow is stronger than the setting."""
    bench = Bench(dispatch="queue")
    bench.task(lambda n: n + 1, name="far")
    bench.workflow(_line, name="flow", dispatch=Dispatch.INLINE)
    bench.start("flow")
    store = Store(bench)
    bench.orchestrate(store=store)
    assert store.acts[:2] == ["preview_pass", "open_pass"]
    assert bench.output() == 3


def test_a_run_whose_time_is_over_is_ended_by_an_open_pass() -> None:
    """Issue D, Build 7: the run's own timeout."""
    bench = Bench(dispatch="queue")
    bench.task(lambda n: n + 1, name="far")
    bench.workflow(_line, name="flow")
    bench.start("flow", timeout_seconds=5.0)
    bench.clock.advance(6.0)
    store = Store(bench)
    bench.orchestrate(store=store)
    assert store.acts == ["preview_pass", "open_pass", "close_pass"]
    assert bench.run().status is RunStatus.FAILED


def test_a_late_opening_counts_the_runs_time_from_its_own_moment() -> None:
    """Issue D, Build 7: what passed between preview and opening is not counted twice."""
    slow = [25.0]

    def flow(wf: Any) -> list[int]:
        while slow:
            bench.clock.advance(slow.pop())
        return _mixed(wf)

    bench, store = a_bench(flow, timeout_seconds=40.0)
    bench.orchestrate(store=store)
    assert bench.run().status is RunStatus.RUNNING
    assert bench.due() == pytest.approx(15.0)
    bench.work()
    assert bench.output() == [5, 2]
