"""Settling a claimed attempt: fencing conformance (spec 13.7) and what the run hears of it."""

from __future__ import annotations

import itertools
from functools import partial

import pytest

from pikkuflow.domain.act import Settlement, StepOutcome
from pikkuflow.domain.ids import ClaimId, FanId, RunId, StepName
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.domain.step import Place
from tests.contract.scene import BOOM, Scene, race


def _taken_over(scene: Scene, run_id: str = "r1") -> None:
    """Attempt 1 (claim c1) lost its step to attempt 2 (claim c2)."""
    scene.dispatch("a", run_id=run_id)
    scene.claimed(run_id=run_id)
    scene.advance(61)
    scene.claimed(claim="c2", run_id=run_id)


def test_a_success_is_stored_and_the_run_woken(scene: Scene) -> None:
    """T17.3, design 3.5: result, times, and a wake-up because the run had no unseen news."""
    scene.dispatch("a")
    scene.claimed()
    assert scene.succeed(result='"done"') == Settlement(accepted=(True,), wake=True)
    step = scene.step()
    assert (step.status, step.result, step.error, step.attempt) == (StepStatus.SUCCEEDED, '"done"', None, 1)
    assert step.settled_at is not None
    assert step.is_lapsed is False
    assert scene.run().news == scene.run().seen + 1


def test_what_an_attempt_said_is_stored_with_its_success(scene: Scene) -> None:
    """T17.5, spec 3.1: the branch that a graph's node chose, with the outcome itself; what a retry had changed is over."""
    scene.dispatch("a")
    scene.claimed()
    scene.try_again(delay_seconds=0.0, override='{"queue":"slow"}')
    scene.advance(1)
    scene.claimed(attempt=2, claim="c2")
    assert scene.succeed(attempt=2, claim="c2", override='{"branch":"yes"}').accepted == (True,)
    assert scene.step().override == '{"branch":"yes"}'

    scene.dispatch("a", run_id="r2")
    scene.claimed(run_id="r2")
    scene.succeed(run_id="r2")
    assert scene.step(run_id="r2").override is None


def test_a_failure_is_stored_and_the_run_woken(scene: Scene) -> None:
    """D2: ``failed`` means exhausted, whatever attempts were left."""
    scene.dispatch("a")
    scene.claimed()
    assert scene.fail() == Settlement(accepted=(True,), wake=True)
    assert (scene.step().status, scene.step().error) == (StepStatus.FAILED, BOOM)


def test_a_failure_with_attempts_left_opens_the_next_attempt(scene: Scene) -> None:
    """D2, T17.4: in the same write: pending, due, nothing left of the failed attempt, which is kept; the run hears nothing."""
    scene.dispatch("a")
    started = scene.claimed().running_at
    before = scene.run()
    assert scene.try_again(delay_seconds=60.0, override='{"queue":"slow"}') == Settlement(accepted=(True,), wake=False)
    step = scene.step()
    assert (step.status, step.attempt, step.result, step.error) == (StepStatus.PENDING, 2, None, None)
    assert (step.is_due, step.override, step.claim_id, step.sent_at) == (False, '{"queue":"slow"}', None, None)
    assert Place.is_queue(step.place)
    assert step.due_in_seconds == pytest.approx(60, abs=5)
    (failed,) = scene.store.list_attempts(RunId("r1"))
    assert (failed.attempt, failed.status, failed.error, failed.running_at) == (1, StepStatus.FAILED, BOOM, started)
    assert failed.settled_at is not None
    assert scene.run().news == before.news


def test_a_retry_without_delay_is_due_at_once(scene: Scene) -> None:
    """D29: a delay of 0 is due as soon as it is written."""
    scene.dispatch("a")
    scene.claimed()
    scene.try_again(delay_seconds=0.0)
    assert scene.step().is_due
    assert scene.claimed(attempt=2, claim="c2").attempt == 2


def test_the_history_is_complete_over_many_attempts(scene: Scene) -> None:
    """I9, T17.8: one row per attempt, in order."""
    scene.dispatch("a")
    for attempt in (1, 2, 3):
        scene.claimed(attempt=attempt, claim=f"c{attempt}")
        scene.try_again(attempt=attempt, claim=f"c{attempt}")
    scene.claimed(attempt=4, claim="c4")
    scene.succeed(attempt=4, claim="c4")
    history = scene.store.list_attempts(RunId("r1"))
    assert [(old.step, old.attempt, old.status) for old in history] == [
        ("a", attempt, StepStatus.FAILED) for attempt in (1, 2, 3)
    ]
    assert scene.step().attempt == 4


