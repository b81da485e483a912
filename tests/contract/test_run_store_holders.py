"""What a process holds: renewing it while it lives, expiring it at once when it is dead (design 3.9)."""

from __future__ import annotations

from pikkuflow.domain.act import ClaimRefusal, Expired, PassRefusal, Renewed
from pikkuflow.domain.history import History
from pikkuflow.domain.ids import Holder, RunId, StepName
from pikkuflow.domain.status import RunStatus, StepStatus
from tests.contract.scene import Scene

_DEAD = Holder("node-a:1")


def test_a_dead_process_loses_its_pass_at_once(scene: Scene) -> None:
    """Design 3.9: another pass opens without waiting for the time to run out, and knows that one was lost."""
    scene.insert()
    scene.open(holder=_DEAD)
    expired = scene.store.expire_holder(_DEAD)
    assert [ref.id for ref in expired.runs] == ["r1"]
    assert [(ref.run_id, ref.pass_id) for ref in expired.passes] == [("r1", "p1")]
    assert expired.steps == ()
    assert scene.open(by="p2").run.lost is True


def test_a_dead_process_loses_its_claims_at_once(scene: Scene) -> None:
    """Design 3.8, 3.9: the row stays running, its message goes out again with the same attempt, and the claim counts it."""
    scene.dispatch("a", options='{"priority":3}')
    scene.claimed(holder=_DEAD)
    expired = scene.store.expire_holder(_DEAD)
    assert (expired.runs, expired.passes) == ((), ())
    (message,) = expired.steps
    assert (message.run_id, message.name, message.attempt, message.task) == ("r1", "a", 1, "shop.pack")
    assert (message.queue, message.options) == ("packers", '{"priority":3}')
    assert (scene.step().status, scene.step().is_lapsed) == (StepStatus.RUNNING, True)
    assert scene.claimed(claim="c2").attempt == 2


def test_only_what_the_dead_process_held_expires(scene: Scene) -> None:
    """Design 3.9: compared by holder, never by key, so another attempt is left alone."""
    scene.dispatch("a", "b")
    scene.claimed("a", holder=_DEAD)
    scene.claimed("b", claim="c2", holder="node-a:11")
    scene.open(by="p2", holder="node-a:12")
    assert [message.name for message in scene.store.expire_holder(_DEAD).steps] == ["a"]
    assert scene.refusal("b", claim="c3") is ClaimRefusal.HELD
    assert scene.try_open(by="p3") is PassRefusal.HELD


def test_a_step_that_was_taken_over_is_not_expired_by_its_old_holder(scene: Scene) -> None:
    """Design 3.9: the holder of the current attempt is what counts."""
    scene.dispatch("a")
    scene.claimed(holder=_DEAD)
    scene.advance(61)
    scene.claimed(claim="c2", holder="node-b:1")
    assert scene.store.expire_holder(_DEAD) == Expired()
    assert scene.refusal(attempt=2, claim="c3") is ClaimRefusal.HELD


def test_a_process_that_holds_nothing_loses_nothing(scene: Scene) -> None:
    """A settled step and a closed pass are nobody's."""
    scene.dispatch("a")
    scene.claimed(holder=_DEAD)
    scene.succeed()
    scene.open(by="p2", holder=_DEAD)
    scene.park(scene.ref(by="p2"))
    assert scene.store.expire_holder(_DEAD) == Expired()


def test_a_dead_node_loses_what_all_its_processes_held(scene: Scene) -> None:
    """Design 3.9: by node uuid; a node whose name only begins alike is another one."""
    scene.dispatch("a", "b", "c")
    scene.claimed("a", claim="c1", holder="node-a:1")
    scene.claimed("b", claim="c2", holder="node-a:2")
    scene.claimed("c", claim="c3", holder="node-ab:1")
    scene.begin("r2", "p2")
    scene.store.expire_holder(Holder("node:1"))
    scene.open("r2", "p3", holder="node-a:3")
    expired = scene.store.expire_node("node-a")
    assert sorted(message.name for message in expired.steps) == ["a", "b"]
    assert [ref.id for ref in expired.runs] == ["r2"]
    assert scene.refusal("c", claim="c9") is ClaimRefusal.HELD


