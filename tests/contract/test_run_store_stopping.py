"""Stopping a run: cancelling it, undoing it, and asking its children to undo themselves (design 3.7)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from pikkuflow.domain.act import ClaimRefusal, Closing, EndedAttempt, PassRef
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.run import ParentStep
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus
from pikkuflow.domain.step import NewStep, Place, first_no
from pikkuflow.domain.stop import Beat, Cancellation, StepStanding, Stopped, cancelled_failure
from tests.contract.scene import BOOM, Scene, new_run, new_step, race

_REASON = cancelled_failure("changed mind")
_ENDED = EndedAttempt(attempt=1, status=StepStatus.FAILED, error=BOOM)


def cancel(scene: Scene, run_id: str = "r1", error: Failure = _REASON) -> Stopped:
    """Call a run off that is there."""
    stopped = scene.store.cancel_run(Cancellation(run_id=RunId(run_id), error=error))
    assert stopped is not None
    return stopped


def undo_step(name: str = "a", **more: Any) -> NewStep:
    """The row that undoes a step."""
    fields = {"kind": StepKind.COMPENSATION, "task": "shop.unpack", "args": None, "from_step": StepName(name), **more}
    return new_step(f"{name}:compensate", **fields)


def worked(scene: Scene, run_id: str = "r1", by: str = "p1") -> PassRef:
    """A new run whose open pass has a settled step that can be undone."""
    ref = scene.begin(run_id, by)
    scene.write(ref, StepStatus.SUCCEEDED, result="1", step={"undo_task": "shop.unpack", "begun_no": 1}, no=2)
    return ref


def unwinding(scene: Scene, run_id: str = "r1") -> PassRef:
    """The same run called off, with an open pass that undoes it."""
    scene.park(worked(scene, run_id))
    cancel(scene, run_id)
    scene.open(run_id, by="p2")
    return scene.ref(run_id, by="p2")


# --- cancelling -------------------------------------------------------------------------------------------------------


def test_a_run_with_nothing_to_undo_is_cancelled_with_its_waiting_rows(scene: Scene) -> None:
    """T11.36: one transaction; rows that never started are cancelled, ones with a past attempt failed with its error."""
    scene.dispatch("a", "b")
    scene.claimed("b")
    scene.try_again("b")
    stopped = cancel(scene)
    assert (stopped.status, stopped.is_stopped, stopped.wake) == (RunStatus.CANCELLED, True, False)
    run = scene.run()
    assert (run.status, run.code, run.error) == (RunStatus.CANCELLED, "WORKFLOW_CANCELLED", _REASON)
    assert run.finished_at is not None
    assert scene.step("a").status is StepStatus.CANCELLED
    assert (scene.step("b").status, scene.step("b").error) == (StepStatus.FAILED, BOOM)
    assert scene.refusal("a") is ClaimRefusal.SETTLED


@pytest.mark.parametrize("mark", ["settled", "running", "milestone", "child"])
def test_a_run_that_may_have_to_be_undone_is_compensating(scene: Scene, mark: str) -> None:
    """Design 3.7: something that can be undone was begun, a milestone was reached, or a child is at work."""
    ref = scene.begin()
    if mark == "settled":
        scene.write(ref, StepStatus.FAILED, error=BOOM, step={"undo_task": "shop.unpack"})
    if mark == "running":
        scene.write(ref, StepStatus.RUNNING, step={"undo_task": "shop.unpack"})
    if mark == "milestone":
        scene.write(ref, StepStatus.SUCCEEDED, result="null", step={"kind": StepKind.MILESTONE})
    if mark == "child":
        child = new_run("c1", parent=ParentStep(run_id=RunId("r1"), step=StepName("below")))
        scene.store.start_child(ref, new_step("below", kind=StepKind.CHILD, place=Place.child("c1")), child)
    scene.park(ref)
    stopped = cancel(scene)
    assert (stopped.status, stopped.wake) == (RunStatus.COMPENSATING, True)
    assert stopped.children == ((RunId("c1"),) if mark == "child" else ())
    assert scene.run().news > scene.run().seen


def test_a_run_under_an_open_pass_is_compensating_and_its_pass_sees_it(scene: Scene) -> None:
    """Design 2: the next write brings the stop back; what was worked is recorded, no more begins, and the end is not overwritten."""
    ref = scene.begin()
    stopped = cancel(scene)
    assert (stopped.status, stopped.wake) == (RunStatus.COMPENSATING, False)
    news = scene.write(ref, StepStatus.SUCCEEDED, result="1")
    assert news is not None
    assert (news.written, news.status) == (True, RunStatus.COMPENSATING)
    begun = scene.write(ref, StepStatus.RUNNING, "b")
    assert begun is not None
    assert not begun.written
    closed = scene.close(ref, status=RunStatus.COMPLETED, output="1")
    assert (closed.status, closed.wake) == (RunStatus.COMPENSATING, True)
    assert scene.run().error == _REASON


def test_a_retry_in_place_of_the_open_pass_is_left_to_it(scene: Scene) -> None:
    """Design 2: what was worked is recorded; a row of an earlier pass, which nobody works any more, has failed."""
    earlier = scene.begin()
    assert scene.write(earlier, StepStatus.PENDING, "b", attempt=2, delay_seconds=60.0, ended=_ENDED)
    scene.park(earlier)
    scene.open(by="p2")
    ref = scene.ref(by="p2")
    assert scene.write(ref, StepStatus.PENDING, attempt=2, ended=_ENDED)

    cancel(scene)

    assert (scene.step("a").status, scene.step("b").status) == (StepStatus.PENDING, StepStatus.FAILED)
    news = scene.write(ref, StepStatus.SUCCEEDED, attempt=2, result="1")
    assert news is not None
    assert (news.written, news.status) == (True, RunStatus.COMPENSATING)
    assert scene.step("a").status is StepStatus.SUCCEEDED


def test_a_second_cancel_changes_nothing(scene: Scene) -> None:
    """T11.37, T11.38: whatever the status, the first reason stays."""
    scene.park(worked(scene))
    cancel(scene)
    again = cancel(scene, error=cancelled_failure("again"))
    assert (again.status, again.is_stopped) == (RunStatus.COMPENSATING, False)
    assert scene.run().error == _REASON
    scene.close(scene.begin("r2"), status=RunStatus.COMPLETED, output="1")
    before = scene.run("r2")
    assert cancel(scene, "r2").status is RunStatus.COMPLETED
    assert scene.run("r2") == before
    assert scene.store.cancel_run(Cancellation(run_id=RunId("none"), error=_REASON)) is None


def test_the_parent_of_a_cancelled_run_is_told_in_the_same_transaction(scene: Scene) -> None:
    """D9: child locked before parent; the parent's step failed with the reason."""
    ref = scene.begin("parent")
    child = new_run("r1", parent=ParentStep(run_id=RunId("parent"), step=StepName("below")))
    scene.store.start_child(ref, new_step("below", kind=StepKind.CHILD, place=Place.child("r1")), child)
    scene.park(ref)
    stopped = cancel(scene)
    assert stopped.parent is not None
    assert stopped.parent.id == "parent"
    assert (scene.step("below", "parent").status, scene.step("below", "parent").error) == (StepStatus.FAILED, _REASON)


