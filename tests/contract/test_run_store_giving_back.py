"""Giving back claimed steps whose work never began: the rest of a chunk that ended early (design 3.6)."""

from __future__ import annotations

from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.domain.step import Place
from tests.contract.scene import BOOM, Scene


def test_a_claimed_step_that_never_began_is_given_back_without_an_attempt(scene: Scene) -> None:
    """Design 3.6: it waits again, due at once, with its attempt; the one at work keeps its claim, and the run hears nothing."""
    scene.dispatch("a", "b", "c")
    scene.claim_all((("a", 1), ("b", 1)))
    before = scene.run()
    (message,) = scene.give_back("b")
    assert (message.name, message.attempt, message.task, message.queue) == ("b", 1, "shop.pack", "packers")
    assert scene.give_back("b") == (message,)
    step = scene.step("b")
    assert (step.status, step.attempt, step.is_due, step.claim_id) == (StepStatus.PENDING, 1, True, None)
    assert (step.place, step.running_at, step.lease_until) == (Place.QUEUE, None, None)
    assert (scene.step("a").status, scene.step("c").status) == (StepStatus.RUNNING, StepStatus.SCHEDULED)
    assert scene.store.list_attempts(RunId("r1")) == ()
    assert scene.run().news == before.news
    assert scene.claimed("b", claim="c2").attempt == 1


def test_a_step_that_was_given_back_is_sent_again_by_sweeps(scene: Scene) -> None:
    """The message may be lost as any other; until then nobody sends it twice."""
    scene.dispatch("a")
    scene.claimed()
    scene.give_back("a")
    assert scene.undispatched() == []
    scene.advance(31)
    assert scene.undispatched() == [("a", 1)]


def test_only_the_claim_gives_back_what_it_has(scene: Scene) -> None:
    """Fenced as outcomes are: not another's claim, nor another attempt, nor what is settled or was never claimed."""
    scene.dispatch("a")
    scene.claimed()
    scene.advance(61)
    scene.claimed(claim="c2")
    scene.dispatch("a", "b", run_id="r2")
    scene.claimed(run_id="r2")
    scene.succeed(run_id="r2")
    assert scene.give_back("a") == ()
    assert scene.give_back("a", claim="c2", attempt=1) == ()
    assert scene.give_back("a", "b", "unknown", run_id="r2") == ()
    assert scene.give_back("a", run_id="unknown") == ()
    assert (scene.step().status, scene.step().attempt) == (StepStatus.RUNNING, 2)
    assert scene.step("a", run_id="r2").status is StepStatus.SUCCEEDED
    (message,) = scene.give_back("a", claim="c2", attempt=2)
    assert message.attempt == 2


def test_a_step_that_is_given_back_to_a_settled_run_ends_with_it(scene: Scene) -> None:
    """Design 3.7: cancelled, for it never started; failed when an earlier attempt did. There is nothing to send."""
    scene.dispatch("a", "b")
    scene.claimed("a")
    scene.try_again(delay_seconds=0.0)
    scene.claimed("a", attempt=2, claim="c2")
    scene.claimed("b", claim="c2")
    scene.open(by="p2")
    scene.close(scene.ref(by="p2"), status=RunStatus.FAILED, error=BOOM)
    assert scene.give_back("a", claim="c2", attempt=2) == ()
    assert scene.give_back("b", claim="c2") == ()
    assert (scene.step("a").status, scene.step("a").error) == (StepStatus.FAILED, BOOM)
    assert scene.step("b").status is StepStatus.CANCELLED
