"""Undoing what a failed run did, over memory: in place, dispatched, and both mixed (spec 2.12, 13.11)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.domain.act import ClaimRequest
from pikkuflow.domain.ids import ClaimId, Holder, StepName
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.domain.step import Place
from pikkuflow.domain.undo import Undo
from tests.calls import python_calls
from tests.unit.engine.bench import Task
from tests.unit.engine.shop import PLACES, Shop, order, step


@pytest.mark.parametrize("place", PLACES)
def test_success_undoes_nothing(place: str) -> None:
    """T11.1, T11.19: milestones change nothing either."""
    shop = Shop(place)

    def flow(wf: Any) -> str:
        wf.do(step("a"))
        wf.milestone("half")
        wf.do(step("b"))
        return "done"

    shop.run(flow)

    assert shop.status is RunStatus.COMPLETED
    assert shop.diary == ["a", "b"]
    assert shop.undo_rows() == {}


@pytest.mark.parametrize("place", PLACES)
def test_a_failed_run_is_undone_newest_first(place: str) -> None:
    """T11.2, T11.4, T11.5, T11.10, T11.11, T11.22: original arguments, output and name; the error stays; no output.

    A step that goes forward gets its own arguments and nothing else.
    """
    shop = Shop(place)

    shop.run(order)

    assert shop.diary == ["a", "b", "c", "boom", "unc[]", "unb[2]", "una[1]"]
    assert shop.status is RunStatus.COMPENSATED
    assert "payment dead" in shop.bench.error()
    assert shop.bench.run().output is None
    assert [work.args for work in shop.bench.runner.works[:4]] == [(1,), (2,), (), ()]
    assert shop.undos[1] == Undo(ok=True, output="b[2]", error=None, error_type=None, step="second")
    assert shop.undo_rows() == dict.fromkeys(
        ["c:compensate", "second:compensate", "a:compensate"], StepStatus.SUCCEEDED
    )


@pytest.mark.parametrize("place", PLACES)
def test_the_failed_step_is_undone_first_and_told_that_it_failed(place: str) -> None:
    """T11.3: ok is False, no output, the error and the name."""
    shop = Shop(place)

    def flow(wf: Any) -> None:
        wf.do(step("a"))
        wf.do(Task("boom", (7,), undone_by="unb"), retries=0)

    shop.run(flow)

    assert shop.diary == ["a", "boom", "unb[7]", "una[]"]
    undo = shop.undos[0]
    assert (undo.ok, undo.output, undo.step) == (False, None, "boom")
    assert undo.error is not None
    assert "payment dead" in undo.error
    assert undo.error_type == "ValueError"


@pytest.mark.parametrize("place", PLACES)
def test_only_what_has_a_compensation_and_was_not_opted_out_is_undone(place: str) -> None:
    """T11.6, T11.8."""
    shop = Shop(place)

    def flow(wf: Any) -> None:
        wf.do(Task("a"))
        wf.do(step("b"), compensate=False)
        wf.do(step("c"))
        raise ValueError("no")

    shop.run(flow)

    assert shop.diary == ["a", "b", "c", "unc[]"]


@pytest.mark.parametrize("place", PLACES)
def test_a_run_with_nothing_to_undo_fails(place: str) -> None:
    """T11.7: and has no compensation rows."""
    shop = Shop(place)

    def flow(wf: Any) -> None:
        wf.do(Task("a"))
        wf.do(Task("boom"), retries=0)

    shop.run(flow)

    assert shop.status is RunStatus.FAILED
    assert shop.undo_rows() == {}


def test_an_error_of_the_body_itself_undoes_too() -> None:
    """T11.9."""
    shop = Shop()

    def flow(wf: Any) -> None:
        wf.do(step("a"))
        raise ZeroDivisionError("of the body")

    shop.run(flow)

    assert shop.diary == ["a", "una[]"]
    assert shop.bench.error() == "of the body"


@pytest.mark.parametrize("place", PLACES)
def test_a_failing_compensation_is_tried_again(place: str) -> None:
    """T11.12, T11.14: the third try works; no rollback of a rollback."""
    shop = Shop(place)
    shop.fails["b"] = 2

    shop.run(order)

    assert shop.status is RunStatus.COMPENSATED
    assert shop.diary[-2:] == ["unb[2]", "una[1]"]
    assert shop.bench.step("second:compensate").attempt == 3
    assert len(shop.undo_rows()) == 3


@pytest.mark.parametrize("place", PLACES)
def test_an_exhausted_compensation_ends_the_unwind_there(place: str) -> None:
    """T11.13, T11.16: compensation_failed with the stuck step; what came before is untouched, and the error stays."""
    shop = Shop(place)
    shop.fails["b"] = 100

    shop.run(order)

    assert shop.status is RunStatus.COMPENSATION_FAILED
    assert shop.bench.output() == {"stuckSteps": [{"stepName": "second", "error": "cannot undo b"}]}
    assert "una[1]" not in shop.diary
    assert shop.bench.step("second:compensate").attempt == 6
    assert "payment dead" in shop.bench.error()


@pytest.mark.parametrize("place", PLACES)
def test_a_stuck_step_protects_what_came_before_and_not_its_siblings(place: str) -> None:
    """T11.15."""
    shop = Shop(place)
    shop.fails["b"] = 100

    def flow(wf: Any) -> None:
        wf.do(step("a"))
        wf.gather(wf.submit(step("b")), wf.submit(step("c")))
        raise ValueError("no")

    shop.run(flow)

    assert shop.status is RunStatus.COMPENSATION_FAILED
    assert "unc[]" in shop.diary
    assert "una[]" not in shop.diary


def test_a_compensation_that_travels_is_sent_once_while_its_sibling_is_undone_here() -> None:
    """T11.15, found by the simulation: each compensation that ended here had the pass send the others again."""
    shop = Shop("mixed")

    def flow(wf: Any) -> None:
        wf.gather(
            wf.submit(step("b")), wf.submit(step("a"), dispatch="inline"), wf.submit(step("c"), dispatch="inline")
        )
        raise ValueError("no")

    shop.bench.workflow(flow, name="flow")
    shop.bench.start("flow")
    most = 0
    while shop.bench.work_one():
        under_way = [one.name for sent in shop.bench.broker.messages for one in sent]
        most = max(most, under_way.count(StepName("b:compensate")))

    assert most == 1
    assert shop.status is RunStatus.COMPENSATED


def test_forward_retries_come_before_the_unwind() -> None:
    """T11.17: retries 2 are three tries."""
    shop = Shop("away")

    def flow(wf: Any) -> None:
        wf.do(step("a"))
        wf.do(Task("boom"), retries=2, retry_delay=1)

    shop.run(flow)

    assert shop.diary == ["a", "boom", "boom", "boom", "una[]"]


@pytest.mark.parametrize("place", PLACES)
def test_the_unwind_stops_at_the_latest_milestone(place: str) -> None:
    """T11.18, T11.20."""
    shop = Shop(place)

    def flow(wf: Any) -> None:
        wf.do(step("a"))
        wf.milestone("reserved")
        wf.do(step("b"))
        wf.milestone("paid")
        wf.do(step("c"))
        raise ValueError("no")

    shop.run(flow)

    assert shop.diary == ["a", "b", "c", "unc[]"]
    assert shop.status is RunStatus.COMPENSATED
    assert shop.bench.output() == {"restedAt": "paid"}


def test_a_failure_right_after_a_milestone_rests_there_at_once() -> None:
    """T11.21."""
    shop = Shop()

    def flow(wf: Any) -> None:
        wf.do(step("a"))
        wf.milestone("paid")
        raise ValueError("no")

    shop.run(flow)

    assert shop.diary == ["a"]
    assert shop.status is RunStatus.COMPENSATED
    assert shop.bench.output() == {"restedAt": "paid"}


@pytest.mark.parametrize("place", PLACES)
def test_messages_after_the_end_change_nothing(place: str) -> None:
    """T11.23, T11.26: duplicate passes and redelivered steps."""
    shop = Shop(place)
    sent: list[Any] = []
    shop.bench.workflow(order, name="flow")
    shop.bench.start("flow")
    for _ in range(100):
        sent += shop.bench.broker.messages
        shop.bench.orchestrate()
        if not shop.bench.work_one():
            break
    before = shop.diary.copy()
    shop.bench.broker.messages += sent
    shop.bench.wake("flow")
    shop.bench.work()

    assert shop.diary == before == ["a", "b", "c", "boom", "unc[]", "unb[2]", "una[1]"]
    assert shop.status is RunStatus.COMPENSATED


def test_a_dispatch_that_fails_is_made_up_for_once() -> None:
    """T11.27: the row stays, the sweep sends it, it is executed exactly once."""
    shop = Shop("away")
    shop.bench.workflow(order, name="flow")
    shop.bench.start("flow")
    while "boom" not in shop.diary:
        shop.bench.work_one()
    shop.bench.broker.is_down = True
    shop.bench.orchestrate()
    shop.bench.orchestrate()
    assert not shop.undos
    shop.bench.broker.is_down = False

    shop.settle()

    assert shop.status is RunStatus.COMPENSATED
    assert shop.diary[4:] == ["unc[]", "unb[2]", "una[1]"]


def test_the_unwind_waits_for_a_step_that_is_still_at_work() -> None:
    """T12.9 in the engine: nothing is undone while a sibling that can be undone works; then it is undone as well."""
    shop = Shop("away")
    bench = shop.bench
    late: list[Any] = []

    def flow(wf: Any) -> None:
        wf.submit(step("a"))
        wf.do(Task("boom"), retries=0)

    bench.workflow(flow)
    bench.start("flow")
    bench.work_one()

    def slow() -> str:
        late.append(bench.work())
        assert bench.run().status is RunStatus.COMPENSATING
        assert not shop.undos
        return "a"

    bench.task(slow, name="a", leaves="queue")
    shop.settle()

    assert late, "the rest of the run went on while a was at work"
    assert shop.status is RunStatus.COMPENSATED
    assert shop.diary == ["boom", "una[]"]
    assert shop.undos[0].ok


def test_a_step_whose_worker_is_lost_meanwhile_is_undone_as_a_failed_one() -> None:
    """Design 3.7: an unwind waits for live claims only."""
    shop = Shop("away")
    bench = shop.bench

    def flow(wf: Any) -> None:
        wf.submit(step("a"))
        wf.do(Task("boom"), retries=0)

    bench.workflow(flow)
    bench.start("flow")
    bench.work_one()
    message = bench.broker.messages.pop(0)
    bench.store.claim_steps(
        ClaimRequest(
            run_id=message[0].run_id,
            steps=((message[0].name, 1),),
            task="a",
            claim_id=ClaimId("c1"),
            holder=Holder("gone:1"),
        )
    )
    bench.work()
    assert not bench.run().is_settled
    bench.pass_time(61)
    shop.settle()

    assert shop.status is RunStatus.COMPENSATED
    assert [undo.ok for undo in shop.undos] == [False]


def test_a_task_that_is_not_known_here_is_waited_for() -> None:
    """D5 for compensations: its row shows what is waited for, no attempt is spent."""
    shop = Shop()
    undo = shop.bench.runner.tasks.pop("unc")
    shop.run(order)
    assert not shop.bench.run().is_settled
    assert shop.undo_rows() == {"c:compensate": StepStatus.PENDING}

    shop.bench.runner.tasks["unc"] = undo
    shop.settle()

    assert shop.status is RunStatus.COMPENSATED
    assert shop.bench.step("c:compensate").attempt == 1


def test_a_compensation_goes_where_its_step_went() -> None:
    """T4.7: to the same queue when its step was dispatched, in place when it was worked there."""
    shop = Shop("mixed")

    shop.run(order)

    rows = {row.name: row for row in shop.bench.steps()}
    for name in ("a", "second", "c"):
        forward, undo = rows[StepName(name)], rows[StepName(f"{name}:compensate")]
        assert undo.queue == forward.queue
        assert Place.is_queue(undo.place) == Place.is_queue(forward.place)
        assert undo.from_step == name
    assert rows[StepName("second:compensate")].queue == "other"


def test_undoing_takes_a_time_that_grows_with_the_number_of_steps() -> None:
    """Spec 2.12: the order is made once a pass and not anew for each compensation, which is the square of their number."""

    def calls(count: int) -> int:
        def flow(wf: Any) -> None:
            for number in range(count):
                wf.do(step("a", number))
            wf.do(Task("boom"), retries=0)

        shop = Shop()
        called = python_calls(lambda: shop.run(flow))
        assert len(shop.diary) == 2 * count + 1
        return called

    few, many = calls(20), calls(200)
    assert many < 11 * few