def test_after_a_stop_every_outcome_is_news(scene: Scene) -> None:
    """The counters of fans are gone: an unwind waits for each member that is at work."""
    scene.dispatch("a", "b", "c", joined=True, fan_id="a", undo_task="shop.unpack")
    scene.claimed("a")
    cancel(scene)
    scene.open(by="p2")
    scene.park(scene.ref(by="p2"))
    assert scene.succeed("a").wake


def test_cancel_and_completion_at_the_same_moment_leave_one_of_the_two(scene: Scene) -> None:
    """Scenario 21: whichever came first stays."""
    for number in range(5):
        run_id = f"race{number}"
        ref = scene.begin(run_id)
        stopped, closed = race(
            partial(cancel, scene, run_id),
            partial(scene.store.close_pass, ref, Closing(status=RunStatus.COMPLETED, output="1")),
        )
        status = scene.run(run_id).status
        assert stopped.status is status or (stopped.is_stopped and status is RunStatus.COMPENSATING)
        assert closed is not None
        assert closed.status is status
        assert stopped.is_stopped == (status is RunStatus.COMPENSATING)


# --- undoing ------------------------------------------------------------------------------------------------------------


def test_a_failing_pass_may_leave_its_run_to_be_undone(scene: Scene) -> None:
    """Spec 2.12: one write: status, error, rows that never started, news; the parent is not told yet."""
    ref = worked(scene)
    scene.insert_steps(ref, "waits")
    closed = scene.close(ref, status=RunStatus.COMPENSATING, error=BOOM, code="STEP_FAILED")
    assert (closed.status, closed.wake) == (RunStatus.COMPENSATING, True)
    run = scene.run()
    assert (run.status, run.error, run.code, run.finished_at) == (RunStatus.COMPENSATING, BOOM, "STEP_FAILED", None)
    assert scene.step("waits").status is StepStatus.CANCELLED
    scene.advance(11)
    assert scene.stalled() == ["r1"]