def test_a_stale_result_is_refused_and_the_current_one_lands(scene: Scene) -> None:
    """T7.1: the history keeps two attempts, the stale one still ``running``."""
    _taken_over(scene)
    assert scene.succeed(result='"stale"') == Settlement(accepted=(False,), wake=False)
    assert scene.step().status is StepStatus.RUNNING
    assert scene.succeed(attempt=2, claim="c2", result='"current"').accepted == (True,)
    assert scene.step().result == '"current"'
    history = scene.store.list_attempts(RunId("r1"))
    assert [(old.attempt, old.status) for old in history] == [(1, StepStatus.RUNNING)]


def test_a_stale_error_is_refused(scene: Scene) -> None:
    """T7.2: and does not fail the step."""
    _taken_over(scene)
    assert scene.fail().accepted == (False,)
    assert (scene.step().status, scene.step().error) == (StepStatus.RUNNING, None)


def test_a_stale_retry_is_refused(scene: Scene) -> None:
    """T7.2: a superseded worker opens no further attempt."""
    _taken_over(scene)
    assert scene.try_again().accepted == (False,)
    assert (scene.step().attempt, scene.step().status) == (2, StepStatus.RUNNING)


@pytest.mark.parametrize("newer", [StepStatus.SUCCEEDED, StepStatus.FAILED])
@pytest.mark.parametrize("stale", [StepStatus.SUCCEEDED, StepStatus.FAILED, StepStatus.PENDING])
def test_a_stale_write_overwrites_no_newer_outcome(scene: Scene, newer: StepStatus, stale: StepStatus) -> None:
    """T7.4, T7.5: neither a success nor a failure."""
    _taken_over(scene)
    scene.settle(newer, attempt=2, claim="c2", result='"new"', error=BOOM)
    before = scene.step()
    assert scene.settle(stale, result='"stale"', error=BOOM, delay_seconds=0.0) == Settlement(
        accepted=(False,), wake=False
    )
    assert scene.step() == before


def test_the_right_attempt_with_a_foreign_claim_is_refused(scene: Scene) -> None:
    """Design 3.6: fenced by attempt and claim id; either alone does not do."""
    _taken_over(scene)
    assert scene.succeed(attempt=2, claim="c1").accepted == (False,)
    assert scene.succeed(attempt=1, claim="c2").accepted == (False,)
    assert scene.step().status is StepStatus.RUNNING


def test_only_the_current_attempt_ever_lands(scene: Scene) -> None:
    """T7.6: 25 concurrent races between a superseded worker and the current one."""
    for turn in range(25):
        scene.dispatch("a", run_id=f"r{turn}")
        scene.claimed(run_id=f"r{turn}")
    scene.advance(61)
    for turn in range(25):
        run_id = f"r{turn}"
        scene.claimed(claim="c2", run_id=run_id)
        stale, current = race(
            partial(scene.succeed, result='"stale"', run_id=run_id),
            partial(scene.succeed, attempt=2, claim="c2", result='"current"', run_id=run_id),
        )
        assert (stale.accepted, current.accepted) == ((False,), (True,))
        assert scene.step(run_id=run_id).result == '"current"'


def test_an_outcome_and_a_take_over_do_not_both_win(scene: Scene) -> None:
    """T7.6, I5: 25 races between the slow worker's outcome and the claim that takes its step; what lands is whole."""
    for turn in range(25):
        scene.dispatch("a", run_id=f"r{turn}")
        scene.claimed(run_id=f"r{turn}")
    scene.advance(61)
    for turn in range(25):
        run_id = f"r{turn}"
        settled, claims = race(
            partial(scene.succeed, run_id=run_id),
            partial(scene.claim, claim="c2", run_id=run_id),
        )
        assert (settled.accepted == (True,)) is (claims.claimed == ())
        step = scene.step(run_id=run_id)
        landed = (1, StepStatus.SUCCEEDED) if settled.accepted == (True,) else (2, StepStatus.RUNNING)
        assert (step.attempt, step.status) == landed


def test_a_third_claim_fences_out_both_earlier_attempts(scene: Scene) -> None:
    """T7.7: only the last one owns the step."""
    _taken_over(scene)
    scene.advance(61)
    scene.claimed(attempt=2, claim="c3")
    assert scene.succeed(attempt=1, claim="c1").accepted == (False,)
    assert scene.fail(attempt=2, claim="c2").accepted == (False,)
    assert scene.succeed(attempt=3, claim="c3").accepted == (True,)


def test_a_lapsed_claim_that_nobody_took_still_lands(scene: Scene) -> None:
    """D24: a lapse alone takes nothing away; the step was done once."""
    scene.dispatch("a")
    scene.claimed()
    scene.advance(600)
    assert scene.succeed().accepted == (True,)


