"""Calling a run off, over memory: from outside, from the body, with children, in every race with a pass (design 3.7, 13.11)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.domain.stop import Cancellation, cancelled_failure
from pikkuflow.engine.call_off import call_off
from pikkuflow.engine.cancel import cancel_run
from pikkuflow.errors import RunSettled
from tests.unit.engine.bench import Bench, Child, Task
from tests.unit.engine.shop import Shop, step


def cancel(bench: Bench, reason: str | None = "changed mind", run_id: str = "r1") -> RunStatus | None:
    """Call the run off."""
    return cancel_run(bench.rt, RunId(run_id), reason)


def waits(wf: Any) -> str:
    """A step that can be undone, then a long sleep."""
    wf.do(step("a", 1))
    wf.sleep("1d")
    return "done"


def bare(wf: Any) -> None:
    """Nothing that can be undone, and a dispatched step in flight."""
    wf.do(Task("a"))
    wf.sleep("1d")


def parent(wf: Any) -> None:
    """A step that can be undone, then a child run."""
    wf.do(step("a"))
    wf.do(Child("child"))


def bare_parent(wf: Any) -> None:
    """Nothing but a child run."""
    wf.do(Child("child"))


def child(wf: Any) -> None:
    """A step that can be undone, then a long sleep."""
    wf.do(step("b"))
    wf.sleep("1d")


@pytest.mark.parametrize("place", ["here", "away"])
def test_a_run_that_waits_is_undone_when_it_is_called_off(place: str) -> None:
    """T11.34, T11.35: compensating first, compensated then; the reason stays its error, with the code WORKFLOW_CANCELLED."""
    shop = Shop(place)
    shop.begin(waits)

    assert cancel(shop.bench) is RunStatus.COMPENSATING
    shop.settle()

    assert shop.status is RunStatus.COMPENSATED
    assert shop.diary == ["a", "una[1]"]
    run = shop.bench.run()
    assert (run.code, shop.bench.error()) == ("WORKFLOW_CANCELLED", "changed mind")
    assert shop.bench.step("sleep").status is StepStatus.CANCELLED


def test_a_run_with_nothing_to_undo_is_cancelled_at_once() -> None:
    """T11.36."""
    shop = Shop()
    shop.begin(bare, handover="{}")

    assert cancel(shop.bench, None) is RunStatus.CANCELLED

    assert shop.bench.error() == "The run was cancelled."
    assert shop.bench.deliverer.delivered
    shop.bench.pass_time(100_000)
    assert shop.status is RunStatus.CANCELLED


def test_cancelling_twice_undoes_once() -> None:
    """T11.37, scenario 23: before, during and after the unwind; the first reason stays."""
    shop = Shop("away")
    shop.begin(waits)
    cancel(shop.bench, "first")
    assert cancel(shop.bench, "second") is RunStatus.COMPENSATING
    shop.bench.work_one()
    assert cancel(shop.bench, "third") is RunStatus.COMPENSATING
    shop.settle()

    assert cancel(shop.bench, "fourth") is RunStatus.COMPENSATED
    shop.bench.work()
    assert shop.diary == ["a", "una[1]"]
    assert shop.bench.error() == "first"


def test_a_finished_run_is_left_alone_and_its_status_is_returned() -> None:
    """T11.38, I6."""
    shop = Shop()

    def flow(wf: Any) -> str:
        return str(wf.do(step("a")))

    shop.run(flow)
    before = shop.bench.run()

    assert cancel(shop.bench) is RunStatus.COMPLETED
    assert shop.bench.run() == before
    assert cancel(shop.bench, run_id="no such run") is None


def succeeds(wf: Any) -> str:
    """One step."""
    return str(wf.do(step("a")))


def fails(wf: Any) -> None:
    """Nothing to undo."""
    wf.do(Task("boom"), retries=0)


def is_undone(wf: Any) -> None:
    """A failure, and something to undo."""
    wf.do(step("a"))
    wf.do(Task("boom"), retries=0)


@pytest.mark.parametrize(
    ("body", "undoable", "status"),
    [
        (succeeds, True, RunStatus.COMPLETED),
        (fails, True, RunStatus.FAILED),
        (is_undone, True, RunStatus.COMPENSATED),
        (is_undone, False, RunStatus.COMPENSATION_FAILED),
    ],
)
def test_a_run_that_has_ended_by_itself_is_not_called_off(body: Any, undoable: bool, status: RunStatus) -> None:  # noqa: FBT001 - a case
    """Issue D, bad input: a typed error with a status-like code, as for a signal or a resume; nothing is changed."""
    shop = Shop()
    shop.fails = {} if undoable else {"a": 100}
    shop.run(body)
    before = shop.bench.run()

    with pytest.raises(RunSettled, match=rf"has ended \({status.value}\)") as caught:
        call_off(shop.bench.rt, before, "too late")

    assert (caught.value.code, caught.value.status, caught.value.run_id) == ("RUN_SETTLED", 409, "r1")
    assert before.status is status
    assert shop.bench.run() == before


@pytest.mark.parametrize(
    ("body", "undoable", "status"),
    [
        (bare, True, RunStatus.CANCELLED),
        (waits, True, RunStatus.COMPENSATED),
        (waits, False, RunStatus.COMPENSATION_FAILED),
    ],
)
def test_a_run_that_was_called_off_is_called_off_again_in_peace(body: Any, undoable: bool, status: RunStatus) -> None:  # noqa: FBT001 - a case
    """T11.37: before, while and after it is undone; once is enough, and its status is returned."""
    shop = Shop()
    shop.fails = {} if undoable else {"a": 100}
    shop.begin(body)
    first = call_off(shop.bench.rt, shop.bench.run(), "first")
    assert call_off(shop.bench.rt, shop.bench.run(), "second") is first
    for _ in range(20):
        shop.settle()

    assert call_off(shop.bench.rt, shop.bench.run(), "third") is status
    assert shop.bench.error() == "first"
    assert shop.diary.count("una[1]") == int(status is RunStatus.COMPENSATED)


def test_a_cancel_that_meets_the_end_of_its_run_is_told() -> None:
    """T11.38: it was open when it was looked up, and ended before the cancel came: completed it stays."""
    shop = Shop()
    shop.begin(waits)
    seen = shop.bench.run()
    shop.bench.pass_time(86_401)
    assert shop.status is RunStatus.COMPLETED

    with pytest.raises(RunSettled, match="completed"):
        call_off(shop.bench.rt, seen, None)


@pytest.mark.parametrize("undone_by", [None, "una"])
def test_a_cancel_that_lands_while_a_step_works_in_place_is_honoured(undone_by: str | None) -> None:
    """T11.40, scenario 21: the outcome is recorded, the body sees no more, completion is not written."""
    shop = Shop()
    after: list[str] = []

    def flow(wf: Any) -> str:
        wf.do(Task("slow", undone_by=undone_by))
        after.append("went on")
        return "done"

    shop.bench.task(lambda: cancel(shop.bench) and None, name="slow")
    shop.run(flow)

    assert after == []
    assert shop.status is (RunStatus.COMPENSATED if undone_by else RunStatus.CANCELLED)
    assert shop.diary == (["una[]"] if undone_by else [])
    assert shop.bench.step("slow").status is StepStatus.SUCCEEDED


def test_a_cancel_that_lands_after_the_last_step_is_not_overwritten_by_the_end() -> None:
    """T11.40 in the other window: the body returns, raises or suspends in a run that was stopped meanwhile (T11.41)."""
    for end in ("returns", "raises", "parks"):
        shop = Shop()

        def flow(wf: Any, end: str = end, shop: Shop = shop) -> str:
            wf.do(step("a"))
            cancel(shop.bench)
            if end == "raises":
                raise ValueError("late")
            if end == "parks":
                wf.sleep(5)
            return "done"

        shop.run(flow)

        assert shop.status is RunStatus.COMPENSATED, end
        assert shop.bench.error() == "changed mind"
        assert shop.diary == ["a", "una[]"]


def test_a_run_that_calls_itself_off_is_undone() -> None:
    """Spec 2.8: the body raises; the reason is the error."""
    shop = Shop()

    def flow(wf: Any) -> None:
        wf.do(step("a"))
        wf.cancel("out of stock")

    shop.run(flow)

    assert shop.status is RunStatus.COMPENSATED
    assert (shop.bench.run().code, shop.bench.error()) == ("WORKFLOW_CANCELLED", "out of stock")


def test_a_run_that_calls_itself_off_with_nothing_to_undo_is_cancelled() -> None:
    """Spec 2.8."""
    shop = Shop()

    def flow(wf: Any) -> None:
        wf.cancel("out of stock")

    shop.run(flow)

    assert shop.status is RunStatus.CANCELLED


def test_a_step_that_is_at_work_elsewhere_is_undone_with_its_outcome() -> None:
    """Scenario 24: the cancel reaches a running step's run; the outcome counts, and is undone."""
    shop = Shop("away")
    bench = shop.bench
    bench.task(lambda: cancel(bench) and None, name="a", leaves="queue")

    def flow(wf: Any) -> None:
        wf.do(step("a"))
        wf.do(step("b"))

    shop.run(flow)

    assert shop.status is RunStatus.COMPENSATED
    assert shop.diary == ["una[]"]
    assert shop.undos[0].ok


