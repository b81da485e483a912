"""Claiming a dispatched step: the table of spec 16.2 by one conditional update (design 3.6)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from pikkuflow.domain.act import ClaimRefusal, Claims
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import RunStatus, StepStatus, SuspendCode
from pikkuflow.domain.step import Place
from tests.contract.scene import BOOM, Scene, race


def test_a_scheduled_step_is_claimed(scene: Scene) -> None:
    """Spec 16.2, T17.16: running under the claim, for the row's own lease; the run comes along."""
    scene.dispatch("a", lease_seconds=45.0)
    claims = scene.claim("a", holder="node:7")
    assert claims.run is not None
    assert (claims.run.id, claims.run.workflow, claims.wake, claims.refused) == ("r1", "shop.order", False, ())
    (step,) = claims.claimed
    assert (step.status, step.attempt, step.claim_id, step.place) == (
        StepStatus.RUNNING,
        1,
        "c1",
        Place.worker("node:7"),
    )
    assert step.running_at is not None
    assert step.lease_until is not None
    assert 40 <= (step.lease_until - step.running_at).total_seconds() <= 50
    assert step == scene.step()


def test_a_step_is_claimed_before_it_is_marked_as_sent(scene: Scene) -> None:
    """Spec 16.5, T17.16: the message may be faster than the write that closes the pass."""
    scene.insert_steps(scene.begin(), "a")
    assert scene.claimed().status is StepStatus.RUNNING


def test_a_live_claim_excludes_a_second_dispatch(scene: Scene) -> None:
    """T6.1: and the refused message changes nothing."""
    scene.dispatch("a")
    scene.claimed()
    before = scene.step()
    assert scene.refusal(claim="c2") is ClaimRefusal.HELD
    assert scene.step() == before


def test_claiming_again_is_the_same_claim(scene: Scene) -> None:
    """D24: the answer was lost and the claim is asked for again; it is still this one and this attempt."""
    scene.dispatch("a")
    first = scene.claimed()
    assert scene.claimed().attempt == first.attempt
    assert scene.store.list_attempts(RunId("r1")) == ()


def test_one_of_two_claims_wins(scene: Scene) -> None:
    """T17.16: 25 races over a scheduled step; exactly one of two messages gets it."""
    for turn in range(25):
        run_id = scene.dispatch("a", run_id=f"r{turn}")
        answers: list[Claims] = race(*[partial(scene.claim, claim=f"c{n}", run_id=run_id) for n in range(2)])
        assert sorted(len(answer.claimed) for answer in answers) == [0, 1]
        assert [answer.refused[0][1] for answer in answers if answer.refused] == [ClaimRefusal.HELD]
        assert scene.step(run_id=run_id).attempt == 1


def test_one_of_two_claims_takes_a_lapsed_step(scene: Scene) -> None:
    """T17.16, T7.6: 25 races over a lapsed claim; one attempt more, never two."""
    for turn in range(25):
        scene.dispatch("a", run_id=f"r{turn}")
        scene.claimed(run_id=f"r{turn}")
    scene.advance(61)
    for turn in range(25):
        run_id = f"r{turn}"
        answers: list[Claims] = race(*[partial(scene.claim, claim=f"d{n}", run_id=run_id) for n in range(2)])
        assert sorted(len(answer.claimed) for answer in answers) == [0, 1]
        assert scene.step(run_id=run_id).attempt == 2


def test_a_lapsed_claim_is_taken_as_a_new_attempt(scene: Scene) -> None:
    """T6.2, T6.5: after the worker died the step is claimable, attempt 2; the message names the attempt that was lost."""
    scene.dispatch("a")
    scene.claimed()
    scene.advance(61)
    step = scene.claimed(claim="c2", holder="node:3")
    assert (step.attempt, step.status, step.claim_id, step.is_lapsed) == (2, StepStatus.RUNNING, "c2", False)
    (lost,) = scene.store.list_attempts(RunId("r1"))
    assert (lost.attempt, lost.status, lost.place) == (1, StepStatus.RUNNING, Place.worker("node:2"))