@pytest.mark.parametrize("status", [StepStatus.SUCCEEDED, StepStatus.FAILED, StepStatus.PENDING])
def test_the_same_outcome_twice_is_stored_once(scene: Scene, status: StepStatus) -> None:
    """D24: the answer was lost; the second finds its own claim, counts as landed and tells the run only once."""
    scene.dispatch("a")
    scene.claimed()
    for _ in range(2):
        settled = scene.settle(status, result='"done"', error=BOOM, delay_seconds=5.0)
        assert settled == Settlement(accepted=(True,), wake=status is not StepStatus.PENDING)
    assert scene.run().news == scene.run().seen + (0 if status is StepStatus.PENDING else 1)
    assert scene.step().attempt == (2 if status is StepStatus.PENDING else 1)


def test_an_outcome_of_an_unknown_step_is_refused(scene: Scene) -> None:
    """T17.3: an unknown step or run takes no outcome."""
    assert scene.succeed(run_id="unknown") == Settlement(accepted=(False,), wake=False)
    scene.dispatch("a")
    assert scene.succeed("b").accepted == (False,)


def test_an_outcome_without_a_claim_is_refused(scene: Scene) -> None:
    """A step that nobody claimed has no outcome."""
    scene.dispatch("a")
    assert scene.succeed().accepted == (False,)
    assert scene.step().status is StepStatus.SCHEDULED


def test_outcomes_of_a_chunk_are_fenced_one_by_one(scene: Scene) -> None:
    """Design 2: each member is a step with its own fence; the run is woken once."""
    scene.dispatch("a[0]", "a[1]", "a[2]")
    scene.claim_all((("a[0]", 1), ("a[1]", 1)))
    outcomes = [
        StepOutcome(
            name=StepName(f"a[{index}]"), attempt=1, claim_id=ClaimId("c1"), status=StepStatus.SUCCEEDED, result="1"
        )
        for index in range(3)
    ]
    settled = scene.store.settle_steps(RunId("r1"), outcomes)
    assert settled == Settlement(accepted=(True, True, False), wake=True)


def test_only_the_first_unseen_news_wakes_the_run(scene: Scene) -> None:
    """Design 3.5: a wake-up is published if there was no unseen news before it."""
    scene.dispatch("a", "b")
    scene.claimed("a")
    scene.claimed("b", claim="c2")
    assert scene.succeed("a").wake is True
    assert scene.succeed("b", claim="c2").wake is False
    assert scene.run().news == scene.run().seen + 2


def test_a_held_run_is_not_woken(scene: Scene) -> None:
    """Design 3.5: a live pass sees the news when it closes."""
    scene.dispatch("a")
    scene.claimed()
    scene.open(by="p2")
    assert scene.succeed() == Settlement(accepted=(True,), wake=False)


def test_a_run_whose_pass_lapsed_is_woken(scene: Scene) -> None:
    """Design 3.5: a dead pass will close nothing."""
    scene.dispatch("a", lease_seconds=300.0)
    scene.claimed()
    scene.open(by="p2")
    scene.advance(31)
    assert scene.succeed().wake is True


def test_either_the_closer_or_the_worker_wakes_the_run(scene: Scene) -> None:
    """Design 3.5: 25 races between a closing pass and an outcome; exactly one of the two wakes the run, and it is never missed."""
    for turn in range(25):
        run_id = scene.dispatch("a", run_id=f"r{turn}")
        scene.claimed(run_id=run_id)
        scene.open(run_id, "p2")
        closed, settled = race(
            partial(scene.park, scene.ref(run_id, "p2")),
            partial(scene.succeed, run_id=run_id),
        )
        assert [closed.wake, settled.wake].count(True) == 1


def test_an_outcome_of_a_settled_run_is_kept_and_wakes_nobody(scene: Scene) -> None:
    """I6: the step was done; the run has ended."""
    scene.dispatch("a")
    scene.claimed()
    scene.open(by="p2")
    scene.close(scene.ref(by="p2"), status=RunStatus.FAILED, error=BOOM)
    before = scene.run()
    assert scene.succeed().wake is False
    assert scene.step().status is StepStatus.SUCCEEDED
    assert scene.run() == before


def test_an_outcome_of_a_stopped_run_is_kept_and_wakes_it(scene: Scene) -> None:
    """Design 3.7: an unwind waits for live claims; their outcomes decide what is undone."""
    scene.dispatch("a")
    scene.claimed()
    scene.stop()
    assert scene.succeed() == Settlement(accepted=(True,), wake=True)


def test_only_the_last_member_of_a_fan_wakes_the_run(scene: Scene) -> None:
    """Design 2: the counter is set with the rows; a failure settles its member like a success, a retry does not."""
    names = ("m[0]", "m[1]", "m[2]")
    scene.dispatch(*names, joined=True, fan_id=FanId("f1"))
    for index, name in enumerate(names):
        scene.claimed(name, claim=f"c{index}")
    before = scene.run().news
    assert scene.succeed("m[0]", claim="c0").wake is False
    assert scene.try_again("m[2]", claim="c2").wake is False
    assert scene.fail("m[1]", claim="c1").wake is False
    assert scene.run().news == before
    scene.claimed("m[2]", 2, "c9")
    assert scene.succeed("m[2]", 2, "c9").wake is True
    assert scene.run().news == before + 1


