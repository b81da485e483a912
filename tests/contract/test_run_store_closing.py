"""Closing a pass: the last write, which releases the run and may settle it (design 3.5, 3.7)."""

from __future__ import annotations

import pytest

from pikkuflow.domain.act import Closing
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus, SuspendCode
from tests.contract.scene import BOOM, Scene, new_step


def test_a_parked_run_is_free_and_still_running(scene: Scene) -> None:
    """Design 3.5: closing releases the run; nothing new came, so nobody is woken."""
    closed = scene.park(scene.begin())
    assert (closed.wake, closed.status, closed.parent) == (False, RunStatus.RUNNING, None)
    run = scene.run()
    assert (run.pass_id, run.pass_holder, run.pass_until, run.due_at) == (None, None, None, None)
    assert run.finished_at is None


def test_rows_that_are_expected_and_gone_are_news(scene: Scene) -> None:
    """Rows that were inserted lightly, and forgotten by a server that died, are inserted again by another pass."""
    ref = scene.begin()
    scene.insert_steps(ref, "a")
    assert scene.park(ref, sent=(StepName("a"),), expected=(StepName("a"), StepName("b"))).wake
    assert scene.step("a").status is StepStatus.SCHEDULED
    scene.advance(11)
    assert [found.id for found in scene.store.sweep_stalled(scene.sweep(10)).runs] == ["r1"]


def test_rows_that_are_expected_and_there_are_no_news(scene: Scene) -> None:
    """All that a pass inserted is there: nobody is woken."""
    ref = scene.begin()
    scene.insert_steps(ref, "a", "b")
    assert not scene.park(ref, sent=(StepName("a"),), expected=(StepName("a"), StepName("b"))).wake


def test_parking_says_when_to_look_again(scene: Scene) -> None:
    """Design 4: the earliest due time of what is awaited becomes the run's."""
    scene.park(scene.begin(), due_seconds=60.0)
    assert scene.run().due_at is not None
    scene.advance(61)
    assert [ref.id for ref in scene.store.sweep_scheduled(scene.sweep(0)).runs] == ["r1"]
    scene.open(by="p2")
    scene.park(scene.ref(by="p2"))
    assert scene.run().due_at is None


def test_a_suspended_run_shows_why(scene: Scene) -> None:
    """Design 3.10: code, error and the time of the next attempt."""
    closed = scene.close(
        scene.begin(), status=RunStatus.SUSPENDED, code=SuspendCode.TASK_NOT_FOUND, error=BOOM, due_seconds=30.0
    )
    assert (closed.status, closed.wake) == (RunStatus.SUSPENDED, False)
    run = scene.run()
    assert (run.status, run.code, run.error) == (RunStatus.SUSPENDED, SuspendCode.TASK_NOT_FOUND, BOOM)
    assert run.due_at is not None


def test_a_run_that_goes_on_is_not_suspended_any_more(scene: Scene) -> None:
    """Parking as RUNNING clears code and error of an earlier suspension."""
    scene.close(scene.begin(), status=RunStatus.SUSPENDED, code=SuspendCode.TASK_NOT_FOUND, error=BOOM)
    scene.open(by="p2")
    scene.park(scene.ref(by="p2"))
    run = scene.run()
    assert (run.status, run.code, run.error) == (RunStatus.RUNNING, None, None)


def test_closing_without_a_status_leaves_it(scene: Scene) -> None:
    """A pass that found nothing to say about the run only releases it."""
    scene.close(scene.begin(), status=RunStatus.SUSPENDED, code=SuspendCode.TASK_NOT_FOUND, error=BOOM)
    scene.open(by="p2")
    assert scene.close(scene.ref(by="p2")).status is RunStatus.SUSPENDED
    run = scene.run()
    assert (run.status, run.code, run.error, run.pass_id) == (
        RunStatus.SUSPENDED,
        SuspendCode.TASK_NOT_FOUND,
        BOOM,
        None,
    )


def test_a_pass_that_yields_raises_news_and_is_woken(scene: Scene) -> None:
    """Design 2: it raises the run's news, closes, and a fresh pass is published."""
    closed = scene.close(scene.begin(), raise_news=True)
    assert (closed.wake, closed.status) == (True, RunStatus.RUNNING)
    assert scene.run().news == scene.run().seen + 1


def test_a_pass_that_broke_off_counts_without_the_mark(scene: Scene) -> None:
    """Design 2: it counts like an unclosed one, but nothing that it did is unknown; an outcome in place forgives it."""
    scene.close(scene.begin(), broke_off=True, due_seconds=1.0)
    run = scene.run()
    assert (run.passes_lost, run.lost, run.status) == (1, False, RunStatus.RUNNING)
    assert run.due_at is not None
    ref = scene.ref(by="p2")
    scene.open(by="p2")
    scene.write(ref, StepStatus.SUCCEEDED, result="1")
    scene.park(ref)
    assert scene.run().passes_lost == 0