def test_a_failing_attempt_of_a_stopped_run_is_not_tried_again() -> None:
    """Its next attempt was written and never starts; the step failed, and is undone as such."""
    shop = Shop("away")
    bench = shop.bench
    tries: list[int] = []

    def fails() -> None:
        tries.append(1)
        cancel(bench)
        raise ValueError("once")

    bench.task(fails, name="a", leaves="queue")

    def flow(wf: Any) -> None:
        wf.do(step("a"), retry_delay=1)

    shop.run(flow)

    assert tries == [1]
    assert shop.status is RunStatus.COMPENSATED
    assert [(undo.ok, undo.error) for undo in shop.undos] == [(False, "once")]


def test_queued_steps_of_a_cancelled_run_never_begin() -> None:
    """Scenario 25: a hundred messages are under way; the claim reads the database, so none of them runs user code."""
    bench = Bench()
    worked: list[int] = []
    bench.task(worked.append, name="far", leaves="queue")

    def flow(wf: Any) -> None:
        wf.map(Task("far"), range(100))

    bench.workflow(flow)
    bench.start("flow")
    bench.work_one()
    assert len(bench.broker.messages) == 100
    assert cancel(bench) is RunStatus.CANCELLED
    bench.work(limit=200)

    assert worked == []
    assert {one.status for one in bench.steps()} == {StepStatus.CANCELLED}


