"""How long one attempt may take: counted from its claim, by the store's clock, and found by hints and sweeps (issue D)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pikkuflow.domain.act import EndedAttempt, PassNews, PassRef
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.status import StepStatus
from pikkuflow.domain.step import Place
from pikkuflow.domain.stop import Beat
from tests.contract.scene import BOOM, Scene


def test_a_claim_is_due_when_the_time_of_its_attempt_is_over(scene: Scene) -> None:
    """Each attempt has its own; a step without a timeout has none."""
    scene.dispatch("a", timeout_seconds=10.0)
    row = scene.claimed("a")
    assert row.timeout_seconds == 10.0
    assert row.due_at is not None
    assert not row.is_overdue
    scene.advance(11)
    assert scene.step("a").is_overdue
    assert not scene.step("a").is_lapsed
    scene.try_again("a")
    assert not scene.step("a").is_overdue
    assert scene.claimed("a", 2, claim="c2").due_at is not None
    scene.succeed("a", 2, claim="c2")
    assert scene.step("a").due_at is None
    scene.dispatch("b", run_id="r2")
    assert scene.claimed("b", run_id="r2").due_at is None


def test_an_overdue_attempt_wakes_its_run_and_is_not_sent_again(scene: Scene) -> None:
    """Design 4: the scheduled sweep alone would do; the claim lives, so a message would be refused."""
    scene.dispatch("a", timeout_seconds=10.0)
    scene.claimed("a")
    assert scene.store.sweep_scheduled(scene.sweep(0)).runs == ()
    assert [due.run_id for due in scene.store.upcoming(60.0, 10).due] == ["r1"]
    scene.advance(11)
    swept = scene.store.sweep_scheduled(scene.sweep(0))
    assert [ref.id for ref in swept.runs] == ["r1"]
    assert swept.steps == ()
    assert scene.undispatched() == []


def _end_first_attempt(scene: Scene, ref: PassRef) -> PassNews | None:
    """What a pass writes that found the first attempt overdue."""
    return scene.write(
        ref,
        StepStatus.PENDING,
        attempt=2,
        expects=1,
        delay_seconds=5.0,
        ended=EndedAttempt(attempt=1, status=StepStatus.FAILED, error=BOOM),
        step={"place": Place.QUEUE},
    )


def test_a_pass_may_end_an_attempt_that_a_worker_has(scene: Scene) -> None:
    """Scenario 08: the next attempt in one write; the claim's outcome is refused, and the attempt is kept as it ended."""
    scene.dispatch("a", timeout_seconds=10.0)
    scene.claimed("a")
    scene.advance(11)
    scene.open(by="p2")
    ref = scene.ref(by="p2")
    news = _end_first_attempt(scene, ref)
    assert news is not None
    assert news.written
    scene.park(ref)
    assert scene.succeed("a").accepted == (False,)
    (first,) = scene.store.list_attempts(ref.run_id)
    assert (first.attempt, first.status, first.error, first.step) == (1, StepStatus.FAILED, BOOM, StepName("a"))
    scene.advance(6)
    swept = scene.store.sweep_scheduled(scene.sweep(0))
    assert [(message.name, message.attempt) for message in swept.steps] == [("a", 2)]
    assert scene.claimed("a", 2, claim="c2").timeout_seconds == 10.0


def test_a_pass_that_read_an_earlier_attempt_leaves_the_next_one_alone(scene: Scene) -> None:
    """Design 3.3: the worker was in time after all to open the next attempt, and another one has it."""
    scene.dispatch("a", timeout_seconds=10.0)
    scene.claimed("a")
    scene.advance(11)
    scene.open(by="p2")
    scene.try_again("a")
    scene.claimed("a", 2, claim="c2")
    before = scene.step("a")
    news = _end_first_attempt(scene, scene.ref(by="p2"))
    assert news is not None
    assert not news.written
    after = scene.step("a")
    assert (after.status, after.attempt, after.due_at) == (before.status, before.attempt, before.due_at)
    assert scene.succeed("a", 2, claim="c2").accepted == (True,)


def test_a_heartbeat_begins_the_time_anew_within_the_attempts_own(scene: Scene) -> None:
    """A question is no heartbeat; the time that the attempt may take goes on."""
    scene.dispatch("a", timeout_seconds=12.0, heartbeat_seconds=5.0)
    scene.claimed("a")

    def left() -> float:
        seconds = scene.step("a").due_in_seconds
        assert seconds is not None
        return seconds

    assert left() == pytest.approx(5, abs=1)
    scene.advance(4)
    ask = Beat(run_id=RunId("r1"), step=StepName("a"), attempt=1)
    scene.store.beat(ask)
    assert left() == pytest.approx(1, abs=1)
    assert scene.step("a").is_silent
    scene.store.beat(replace(ask, lives=True, details="1"))
    assert left() == pytest.approx(5, abs=1)
    scene.advance(4)
    scene.store.beat(replace(ask, lives=True))
    assert left() == pytest.approx(4, abs=1)
    assert not scene.step("a").is_silent
    assert scene.step("a").details == "1"
