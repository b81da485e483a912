"""Rows that a pass works in place: starts, outcomes, retries and taking back (design 2, 3.3, 3.4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pikkuflow.domain.act import EndedAttempt, PassNews, PassRef
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.domain.step import Place
from tests.contract.scene import BOOM, Scene

_FIRST_FAILED = EndedAttempt(attempt=1, status=StepStatus.FAILED, error=BOOM, started_seconds_ago=2.0)


def _written(news: PassNews | None) -> bool:
    return news is not None and news.written


def _taken_over(scene: Scene, by: str = "p2") -> PassRef:
    """The pass before was lost; this one has the run."""
    scene.advance(31)
    scene.open(by=by)
    return scene.ref(by=by)


def test_an_outcome_without_a_row_inserts_it(scene: Scene) -> None:
    """Design 2: one write a step; the row has what the step is and how it ended."""
    ref = scene.begin()
    news = scene.write(
        ref, StepStatus.SUCCEEDED, result='"ok"', started_seconds_ago=5.0, step={"retries": 3, "retry_delay": "10"}
    )
    assert news == PassNews(news=1, status=RunStatus.RUNNING, written=True)
    step = scene.step()
    assert (step.status, step.result, step.error, step.attempt) == (StepStatus.SUCCEEDED, '"ok"', None, 1)
    assert (step.task, step.args, step.retries, step.retry_delay) == ("shop.pack", '{"args":[]}', 3, "10")
    assert (step.place, step.author, step.is_settled) == (Place.in_pass("p1"), "p1", True)
    assert step.running_at is not None
    assert step.settled_at is not None
    assert 4 <= (step.settled_at - step.running_at).total_seconds() <= 6


def test_a_failure_is_remembered(scene: Scene) -> None:
    """D6, spec 16.7: error type, text, trace and code come back as they were."""
    failure = Failure(type="shop.Broke", message="no money", traceback="Traceback …", code="BROKE")
    scene.write(scene.begin(), StepStatus.FAILED, attempt=1, error=failure)
    assert (scene.step().status, scene.step().error) == (StepStatus.FAILED, failure)


def test_a_start_is_recorded_and_then_its_outcome(scene: Scene) -> None:
    """Design 2: a recorded start is visible, and its outcome lands on the same attempt without a copy."""
    ref = scene.begin()
    assert _written(scene.write(ref, StepStatus.RUNNING, started_seconds_ago=0.5))
    started = scene.step()
    assert (started.status, started.attempt, started.settled_at) == (StepStatus.RUNNING, 1, None)
    assert started.running_at is not None
    assert _written(scene.write(ref, StepStatus.SUCCEEDED, result="1"))
    done = scene.step()
    assert (done.status, done.running_at) == (StepStatus.SUCCEEDED, started.running_at)
    assert scene.store.list_attempts(ref.run_id) == ()


def test_a_late_start_does_not_touch_an_outcome(scene: Scene) -> None:
    """Design 3.3: a start that the keeper records too late is insert-or-nothing."""
    ref = scene.begin()
    scene.write(ref, StepStatus.SUCCEEDED, result="1")
    before = scene.step()
    assert not _written(scene.write(ref, StepStatus.RUNNING))
    assert scene.step() == before


def test_the_same_write_twice_is_done_once(scene: Scene) -> None:
    """D24: the answer was lost and the write is sent again; it finds its own author and counts as done."""
    ref = scene.begin()
    first = scene.write(ref, StepStatus.SUCCEEDED, result="1", state=("k", "1"))
    before = scene.step()
    assert scene.write(ref, StepStatus.SUCCEEDED, result="1", state=("k", "1")) == first
    assert scene.step() == before


def test_the_same_retry_twice_is_done_once(scene: Scene) -> None:
    """D24: also the write that opens the next attempt."""
    ref = scene.begin()
    for _ in range(2):
        assert _written(
            scene.write(ref, StepStatus.PENDING, attempt=2, expects=1, delay_seconds=60.0, ended=_FIRST_FAILED)
        )
    assert scene.step().attempt == 2
    assert [attempt.attempt for attempt in scene.store.list_attempts(ref.run_id)] == [1]


def test_a_retry_opens_the_next_attempt_and_keeps_the_failed_one(scene: Scene) -> None:
    """T17.4, D2: attempt and due time of the next, result and error cleared, the failed attempt in the history."""
    ref = scene.begin()
    scene.write(ref, StepStatus.RUNNING)
    started = scene.step().running_at
    assert _written(
        scene.write(
            ref, StepStatus.PENDING, attempt=2, expects=1, delay_seconds=60.0, override="{}", ended=_FIRST_FAILED
        )
    )
    step = scene.step()
    assert (step.status, step.attempt, step.result, step.error) == (StepStatus.PENDING, 2, None, None)
    assert (step.is_due, step.override) == (False, "{}")
    (failed,) = scene.store.list_attempts(ref.run_id)
    assert (failed.step, failed.attempt, failed.status, failed.error) == ("a", 1, StepStatus.FAILED, BOOM)
    assert failed.running_at == started
    assert failed.settled_at is not None


def test_an_attempt_that_never_had_a_row_gets_its_history(scene: Scene) -> None:
    """T17.15, I9: the first attempt of a quick step was never stored; its failure brings its own history row."""
    ref = scene.begin()
    scene.write(ref, StepStatus.PENDING, attempt=2, expects=1, delay_seconds=0.0, ended=_FIRST_FAILED)
    (failed,) = scene.store.list_attempts(ref.run_id)
    assert (failed.attempt, failed.status, failed.error) == (1, StepStatus.FAILED, BOOM)
    assert _written(scene.write(ref, StepStatus.SUCCEEDED, attempt=2, result="1"))
    assert (scene.step().attempt, scene.step().status) == (2, StepStatus.SUCCEEDED)
    assert len(scene.store.list_attempts(ref.run_id)) == 1


def test_a_waiting_attempt_is_worked_without_another_copy(scene: Scene) -> None:
    """The next attempt, once due, starts and ends on the row that waits for it; what its retry changed holds for it alone."""
    ref = scene.begin()
    scene.write(ref, StepStatus.PENDING, attempt=2, expects=1, delay_seconds=0.0, ended=_FIRST_FAILED)
    assert _written(scene.write(ref, StepStatus.RUNNING, attempt=2))
    assert _written(scene.write(ref, StepStatus.FAILED, attempt=2, error=BOOM))
    assert [attempt.attempt for attempt in scene.store.list_attempts(ref.run_id)] == [1]
    assert (scene.step().status, scene.step().attempt) == (StepStatus.FAILED, 2)


def test_a_step_of_a_dead_pass_is_taken_back_as_a_new_attempt(scene: Scene) -> None:
    """T6.16: the attempt rises, the lost one stays in the history as ``running``."""
    scene.write(scene.begin(), StepStatus.RUNNING)
    ref = _taken_over(scene)
    assert _written(scene.write(ref, StepStatus.RUNNING, attempt=2, expects=1))
    step = scene.step()
    assert (step.attempt, step.status, step.place, step.author) == (2, StepStatus.RUNNING, Place.in_pass("p2"), "p2")
    (lost,) = scene.store.list_attempts(ref.run_id)
    assert (lost.attempt, lost.status, lost.place) == (1, StepStatus.RUNNING, Place.in_pass("p1"))


def test_a_taken_back_step_may_end_in_the_same_write(scene: Scene) -> None:
    """Design 2: one write a step, also for the attempt after a lost one."""
    scene.write(scene.begin(), StepStatus.RUNNING)
    ref = _taken_over(scene)
    assert _written(scene.write(ref, StepStatus.SUCCEEDED, attempt=2, expects=1, result="1"))
    assert (scene.step().attempt, scene.step().status) == (2, StepStatus.SUCCEEDED)
    assert [(old.attempt, old.status) for old in scene.store.list_attempts(ref.run_id)] == [(1, StepStatus.RUNNING)]


def test_a_taken_back_step_may_fail_and_wait_in_one_write(scene: Scene) -> None:
    """I9: the lost attempt and the one that just failed both get their history rows."""
    scene.write(scene.begin(), StepStatus.RUNNING)
    ref = _taken_over(scene)
    ended = EndedAttempt(attempt=2, status=StepStatus.FAILED, error=BOOM)
    assert _written(scene.write(ref, StepStatus.PENDING, attempt=3, expects=1, delay_seconds=5.0, ended=ended))
    history = [(old.attempt, old.status) for old in scene.store.list_attempts(ref.run_id)]
    assert history == [(1, StepStatus.RUNNING), (2, StepStatus.FAILED)]
    assert scene.step().attempt == 3


def test_a_first_row_may_begin_at_a_later_attempt(scene: Scene) -> None:
    """Design 2: after a lost pass the first in-place step without a row begins at attempt 2."""
    scene.begin()
    ref = _taken_over(scene)
    assert _written(scene.write(ref, StepStatus.RUNNING, attempt=2))
    assert scene.step().attempt == 2


def test_a_write_for_another_attempt_is_refused(scene: Scene) -> None:
    """T7.1, design 3.3: an outcome changes only a row with its own attempt and a non-final status."""
    ref = scene.begin()
    scene.write(ref, StepStatus.PENDING, attempt=2, expects=1, delay_seconds=0.0, ended=_FIRST_FAILED)
    before = scene.step()
    assert not _written(scene.write(ref, StepStatus.SUCCEEDED, attempt=1, result='"stale"'))
    assert not _written(scene.write(ref, StepStatus.SUCCEEDED, attempt=4, expects=3, result='"early"'))
    assert replace(scene.step(), due_in_seconds=None) == replace(before, due_in_seconds=None)


def test_a_settled_row_is_never_written_again(scene: Scene) -> None:
    """I4, T7.4: neither another outcome nor another attempt touches it."""
    ref = scene.begin()
    scene.write(ref, StepStatus.SUCCEEDED, result="1")
    before = scene.step()
    assert not _written(scene.write(ref, StepStatus.FAILED, error=BOOM))
    assert not _written(scene.write(ref, StepStatus.RUNNING, attempt=2, expects=1))
    assert not _written(
        scene.write(ref, StepStatus.PENDING, attempt=2, expects=1, delay_seconds=0.0, ended=_FIRST_FAILED)
    )
    assert scene.step() == before
    assert scene.store.list_attempts(ref.run_id) == ()


def test_an_outcome_of_an_earlier_pass_is_not_this_ones(scene: Scene) -> None:
    """D24: only its own author makes a second write count as done."""
    scene.write(scene.begin(), StepStatus.SUCCEEDED, result="1")
    ref = _taken_over(scene)
    assert not _written(scene.write(ref, StepStatus.SUCCEEDED, result="2"))
    assert scene.step().result == "1"


def test_a_start_on_a_stopped_run_is_not_written(scene: Scene) -> None:
    """Design 3.7: a cancel is seen at the next step without a read; nothing starts any more."""
    ref = scene.begin()
    scene.stop()
    assert scene.write(ref, StepStatus.RUNNING) == PassNews(news=1, status=RunStatus.COMPENSATING, written=False)
    assert scene.store.list_steps(ref.run_id) == ()


def test_an_outcome_on_a_stopped_run_is_kept(scene: Scene) -> None:
    """Design 3.7: the work is done, so what there may be to undo is known."""
    ref = scene.begin()
    scene.stop()
    assert scene.write(ref, StepStatus.SUCCEEDED, result="1") == PassNews(
        news=1, status=RunStatus.COMPENSATING, written=True
    )
    assert scene.step().status is StepStatus.SUCCEEDED


def test_a_suspended_run_is_open_for_a_pass(scene: Scene) -> None:
    """Design 3.10: a suspended run tries again by itself; its pass writes while the status is still ``suspended``."""
    scene.close(scene.begin(), status=RunStatus.SUSPENDED, code="TASK_NOT_FOUND", error=BOOM)
    scene.open(by="p2")
    assert _written(scene.write(scene.ref(by="p2"), StepStatus.RUNNING))


def test_each_outcome_clears_the_mark_of_lost_passes(scene: Scene) -> None:
    """Design 2: SUCCEEDED, FAILED and PENDING are outcomes; a start is none."""
    scene.begin()
    cases: tuple[tuple[StepStatus, dict[str, Any]], ...] = (
        (StepStatus.SUCCEEDED, {}),
        (StepStatus.FAILED, {"error": BOOM}),
        (StepStatus.PENDING, {"delay_seconds": 1.0, "attempt": 2, "ended": _FIRST_FAILED}),
    )
    for turn, (status, more) in enumerate(cases):
        ref = _taken_over(scene, f"again-{turn}")
        scene.write(ref, StepStatus.RUNNING, f"start-{turn}")
        assert (scene.run().lost, scene.run().passes_lost) == (True, 1)
        scene.write(ref, status, f"outcome-{turn}", **more)
        assert (scene.run().lost, scene.run().passes_lost) == (False, 0)


def test_a_write_brings_back_the_runs_news(scene: Scene) -> None:
    """Design 2: news and stop marks come with every write of a pass."""
    scene.dispatch("far")
    scene.claimed("far")
    ref = scene.ref(by="p2")
    seen = scene.open(by="p2").run.seen
    scene.succeed("far")
    news = scene.write(ref, StepStatus.SUCCEEDED, "near", step={"seq": 1})
    assert news is not None
    assert news.news == seen + 1


def test_an_attempt_that_travels_waits_for_a_worker(scene: Scene) -> None:
    """Design 1, ``retry(queue=…)``: the row of a step in place becomes a dispatched one, with its override for whoever sends it."""
    ref = scene.begin()
    scene.write(
        ref,
        StepStatus.PENDING,
        attempt=2,
        delay_seconds=5.0,
        override='{"options":{"queue":"vip"}}',
        ended=_FIRST_FAILED,
        step={"place": Place.QUEUE},
    )
    scene.park(ref)
    assert scene.undispatched() == []
    scene.advance(36)

    (message,) = scene.store.sweep_undispatched(scene.sweep(30.0)).steps

    assert (message.name, message.attempt, message.override) == ("a", 2, '{"options":{"queue":"vip"}}')
    assert scene.claimed(attempt=2).override == message.override