def test_news_that_came_during_the_pass_wakes_the_run(scene: Scene) -> None:
    """Design 3.5: a result that landed during the pass is not lost; the closer wakes the run again."""
    scene.dispatch("a")
    scene.claimed()
    scene.open(by="p2")
    scene.succeed()
    assert scene.park(scene.ref(by="p2")).wake is True


def test_news_that_the_pass_has_seen_wakes_nobody(scene: Scene) -> None:
    """Design 3.5: the baseline is what the opening loaded."""
    scene.dispatch("a")
    scene.claimed()
    scene.succeed()
    scene.open(by="p2")
    assert scene.park(scene.ref(by="p2")).wake is False


def test_sent_steps_are_scheduled_by_the_closing_write(scene: Scene) -> None:
    """Design 2, T17.3: marking what was sent costs no commit of its own; what was not sent stays pending."""
    ref = scene.begin()
    scene.insert_steps(ref, "a", "b")
    scene.park(ref, sent=(StepName("a"),))
    sent, unsent = scene.step("a"), scene.step("b")
    assert (sent.status, unsent.status) == (StepStatus.SCHEDULED, StepStatus.PENDING)
    assert sent.sent_at is not None
    assert sent.scheduled_at is not None
    assert unsent.sent_at is None


def test_a_step_whose_message_nobody_could_work_waits_as_if_never_sent(scene: Scene) -> None:
    """D5: pending again, with its attempt; what a worker took or ended meanwhile stays as it is. A sweep sends it."""
    scene.dispatch("a", "b", "c")
    scene.claimed("b")
    scene.claimed("c", claim="c2")
    scene.succeed("c", claim="c2")
    scene.open(by="p2")
    names = (StepName("a"), StepName("b"), StepName("c"))
    scene.close(scene.ref(by="p2"), status=RunStatus.SUSPENDED, code="TASK_NOT_FOUND", returned=names)
    returned = scene.step("a")
    assert (returned.status, returned.attempt, returned.sent_at, returned.scheduled_at) == (
        StepStatus.PENDING,
        1,
        None,
        None,
    )
    assert (scene.step("b").status, scene.step("c").status) == (StepStatus.RUNNING, StepStatus.SUCCEEDED)
    scene.advance(31)
    assert scene.undispatched() == [("a", 1)]


def test_a_step_that_a_worker_took_meanwhile_is_not_set_back(scene: Scene) -> None:
    """Spec 16.5: a worker may be faster than the write that closes the pass."""
    ref = scene.begin()
    scene.insert_steps(ref, "a", "b")
    scene.claimed("a")
    scene.claimed("b", claim="c2")
    scene.succeed("b", claim="c2")
    scene.park(ref, sent=(StepName("a"), StepName("b")))
    assert (scene.step("a").status, scene.step("b").status) == (StepStatus.RUNNING, StepStatus.SUCCEEDED)


def test_a_next_attempt_that_opened_meanwhile_is_not_marked_as_sent(scene: Scene) -> None:
    """D2: the message that left was for the attempt before, so the next one still waits for its own."""
    ref = scene.begin()
    scene.insert_steps(ref, "a")
    scene.claimed()
    scene.try_again(delay_seconds=60.0)
    scene.park(ref, sent=(StepName("a"),))
    step = scene.step()
    assert (step.status, step.attempt, step.sent_at, step.is_due) == (StepStatus.PENDING, 2, None, False)


def test_a_next_attempt_of_an_older_row_is_not_marked_as_sent(scene: Scene) -> None:
    """D2: also when this pass only repaired a lost hand-over of the pass before (spec 16.1)."""
    ref = scene.begin()
    scene.insert_steps(ref, "a")
    scene.park(ref)
    scene.advance(1)
    scene.open(by="p2")
    scene.claimed()
    scene.try_again(delay_seconds=60.0)
    scene.park(scene.ref(by="p2"), sent=(StepName("a"),))
    step = scene.step()
    assert (step.status, step.attempt, step.sent_at) == (StepStatus.PENDING, 2, None)


def test_a_lost_hand_over_is_repaired_by_the_next_pass(scene: Scene) -> None:
    """Spec 16.1: a row that an earlier pass left pending is sent and marked by this one."""
    ref = scene.begin()
    scene.insert_steps(ref, "a")
    scene.park(ref)
    scene.advance(1)
    scene.open(by="p2")
    scene.park(scene.ref(by="p2"), sent=(StepName("a"),))
    assert scene.step().status is StepStatus.SCHEDULED