def test_only_compensations_begin_while_a_run_unwinds(scene: Scene) -> None:
    """Design 3.6: in place, inserted and claimed; and none of them in a run that is open."""
    ref = unwinding(scene)
    for name, kind in (("b", StepKind.TASK), ("a:compensate", StepKind.COMPENSATION)):
        begun = scene.write(ref, StepStatus.RUNNING, name, step={"kind": kind})
        assert begun is not None
        assert begun.written == (kind is StepKind.COMPENSATION)
    inserted = scene.store.insert_steps(ref, [undo_step("x")])
    assert inserted is not None
    assert inserted.written
    refused = scene.insert_steps(ref, "c")
    assert refused is not None
    assert not refused.written
    scene.close(ref, sent=(StepName("x:compensate"),))
    assert scene.claimed("x:compensate", task="shop.unpack").status is StepStatus.RUNNING
    assert scene.succeed("x:compensate").wake


def test_a_step_is_not_claimed_in_a_run_that_unwinds(scene: Scene) -> None:
    """Design 3.6: STOPPED, also for a claim that lapsed."""
    scene.dispatch("a", undo_task="shop.unpack")
    scene.claimed("a")
    cancel(scene)
    scene.advance(61)
    assert scene.refusal("a", claim="c2") is ClaimRefusal.STOPPED
    assert scene.undispatched() == []


def test_a_compensation_that_was_not_picked_up_is_sent_again(scene: Scene) -> None:
    """Design 3.8: the sweep knows them; after a failure they come back when they are due."""
    ref = unwinding(scene)
    scene.store.insert_steps(ref, [undo_step()])
    scene.close(ref, sent=(StepName("a:compensate"),))
    scene.advance(31)
    assert scene.undispatched() == [("a:compensate", 1)]
    scene.claimed("a:compensate", task="shop.unpack")
    scene.try_again("a:compensate", delay_seconds=60.0)
    scene.advance(61)
    swept = scene.store.sweep_scheduled(scene.sweep(0))
    assert [(message.name, message.attempt) for message in swept.steps] == [("a:compensate", 2)]