def test_a_claim_that_took_a_lapsed_step_may_ask_again(scene: Scene) -> None:
    """D24: the repeat names the old attempt and finds its own claim on the new one."""
    scene.dispatch("a")
    scene.claimed()
    scene.advance(61)
    assert scene.claimed(claim="c2").attempt == 2
    assert scene.claimed(claim="c2").attempt == 2
    assert len(scene.store.list_attempts(RunId("r1"))) == 1


def test_attempts_run_out_with_lost_workers(scene: Scene) -> None:
    """T6.6, T6.7, I3: a worker lost on every attempt; the step fails, says so, and the run is woken once."""
    scene.dispatch("a", retries=1)
    scene.claimed()
    scene.advance(61)
    scene.claimed(claim="c2")
    scene.advance(61)
    before = scene.run()
    claims = scene.claim("a", 2, "c3")
    assert (claims.claimed, claims.refused, claims.wake) == ((), (("a", ClaimRefusal.EXHAUSTED),), True)
    step = scene.step()
    assert (step.status, step.attempt) == (StepStatus.FAILED, 2)
    assert step.error is not None
    assert step.error.code == "STEP_LEASE_EXPIRED"
    assert "lease" in step.error.message
    assert scene.run().news == before.news + 1
    late = scene.claim("a", 2, "c4")
    assert (late.refused, late.wake) == ((("a", ClaimRefusal.SETTLED),), False)


def test_a_step_without_retries_never_starts_twice(scene: Scene) -> None:
    """D10: ``retries=0`` and a lost worker is the end of the step."""
    scene.dispatch("a", retries=0)
    scene.claimed()
    scene.advance(61)
    assert scene.refusal(claim="c2") is ClaimRefusal.EXHAUSTED
    assert (scene.step().status, scene.step().attempt) == (StepStatus.FAILED, 1)


def test_an_exhausted_step_of_a_held_run_wakes_nobody(scene: Scene) -> None:
    """Design 3.5: the live pass sees the news when it closes."""
    scene.dispatch("a", retries=0)
    scene.claimed()
    scene.advance(61)
    scene.open(by="p2")
    assert scene.claim("a", 1, "c2").wake is False
    assert scene.park(scene.ref(by="p2")).wake is True


def test_a_failed_step_is_not_claimed(scene: Scene) -> None:
    """T6.3: a redelivery never grants extra attempts."""
    scene.dispatch("a", retries=0)
    scene.claimed()
    scene.fail()
    before = scene.step()
    assert scene.refusal(claim="c2") is ClaimRefusal.SETTLED
    assert scene.step() == before


def test_a_succeeded_step_is_not_claimed(scene: Scene) -> None:
    """I4, T17.16: a succeeded step is never worked again, not even by its own claim's message."""
    scene.dispatch("a")
    scene.claimed()
    scene.succeed()
    assert scene.refusal(claim="c2") is ClaimRefusal.SETTLED
    assert scene.refusal(claim="c1") is ClaimRefusal.SETTLED


def test_a_retry_is_claimed_once_it_is_due(scene: Scene) -> None:
    """D2, design 3.6: the message of the next attempt; not before its time, and never by the old message."""
    scene.dispatch("a")
    scene.claimed()
    scene.try_again(delay_seconds=60.0)
    assert scene.refusal(attempt=2, claim="c2") is ClaimRefusal.NOT_DUE
    scene.advance(61)
    assert scene.refusal(attempt=1, claim="c2") is ClaimRefusal.STALE
    step = scene.claimed(attempt=2, claim="c2")
    assert (step.attempt, step.status, step.error) == (2, StepStatus.RUNNING, None)


def test_a_countdown_is_kept(scene: Scene) -> None:
    """Design 1: ``countdown`` of a step's signature is a column."""
    scene.dispatch("a", delay_seconds=60.0)
    assert scene.refusal() is ClaimRefusal.NOT_DUE
    scene.advance(61)
    assert scene.claimed().attempt == 1


def test_a_message_of_another_attempt_is_stale(scene: Scene) -> None:
    """Design 3.6: messages carry the attempt, and a claim needs the same."""
    scene.dispatch("a")
    assert scene.refusal(attempt=2) is ClaimRefusal.STALE
    scene.claimed()
    assert scene.refusal(attempt=3, claim="c2") is ClaimRefusal.STALE