def test_a_member_that_ran_out_of_workers_counts_down(scene: Scene) -> None:
    """Design 2: a step that a claim fails is a settled member, too."""
    scene.dispatch("m[0]", "m[1]", joined=True, fan_id=FanId("f1"), retries=0)
    scene.claimed("m[0]")
    scene.claimed("m[1]", claim="c2", holder="node:3")
    scene.succeed("m[0]")
    scene.advance(61)
    assert scene.claim("m[1]", 1, "c3").wake is True


def test_a_member_that_a_pass_settles_counts_down(scene: Scene) -> None:
    """Design 2: whoever settles a member takes the counter down, so that there is a last one."""
    scene.dispatch("m[0]", "m[1]", joined=True, fan_id=FanId("f1"))
    scene.open(by="p2")
    scene.write(scene.ref(by="p2"), StepStatus.FAILED, "m[0]", error=BOOM, step={"fan_id": FanId("f1")})
    scene.park(scene.ref(by="p2"))
    scene.claimed("m[1]")
    assert scene.succeed("m[1]").wake is True


def test_rows_of_a_fan_that_is_not_joined_each_tell_the_run(scene: Scene) -> None:
    """Design 2: submits whose ends matter one by one have no counter."""
    scene.dispatch("a", "b", fan_id=FanId("f1"))
    scene.claimed("a")
    assert scene.succeed("a").wake is True


def test_two_fans_count_apart(scene: Scene) -> None:
    """A run may have several maps in flight."""
    ref = scene.begin()
    scene.insert_steps(ref, "m[0]", joined=True, fan_id=FanId("f1"))
    scene.insert_steps(ref, "n[0]", "n[1]", joined=True, fan_id=FanId("f2"))
    scene.park(ref)
    scene.claimed("n[0]")
    assert scene.succeed("n[0]").wake is False
    scene.claimed("m[0]", claim="c2")
    assert scene.succeed("m[0]", claim="c2").wake is True


def test_the_counter_reaches_zero_exactly_once(scene: Scene) -> None:
    """Design 2: 25 races of four last members; one of them is last (seen no one last 1,499 times in 1,500)."""
    names = [f"m[{index}]" for index in range(4)]
    for turn in range(25):
        run_id = f"r{turn}"
        scene.dispatch(*names, run_id=run_id, joined=True, fan_id=FanId("f"))
        for name in names:
            scene.claimed(name, claim=name, run_id=run_id)
        settled = race(*[partial(scene.succeed, name, claim=name, run_id=run_id) for name in names])
        assert [answer.wake for answer in settled].count(True) == 1
        assert scene.run(run_id).news == scene.run(run_id).seen + 1


def test_chunks_that_settle_in_opposite_orders_do_not_block_each_other(scene: Scene) -> None:
    """Lock order: outcomes of one run lock its row first, whatever the order of the steps."""
    names = [f"m[{index}]" for index in range(6)]
    for turn in range(10):
        run_id = f"r{turn}"
        scene.dispatch(*names, run_id=run_id, joined=True, fan_id=FanId("f"))
        for name in names:
            scene.claimed(name, claim=name, run_id=run_id)
        outcomes = [
            StepOutcome(name=StepName(name), attempt=1, claim_id=ClaimId(name), status=StepStatus.SUCCEEDED, result="1")
            for name in names
        ]
        answers = race(
            partial(scene.store.settle_steps, RunId(run_id), outcomes),
            partial(scene.store.settle_steps, RunId(run_id), outcomes[::-1]),
        )
        assert all(itertools.chain.from_iterable(answer.accepted for answer in answers))
        assert scene.run(run_id).news == scene.run(run_id).seen + 1


def test_a_run_that_has_settled_gets_no_further_attempt(scene: Scene) -> None:
    """Design 3.7: nobody would work it; the step ends failed with the error it had, also when the answer was lost and it is told again."""
    scene.dispatch("a")
    scene.claimed()
    scene.open(by="p2")
    scene.close(scene.ref(by="p2"), status=RunStatus.FAILED, error=BOOM)
    assert scene.try_again(delay_seconds=5.0) == Settlement(accepted=(True,), wake=False)
    assert scene.try_again(delay_seconds=5.0) == Settlement(accepted=(True,), wake=False)
    assert (scene.step().status, scene.step().error, scene.step().attempt) == (StepStatus.FAILED, BOOM, 2)
    assert [attempt.status for attempt in scene.store.list_attempts(RunId("r1"))] == [StepStatus.FAILED]
    scene.advance(60)
    assert scene.undispatched() == []