@pytest.mark.parametrize("end", [RunStatus.COMPENSATED, RunStatus.COMPENSATION_FAILED, RunStatus.CANCELLED])
def test_the_end_of_an_unwind_keeps_the_error_and_tells_the_parent(scene: Scene, end: RunStatus) -> None:
    """T11.10, D23: written over compensating only."""
    parent = scene.begin("parent")
    child = new_run("r1", parent=ParentStep(run_id=RunId("parent"), step=StepName("below")))
    scene.store.start_child(parent, new_step("below", kind=StepKind.CHILD, place=Place.child("r1")), child)
    scene.park(parent)
    scene.open("r1", by="p1")
    ref = scene.ref("r1", by="p1")
    scene.close(ref, status=RunStatus.COMPENSATING, error=BOOM, code="STEP_FAILED")
    assert scene.step("below", "parent").status is StepStatus.RUNNING
    scene.open("r1", by="p2")
    closed = scene.close(scene.ref(by="p2"), status=end, output='{"restedAt": "paid"}', unwinds=True)
    assert closed.status is end
    assert closed.parent is not None
    run = scene.run()
    assert (run.status, run.error, run.code, run.output) == (end, BOOM, "STEP_FAILED", '{"restedAt": "paid"}')
    assert run.finished_at is not None
    assert (scene.step("below", "parent").status, scene.step("below", "parent").error) == (StepStatus.FAILED, BOOM)


def test_the_end_of_an_unwind_is_not_written_over_an_open_run(scene: Scene) -> None:
    """I6: every status write names the status that it leaves."""
    closed = scene.close(scene.begin(), status=RunStatus.COMPENSATED, unwinds=True)
    assert closed.status is RunStatus.RUNNING


# --- children -----------------------------------------------------------------------------------------------------------


def family(scene: Scene, end: RunStatus = RunStatus.COMPLETED) -> PassRef:
    """A parent that is being undone, over a child that has ended."""
    parent = scene.begin("parent")
    child = new_run("r1", parent=ParentStep(run_id=RunId("parent"), step=StepName("below")))
    row = new_step("below", kind=StepKind.CHILD, place=Place.child("r1"), undo_task="child")
    scene.store.start_child(parent, row, child)
    scene.park(parent)
    ref = worked_child(scene)
    scene.close(ref, status=end, output='"done"', error=None if end is RunStatus.COMPLETED else BOOM)
    scene.store.cancel_run(Cancellation(run_id=RunId("parent"), error=_REASON))
    scene.open("parent", by="p9")
    return scene.ref("parent", by="p9")


def worked_child(scene: Scene) -> PassRef:
    """The child's first pass, with a step that can be undone."""
    scene.open("r1", by="c1")
    ref = scene.ref("r1", by="c1")
    scene.write(ref, StepStatus.SUCCEEDED, result="1", step={"undo_task": "shop.unpack"})
    return ref


def test_a_completed_child_is_asked_to_undo_itself_once(scene: Scene) -> None:
    """T11.28: with one transaction it is compensating, with its parent's error, and the parent's row waits for it; again is the same."""
    ref = family(scene)
    row = undo_step("below", child_run_id=RunId("r1"), place=Place.child("r1"))
    for _ in range(2):
        news = scene.store.unwind_child(ref, row, RunId("r1"))
        assert news is not None
        assert news.written
    child = scene.run("r1")
    assert (child.status, child.error, child.finished_at) == (RunStatus.COMPENSATING, _REASON, None)
    assert scene.step("below:compensate", "parent").status is StepStatus.RUNNING
    scene.close(ref)
    scene.open("r1", by="c2")
    closed = scene.close(scene.ref("r1", by="c2"), status=RunStatus.COMPENSATED, unwinds=True)
    assert closed.parent is not None
    assert scene.step("below:compensate", "parent").status is StepStatus.SUCCEEDED
    assert scene.step("below", "parent").status is StepStatus.SUCCEEDED


def test_a_stuck_child_fails_the_row_that_waits_for_it(scene: Scene) -> None:
    """T11.31."""
    ref = family(scene)
    scene.store.unwind_child(ref, undo_step("below", child_run_id=RunId("r1")), RunId("r1"))
    scene.close(ref)
    scene.open("r1", by="c2")
    scene.close(scene.ref("r1", by="c2"), status=RunStatus.COMPENSATION_FAILED, unwinds=True)
    assert scene.step("below:compensate", "parent").status is StepStatus.FAILED