def test_closing_again_is_the_same_closing(scene: Scene) -> None:
    """D24: the answer was lost and the write is sent again; it answers as the first did and raises no second news."""
    ref = scene.begin()
    first = scene.close(ref, raise_news=True)
    before = scene.run()
    assert scene.close(ref, raise_news=True) == first
    assert scene.run() == before


def test_closing_again_after_another_pass_opened_is_fenced(scene: Scene) -> None:
    """I5: a late repeat of a closing does not release the next pass."""
    ref = scene.begin()
    scene.park(ref)
    scene.open(by="p2")
    scene.store.close_pass(ref, Closing(status=RunStatus.COMPLETED, output="1"))
    run = scene.run()
    assert (run.pass_id, run.status) == ("p2", RunStatus.RUNNING)


@pytest.mark.parametrize("status", [RunStatus.COMPLETED, RunStatus.FAILED])
def test_settling_twice_answers_as_before(scene: Scene, status: RunStatus) -> None:
    """D24: also for the write that ends the run."""
    ref = scene.begin()
    first = scene.close(ref, status=status, output="1")
    before = scene.run()
    assert scene.close(ref, status=status, output="1") == first
    assert scene.run() == before


def test_a_settled_run_wakes_nobody(scene: Scene) -> None:
    """News that a settled run has not seen is nobody's business any more."""
    scene.dispatch("a", "b")
    scene.claimed("a")
    scene.open(by="p2")
    scene.succeed("a")
    closed = scene.close(scene.ref(by="p2"), status=RunStatus.COMPLETED, output="1")
    assert (closed.wake, closed.status) == (False, RunStatus.COMPLETED)


def test_a_stopped_run_is_not_settled_over(scene: Scene) -> None:
    """Design 3.7: a settled status is written only over an open one; the pass is released all the same."""
    ref = scene.begin()
    scene.stop()
    closed = scene.close(ref, status=RunStatus.COMPLETED, output="1")
    assert closed.status is RunStatus.COMPENSATING
    run = scene.run()
    assert (run.status, run.output, run.finished_at, run.pass_id) == (RunStatus.COMPENSATING, None, None, None)


def test_a_stopped_run_is_not_parked_over(scene: Scene) -> None:
    """Design 3.7: neither RUNNING nor SUSPENDED is written over a stop, and the stopped run stays worth a wake-up when news came."""
    ref = scene.begin()
    scene.stop()
    assert scene.park(ref, raise_news=True).status is RunStatus.COMPENSATING
    assert scene.run().status is RunStatus.COMPENSATING


def test_rows_that_never_started_are_cancelled_with_their_run(scene: Scene) -> None:
    """Design 3.7: the write that settles the run leaves nothing behind that could still start."""
    ref = scene.begin()
    scene.insert_steps(ref, "unsent", "sent", "taken")
    nap = new_step("nap", seq=4, kind=StepKind.SLEEP, task=None, args=None, place="pass:p1", delay_seconds=60.0)
    scene.store.insert_steps(ref, [nap])
    scene.claimed("taken")
    scene.write(ref, StepStatus.SUCCEEDED, "done", step={"seq": 3})
    scene.close(ref, status=RunStatus.FAILED, error=BOOM, sent=(StepName("sent"),))
    statuses = {str(step.name): step.status for step in scene.store.list_steps(ref.run_id)}
    assert statuses == {
        "unsent": StepStatus.CANCELLED,
        "sent": StepStatus.CANCELLED,
        "nap": StepStatus.CANCELLED,
        "taken": StepStatus.RUNNING,
        "done": StepStatus.SUCCEEDED,
    }
    assert scene.store.sweep_undispatched(scene.sweep(0)).steps == ()


def test_a_pass_that_parks_cancels_nothing(scene: Scene) -> None:
    """Only a settled run loses its waiting rows."""
    ref = scene.begin()
    scene.insert_steps(ref, "a")
    scene.close(ref, status=RunStatus.SUSPENDED, code=SuspendCode.TASK_NOT_FOUND, error=BOOM)
    assert scene.step().status is StepStatus.PENDING


def test_a_settled_run_never_changes(scene: Scene) -> None:
    """I6: openings, writes, resumes and closings leave it as it is."""
    ref = scene.begin()
    scene.close(ref, status=RunStatus.COMPLETED, output="1")
    before = scene.run()
    assert scene.write(ref, StepStatus.SUCCEEDED) is None
    assert scene.insert_steps(ref, "a") is None
    scene.store.resume_run(RunId("r1"))
    scene.store.close_pass(scene.ref(by="p9"), Closing(status=RunStatus.FAILED, error=BOOM))
    assert scene.run() == before
