"""Undoing what a failed run did, over memory: in place, dispatched, and both mixed (spec 2.12, 13.11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pikkuflow.domain.act import ClaimRequest
from pikkuflow.domain.ids import ClaimId, Holder
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus
from pikkuflow.domain.undo import Undo
from tests.unit.engine.bench import Bench, Child, Task

PLACES = ("here", "away", "mixed")


class Shop:
    """A bench with steps ``a``, ``b``, ``c`` that can be undone, and a diary of all that was done."""

    def __init__(self, place: str = "here", **settings: Any) -> None:
        self.bench = Bench(**settings)
        self.diary: list[str] = []
        self.undos: list[Undo] = []
        self.fails: dict[str, int] = {}
        """How often an undo fails before it works, by name."""
        for at, name in enumerate("abc"):
            leaves = "queue" if place == "away" or (place == "mixed" and at % 2) else None
            self.bench.task(self._step(name), name=name, leaves=leaves)
            self.bench.task(self._undo(name), name=f"un{name}")
        self.bench.task(self._boom, name="boom", leaves="queue" if place == "away" else None)

    def _step(self, name: str) -> Callable[..., Any]:
        def work(*args: Any) -> Any:
            self.diary.append(name)
            return f"{name}{list(args)}"

        return work

    def _undo(self, name: str) -> Callable[..., Any]:
        def work(undo: Undo, *args: Any) -> None:
            self.undos.append(undo)
            if self.fails.get(name, 0) > 0:
                self.fails[name] -= 1
                raise RuntimeError(f"cannot undo {name}")
            self.diary.append(f"un{name}{list(args)}")

        return work

    def _boom(self, *_: Any) -> None:
        self.diary.append("boom")
        raise ValueError("payment dead")

    def run(self, body: Callable[..., Any], **more: Any) -> None:
        """Start and work until nothing moves."""
        self.bench.workflow(body, name="flow")
        self.bench.start("flow", **more)
        self.settle()

    def settle(self) -> None:
        """Messages, and retries as they come due."""
        self.bench.work()
        for _ in range(30):
            if self.bench.run().is_settled:
                return
            self.bench.pass_time(self.bench.due() or 30)

    @property
    def status(self) -> RunStatus:
        """The run's."""
        return self.bench.run().status

    def undo_rows(self) -> dict[str, StepStatus]:
        """The compensations."""
        return {step.name: step.status for step in self.bench.steps() if step.kind is StepKind.COMPENSATION}


def step(name: str, *args: Any) -> Task:
    """A step of the shop."""
    return Task(name, args, undone_by=f"un{name}")


def order(wf: Any) -> None:
    """Three steps, and a fourth that fails for good."""
    wf.do(step("a", 1))
    wf.do("second", step("b", 2))
    wf.do(step("c"))
    wf.do(Task("boom"), retries=0)


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
    """T11.2, T11.4, T11.10, T11.11, T11.22: original arguments, output and name; the error stays; no output."""
    shop = Shop(place)

    shop.run(order)

    assert shop.diary == ["a", "b", "c", "boom", "unc[]", "unb[2]", "una[1]"]
    assert shop.status is RunStatus.COMPENSATED
    assert "payment dead" in shop.bench.error()
    assert shop.bench.run().output is None
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


# --- children -----------------------------------------------------------------------------------------------------------


def _family(shop: Shop, child: Callable[..., Any], parent: Callable[..., Any]) -> None:
    shop.bench.workflow(child, name="child")
    shop.run(parent)


def _child_run(shop: Shop) -> Any:
    run_id = shop.bench.step("child").child_run_id
    assert run_id is not None
    return shop.bench.run(run_id)


def test_a_completed_child_is_undone_as_one_unit() -> None:
    """T11.28: newest first inside it, and between what came before and after it."""
    shop = Shop()

    def child(wf: Any) -> None:
        wf.do(step("a"))
        wf.do(step("b"))

    def parent(wf: Any) -> None:
        wf.do("before", step("c", 1))
        wf.do(Child("child"))
        wf.do("after", step("c", 2))
        raise ValueError("no")

    _family(shop, child, parent)

    assert shop.diary == ["c", "a", "b", "c", "unc[2]", "unb[]", "una[]", "unc[1]"]
    assert shop.status is RunStatus.COMPENSATED
    assert _child_run(shop).status is RunStatus.COMPENSATED


def test_a_child_that_was_opted_out_is_kept() -> None:
    """T11.29."""
    shop = Shop()

    def child(wf: Any) -> None:
        wf.do(step("a"))

    def parent(wf: Any) -> None:
        wf.do(Child("child"), compensate=False)
        wf.do(step("b"))
        raise ValueError("no")

    _family(shop, child, parent)

    assert shop.diary == ["a", "b", "unb[]"]
    assert _child_run(shop).status is RunStatus.COMPLETED


