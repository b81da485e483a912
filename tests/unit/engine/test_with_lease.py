"""Doing something while holding a lease (spec 6.1): what only a clock that is moved can show."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from pikkuflow.adapters.memory import MemoryLeases, MovableClock
from pikkuflow.engine.with_lease import HeldLease, with_lease
from pikkuflow.errors import LeaseLost

_TTL_SECONDS = 30.0


@pytest.fixture
def clock() -> MovableClock:
    """The clock of both the service and this process."""
    return MovableClock()


@pytest.fixture
def leases(clock: MovableClock) -> MemoryLeases:
    """The service."""
    return MemoryLeases(clock)


def _while_held(leases: MemoryLeases, clock: MovableClock, body: Callable[[HeldLease], Any]) -> Any:
    return with_lease(leases, "key", "node:1", body, ttl_seconds=_TTL_SECONDS, clock=clock)


def _keepers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("pikkuflow lease")]


def test_an_outage_is_tolerated_while_the_lease_is_surely_live(leases: MemoryLeases, clock: MovableClock) -> None:
    """T9.16: renewals fail for a while, then succeed again, and the result is vouched for."""

    def body(held: HeldLease) -> str:
        leases.is_down = True
        clock.advance(_TTL_SECONDS - 1)
        held.renew()
        assert not held.is_lost
        leases.is_down = False
        held.renew()
        clock.advance(_TTL_SECONDS - 1)
        return "done"

    assert _while_held(leases, clock, body) == "done"


def test_an_outage_beyond_the_own_clocks_lapse_is_a_loss(leases: MemoryLeases, clock: MovableClock) -> None:
    """T9.16: nobody can say any more who holds the key."""

    def body(held: HeldLease) -> None:
        leases.is_down = True
        clock.advance(_TTL_SECONDS)
        held.renew()
        assert held.is_lost
        held.check()

    with pytest.raises(LeaseLost) as lost:
        _while_held(leases, clock, body)
    assert lost.value.key == "key"


def test_a_loss_is_for_good(leases: MemoryLeases, clock: MovableClock) -> None:
    """T9.16: a service that comes back does not undo what the body was told."""

    def body(held: HeldLease) -> str:
        leases.is_down = True
        clock.advance(_TTL_SECONDS)
        held.renew()
        leases.is_down = False
        return "dropped"

    with pytest.raises(LeaseLost):
        _while_held(leases, clock, body)


def test_an_unreachable_service_at_the_end_is_a_loss(leases: MemoryLeases, clock: MovableClock) -> None:
    """T9.16: the body returned in time, but nobody vouches for it."""

    def body(_: HeldLease) -> str:
        leases.is_down = True
        return "dropped"

    with pytest.raises(LeaseLost, match="does not answer"):
        _while_held(leases, clock, body)


def test_an_unreachable_service_at_the_start_is_told_and_nothing_is_done(
    leases: MemoryLeases, clock: MovableClock
) -> None:
    """Spec 6.1: there is no waiting; an outage is not someone else's lease."""
    leases.is_down = True

    with pytest.raises(ConnectionError):
        _while_held(leases, clock, lambda _: pytest.fail("the body was called"))


def test_the_bodys_error_comes_out_whatever_releasing_says(leases: MemoryLeases, clock: MovableClock) -> None:
    """Spec 6.1: release errors are swallowed."""

    def body(_: HeldLease) -> None:
        leases.is_down = True
        raise LookupError("the body's own")

    with pytest.raises(LookupError, match="the body's own"):
        _while_held(leases, clock, body)


def test_a_body_that_is_torn_down_frees_the_key(leases: MemoryLeases, clock: MovableClock) -> None:
    """A worker that shuts down raises SystemExit in the middle."""

    def body(_: HeldLease) -> None:
        raise SystemExit(0)

    with pytest.raises(SystemExit):
        _while_held(leases, clock, body)
    assert leases.get("key") is None


def test_belief_counts_from_before_the_last_granted_request(clock: MovableClock) -> None:
    """Spec 6.1: an answer that took long was granted some time before it came."""

    class SlowLeases(MemoryLeases):
        def refresh(self, lease: Any, ttl_seconds: float) -> Any:
            renewed = super().refresh(lease, ttl_seconds)
            clock.advance(10)
            return renewed

    leases = SlowLeases(clock)

    def body(held: HeldLease) -> bool:
        held.renew()
        leases.is_down = True
        clock.advance(_TTL_SECONDS - 10)
        held.renew()
        leases.is_down = False
        return held.is_lost

    with pytest.raises(LeaseLost):
        assert _while_held(leases, clock, body)


def test_a_thread_renews_while_the_body_works_and_ends_with_it(leases: MemoryLeases, clock: MovableClock) -> None:
    """T9.15: several times to live pass by, a little before each renewal; afterwards no thread is left."""
    ttl_seconds = 0.06

    def body(held: HeldLease) -> str:
        for _ in range(4):
            clock.advance(ttl_seconds * 0.6)
            deadline = time.monotonic() + 20
            wanted = clock.now().timestamp() + ttl_seconds
            while held.lease.expires_at < wanted - 1e-9 and time.monotonic() < deadline:
                held.wait_until_lost(0.005)
            assert held.lease.expires_at == pytest.approx(wanted)
        assert _keepers() == ["pikkuflow lease key"]
        return "done"

    assert with_lease(leases, "key", "node:1", body, ttl_seconds=ttl_seconds, clock=clock) == "done"
    assert _keepers() == []