def test_children_are_called_off_after_their_parent() -> None:
    """Scenario 24: the child is stopped and undone first, then what its parent did before it."""
    shop = Shop()
    shop.begin(parent, child)
    assert cancel(shop.bench) is RunStatus.COMPENSATING
    shop.settle()

    assert shop.diary == ["a", "b", "unb[]", "una[]"]
    assert (shop.status, shop.child.status) == (RunStatus.COMPENSATED, RunStatus.COMPENSATED)


def test_a_parent_with_nothing_to_undo_is_cancelled_once_its_child_is() -> None:
    """D23: compensating -> cancelled."""
    shop = Shop()
    shop.begin(bare_parent, lambda wf: wf.sleep("1d"))
    assert cancel(shop.bench) is RunStatus.COMPENSATING
    shop.settle()

    assert (shop.status, shop.child.status) == (RunStatus.CANCELLED, RunStatus.CANCELLED)


def test_a_child_that_is_called_off_fails_its_parent() -> None:
    """Spec 2.4: a cancelled child propagates, once it is undone."""
    shop = Shop()
    shop.begin(parent, child)
    cancel(shop.bench, "enough", run_id=shop.child.id)
    assert not shop.bench.run().is_settled
    shop.settle()

    assert shop.diary == ["a", "b", "unb[]", "una[]"]
    assert shop.status is RunStatus.COMPENSATED
    assert "enough" in shop.bench.error()


def test_a_child_that_was_not_reached_when_the_canceller_died_is_stopped_by_the_unwind() -> None:
    """Design 3.7: parent first, one transaction each; whoever undoes the parent finds the child."""
    shop = Shop()
    shop.begin(bare_parent, child)
    shop.bench.store.cancel_run(Cancellation(run_id=RunId("r1"), error=cancelled_failure("gone")))
    shop.bench.clock.advance(20)
    shop.bench.recover()
    shop.settle()

    assert shop.diary == ["b", "unb[]"]
    assert shop.status is RunStatus.CANCELLED, "it did nothing itself"