def test_a_child_with_nothing_to_undo_stays_completed() -> None:
    """The unwind of its parent goes on at once."""
    shop = Shop()

    def child(wf: Any) -> None:
        wf.do(Task("b"))

    def parent(wf: Any) -> None:
        wf.do(step("a"))
        wf.do(Child("child"))
        raise ValueError("no")

    _family(shop, child, parent)

    assert shop.diary == ["a", "b", "una[]"]
    assert _child_run(shop).status is RunStatus.COMPLETED


def test_a_failing_child_unwinds_itself_and_then_its_parent() -> None:
    """T11.30."""
    shop = Shop()

    def child(wf: Any) -> None:
        wf.do(step("b"))
        raise ValueError("of the child")

    def parent(wf: Any) -> None:
        wf.do(step("a"))
        wf.do(Child("child"))

    _family(shop, child, parent)

    assert shop.diary == ["a", "b", "unb[]", "una[]"]
    assert shop.status is RunStatus.COMPENSATED
    assert _child_run(shop).status is RunStatus.COMPENSATED
    assert "of the child" in shop.bench.error()


@pytest.mark.parametrize("ends", ["fails", "is undone"])
def test_a_stuck_child_makes_its_parent_stuck(ends: str) -> None:
    """T11.31: what came before it is untouched, whether it failed itself or was undone by its parent."""
    shop = Shop()
    shop.fails["b"] = 100

    def child(wf: Any) -> None:
        wf.do(step("b"))
        if ends == "fails":
            raise ValueError("of the child")

    def parent(wf: Any) -> None:
        wf.do(step("a"))
        wf.do(Child("child"))
        raise ValueError("no")

    _family(shop, child, parent)

    assert shop.status is RunStatus.COMPENSATION_FAILED
    assert [stuck["stepName"] for stuck in shop.bench.output()["stuckSteps"]] == ["child"]
    assert "una[]" not in shop.diary


@pytest.mark.parametrize("ends", ["fails", "is undone"])
def test_a_child_that_rests_at_its_milestone_makes_its_parent_rest_there(ends: str) -> None:
    """T11.32."""
    shop = Shop()

    def child(wf: Any) -> None:
        wf.do(step("b"))
        wf.milestone("shipped")
        wf.do(step("c"))
        if ends == "fails":
            raise ValueError("of the child")

    def parent(wf: Any) -> None:
        wf.do(step("a"))
        wf.do(Child("child"))
        raise ValueError("no")

    _family(shop, child, parent)

    assert shop.status is RunStatus.COMPENSATED
    assert shop.bench.output() == {"restedAt": "shipped"}
    assert shop.diary == ["a", "b", "c", "unc[]"]


def test_a_child_that_plainly_failed_fails_its_parent() -> None:
    """T11.33."""
    shop = Shop()

    def child(wf: Any) -> None:
        raise ValueError("of the child")

    def parent(wf: Any) -> None:
        wf.do(Child("child"))

    _family(shop, child, parent)

    assert shop.status is RunStatus.FAILED
    assert _child_run(shop).status is RunStatus.FAILED


def test_children_that_are_at_work_are_stopped_when_their_parent_fails() -> None:
    """Failure goes down as well: the child is called off, undone, and then its parent is."""
    shop = Shop()

    def child(wf: Any) -> None:
        wf.do(step("b"))
        wf.sleep("1d")

    def parent(wf: Any) -> None:
        wf.do(step("a"))
        wf.submit(Child("child"))
        wf.do(step("c"))
        wf.sleep(5)
        raise ValueError("no")

    _family(shop, child, parent)

    assert _child_run(shop).status is RunStatus.COMPENSATED
    assert _child_run(shop).code == "WORKFLOW_CANCELLED"
    assert shop.status is RunStatus.COMPENSATED
    assert sorted(shop.diary[3:5]) == ["unb[]", "unc[]"]
    assert shop.diary[5] == "una[]"


def test_a_detached_child_outlives_its_parent() -> None:
    """Issue D: its run goes on, and is neither waited for, told nor undone."""
    shop = Shop()
    found: list[str] = []

    def child(wf: Any) -> str:
        wf.sleep(60)
        wf.do(step("b"))
        return "late"

    def parent(wf: Any) -> None:
        wf.do(step("a"))
        found.append(wf.do(Child("child"), detached=True).run_id)
        raise ValueError("no")

    _family(shop, child, parent)

    assert shop.status is RunStatus.COMPENSATED
    assert shop.diary == ["a", "una[]"]
    shop.bench.pass_time(61)
    assert shop.bench.output(found[0]) == "late"
    assert '"parentRunId": "r1"' in shop.bench.run(found[0]).wire