def test_a_child_that_did_not_complete_is_not_touched(scene: Scene) -> None:
    """I6: out of the terminal statuses only completed -> compensating exists (D23)."""
    ref = family(scene, RunStatus.FAILED)
    scene.store.unwind_child(ref, undo_step("below", child_run_id=RunId("r1")), RunId("r1"))
    assert scene.run("r1").status is RunStatus.FAILED
    assert scene.step("below:compensate", "parent").status is StepStatus.SUCCEEDED


def test_a_child_is_undone_only_by_a_pass_that_undoes_its_run(scene: Scene) -> None:
    """Fenced by the pass, refused while the run is open."""
    scene.close(scene.begin("r1"), status=RunStatus.COMPLETED, output="1")
    ref = scene.begin("parent")
    refused = scene.store.unwind_child(ref, undo_step("below"), RunId("r1"))
    assert refused is not None
    assert not refused.written
    assert scene.store.unwind_child(scene.ref("parent", by="other"), undo_step("below"), RunId("r1")) is None
    assert scene.run("r1").status is RunStatus.COMPLETED


def test_a_detached_child_is_settled_for_its_parent_at_once(scene: Scene) -> None:
    """Issue D: nothing waits for it, and its end tells nobody."""
    ref = scene.begin("parent")
    row = new_step("below", kind=StepKind.CHILD, place=Place.child("r1"), begun_no=7)
    scene.store.start_child(ref, row, new_run("r1"), result='"r1"')
    below = scene.step("below", "parent")
    assert (below.status, below.result, below.child_run_id) == (StepStatus.SUCCEEDED, '"r1"', "r1")
    assert cancel(scene, "parent").children == ()
    assert scene.run("r1").parent is None


# --- numbers ------------------------------------------------------------------------------------------------------------


def test_rows_keep_the_numbers_that_order_them(scene: Scene) -> None:
    """Issue C: the pass numbers its own; what comes from outside is first in the news that tells of it."""
    ref = scene.begin()
    scene.write(ref, StepStatus.SUCCEEDED, "here", result="1", step={"begun_no": 11}, no=12)
    scene.insert_steps(ref, "away", begun_no=13)
    scene.park(ref)
    assert (scene.step("here").begun_no, scene.step("here").settled_no) == (11, 12)
    assert (scene.step("away").begun_no, scene.step("away").settled_no) == (13, None)
    scene.claimed("away")
    scene.succeed("away")
    news = scene.run().news
    assert scene.step("away").settled_no == first_no(news)
    assert scene.open(by="p2").run.seen == news


# --- an attempt that asks ---------------------------------------------------------------------------------------------


def test_an_attempt_learns_how_it_stands(scene: Scene) -> None:
    """Scenario 24, scenario 08: working, stopped with its run, or outdated by another attempt; details outlive it."""
    scene.dispatch("a", undo_task="shop.unpack")
    scene.claimed("a")

    def stands(attempt: int = 1, **more: Any) -> StepStanding:
        return scene.store.beat(Beat(run_id=RunId("r1"), step=StepName("a"), attempt=attempt, **more))

    assert stands() is StepStanding.WORKING
    assert stands(details='{"page": 3}') is StepStanding.WORKING
    scene.try_again("a")
    assert stands(details='{"page": 4}') is StepStanding.OUTDATED
    assert scene.claimed("a", 2, claim="c2").details == '{"page": 3}'
    cancel(scene)
    assert stands(2) is StepStanding.STOPPED
    scene.succeed("a", 2, claim="c2")
    assert stands(2) is StepStanding.OUTDATED


def test_a_step_in_place_without_a_row_works_while_its_run_is_open(scene: Scene) -> None:
    """Its start is recorded late, if at all."""
    scene.begin()
    beat = Beat(run_id=RunId("r1"), step=StepName("none"), attempt=1)
    assert scene.store.beat(beat) is StepStanding.WORKING
    cancel(scene)
    assert scene.store.beat(beat) is StepStanding.STOPPED