def test_a_row_that_a_pass_works_is_not_claimed(scene: Scene) -> None:
    """D1: the row says where its step is worked; a message for it is stale."""
    ref = scene.begin()
    scene.write(ref, StepStatus.RUNNING)
    before = scene.step()
    assert scene.refusal() is ClaimRefusal.STALE
    assert scene.step() == before


def test_another_task_is_refused_before_any_write(scene: Scene) -> None:
    """T6.15, T17.16: also when the claim would have been refused for another reason, and when no task was recorded."""
    scene.dispatch("a")
    before = scene.step()
    assert scene.refusal(task="shop.evil") is ClaimRefusal.MISMATCH
    assert scene.step() == before


def test_a_row_without_a_task_matches_none(scene: Scene) -> None:
    """T6.15: null counts as recorded."""
    scene.dispatch("a", task=None)
    assert scene.refusal(task="shop.pack") is ClaimRefusal.MISMATCH
    assert scene.step().attempt == 1


def test_an_unknown_step_or_run_is_missing(scene: Scene) -> None:
    """A message may outlive what it was about."""
    assert scene.claim("a", run_id="unknown").run is None
    scene.dispatch("a")
    assert scene.refusal("b") is ClaimRefusal.MISSING


@pytest.mark.parametrize(
    "closing",
    [
        {"status": RunStatus.SUSPENDED, "code": SuspendCode.TASK_NOT_FOUND, "error": BOOM},
        {"status": None},
    ],
    ids=["suspended", "compensating"],
)
def test_a_step_of_a_run_that_does_not_run_is_not_claimed(scene: Scene, closing: dict[str, Any]) -> None:
    """Design 3.6: a claim needs a run that is running."""
    scene.dispatch("a")
    scene.open(by="p2")
    scene.close(scene.ref(by="p2"), **closing)
    if closing["status"] is None:
        scene.stop()
    before = scene.step()
    assert scene.refusal() is ClaimRefusal.STOPPED
    assert scene.step() == before


def test_an_expired_step_fails_without_running(scene: Scene) -> None:
    """Design 1: ``expires`` of the signature is a column; the run is told."""
    scene.dispatch("a", expires_seconds=30.0)
    assert scene.step().is_expired is False
    assert scene.step().expires_in_seconds == pytest.approx(30, abs=2)
    scene.advance(31)
    assert scene.step().is_expired
    assert scene.step().expires_in_seconds == pytest.approx(-1, abs=2)
    claims = scene.claim()
    assert (claims.claimed, claims.refused, claims.wake) == ((), (("a", ClaimRefusal.EXPIRED),), True)
    step = scene.step()
    assert (step.status, step.attempt, step.running_at) == (StepStatus.FAILED, 1, None)
    assert step.error is not None


def test_a_step_that_was_taken_in_time_does_not_expire(scene: Scene) -> None:
    """``expires`` is about waiting, not about working."""
    scene.dispatch("a", expires_seconds=30.0)
    scene.claimed()
    scene.advance(31)
    assert scene.succeed().accepted == (True,)


def test_a_chunk_is_claimed_together(scene: Scene) -> None:
    """Design 2: members of one message, each a step with its own refusal."""
    scene.dispatch("a[0]", "a[1]", "a[2]")
    scene.claimed("a[1]", claim="other")
    claims = scene.claim_all((("a[0]", 1), ("a[1]", 1), ("a[2]", 1), ("a[3]", 1)))
    assert [step.name for step in claims.claimed] == ["a[0]", "a[2]"]
    assert dict(claims.refused) == {"a[1]": ClaimRefusal.HELD, "a[3]": ClaimRefusal.MISSING}


def test_what_a_retry_changed_holds_for_the_next_attempt_only(scene: Scene) -> None:
    """Design 1: ``retry(args=…, queue=…)``: the next attempt sees it, the one after a lost worker does not."""
    scene.dispatch("a")
    scene.claimed()
    scene.try_again(override='{"args":[7]}')
    assert scene.claimed(attempt=2, claim="c2").override == '{"args":[7]}'
    scene.try_again(attempt=2, claim="c2")
    assert scene.claimed(attempt=3, claim="c3").override is None