def test_a_node_name_is_no_pattern(scene: Scene) -> None:
    """Names with ``%`` or ``_`` in them match themselves only."""
    scene.dispatch("a")
    scene.claimed(holder="nodeXa:1")
    assert scene.store.expire_node("node_a") == Expired()
    assert scene.store.expire_node("%") == Expired()


def test_renewal_keeps_a_slow_worker_in_possession(scene: Scene) -> None:
    """T6.4: the claim lives on past its lease, by its row's own length; the pass by the length given."""
    scene.dispatch("a", lease_seconds=60.0)
    scene.claimed(holder=_DEAD)
    scene.open(by="p2", holder=_DEAD, lease=60.0)
    for _ in range(3):
        scene.advance(50)
        renewed = scene.store.renew_holders([_DEAD], 60.0)
        assert [(ref.run_id, ref.pass_id) for ref in renewed.passes] == [("r1", "p2")]
        assert renewed.claims == ((RunId("r1"), StepName("a")),)
    assert scene.refusal(claim="c2") is ClaimRefusal.HELD
    assert scene.try_open(by="p3") is PassRefusal.HELD


def test_renewal_is_for_the_living_only(scene: Scene) -> None:
    """Design 3.9: what others hold lapses as before."""
    scene.dispatch("a")
    scene.claimed(holder=_DEAD)
    scene.open(by="p2", holder=_DEAD)
    scene.advance(29)
    assert scene.store.renew_holders([Holder("node-b:1")], 30.0) == Renewed()
    assert scene.store.renew_holders([], 30.0) == Renewed()
    scene.advance(32)
    assert scene.claimed(claim="c2").attempt == 2
    assert isinstance(scene.try_open(by="p3"), History)


def test_what_lapsed_and_was_not_taken_is_extended(scene: Scene) -> None:
    """Design 3.1: a process that was frozen for a while goes on with what is still its own."""
    scene.dispatch("a")
    scene.claimed(holder=_DEAD)
    scene.open(by="p2", holder=_DEAD)
    scene.advance(120)
    assert scene.store.renew_holders([_DEAD], 30.0).claims == ((RunId("r1"), StepName("a")),)
    assert scene.step().is_lapsed is False
    assert scene.try_open(by="p3") is PassRefusal.HELD


def test_a_stale_attempt_cannot_renew_its_successors_claim(scene: Scene) -> None:
    """T6.12, T7.3: the old holder extends nothing; the current one does."""
    scene.dispatch("a")
    scene.claimed(holder=_DEAD)
    scene.advance(61)
    scene.claimed(claim="c2", holder="node-b:1")
    scene.advance(50)
    assert scene.store.renew_holders([_DEAD], 30.0).claims == ()
    scene.advance(11)
    assert scene.step().is_lapsed is True
    assert scene.store.renew_holders([Holder("node-b:1")], 30.0).claims == ((RunId("r1"), StepName("a")),)
    assert scene.step().is_lapsed is False


def test_a_renewal_after_the_outcome_touches_no_row(scene: Scene) -> None:
    """D32: guarded by the running status."""
    scene.dispatch("a")
    scene.claimed(holder=_DEAD)
    scene.succeed()
    scene.open(by="p2", holder=_DEAD)
    scene.close(scene.ref(by="p2"), status=RunStatus.COMPLETED, output="1")
    before = (scene.step(), scene.run())
    assert scene.store.renew_holders([_DEAD], 30.0) == Renewed()
    assert (scene.step(), scene.run()) == before


def test_one_renewal_serves_many_processes(scene: Scene) -> None:
    """Design 7: in prefork the main process renews for all its children."""
    for index in range(3):
        scene.insert(f"r{index}")
        scene.open(f"r{index}", f"p{index}", holder=f"node-a:{index}")
    renewed = scene.store.renew_holders([Holder("node-a:0"), Holder("node-a:2")], 30.0)
    assert sorted(ref.run_id for ref in renewed.passes) == ["r0", "r2"]
