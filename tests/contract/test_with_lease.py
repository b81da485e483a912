"""What ``with_lease`` promises over every lease service (spec 6.1, 13.9)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.adapters.system_clock import SystemClock
from pikkuflow.engine.with_lease import HeldLease, with_lease
from pikkuflow.errors import LeaseLost, LeaseTaken
from pikkuflow.ports import Lease, Leases
from tests.contract.lease_benches import LeaseBench

_ONE = "node-one:1"
_TWO = "node-two:2"


def _taken(leases: Leases, holder: str) -> Lease:
    lease = leases.acquire("key", holder, 30.0)
    assert lease is not None
    return lease


def _while_held(leases: Leases, body: Any, *, ttl_seconds: float = 30.0) -> Any:
    return with_lease(leases, "key", _ONE, body, ttl_seconds=ttl_seconds, clock=SystemClock())


def test_with_lease_gives_the_lease_and_frees_the_key(leases: Leases) -> None:
    """T9.9: the body sees its lease, its result comes back, and then the key is free."""
    seen = _while_held(leases, lambda held: (held.lease.holder, leases.get("key")))

    assert seen[0] == _ONE
    assert seen[1] is not None
    assert leases.get("key") is None


def test_with_lease_refuses_a_taken_key_at_once(leases: Leases) -> None:
    """T9.10: the body is not called, and the holder is not disturbed."""
    _taken(leases, _TWO)

    with pytest.raises(LeaseTaken) as refused:
        _while_held(leases, lambda _: pytest.fail("the body was called"))

    assert refused.value.key == "key"
    held = leases.get("key")
    assert held is not None
    assert held.holder == _TWO


def test_with_lease_frees_the_key_when_its_body_raises(leases: Leases) -> None:
    """T9.11: the body's own error comes out."""

    def body(_: HeldLease) -> None:
        raise LookupError("the body's own")

    with pytest.raises(LookupError, match="the body's own"):
        _while_held(leases, body)
    assert leases.get("key") is None


def test_with_lease_does_not_vouch_for_a_body_that_outlived_its_lease(lease_bench: LeaseBench, leases: Leases) -> None:
    """T9.12: nobody took the key, but somebody could have."""
    with pytest.raises(LeaseLost):
        _while_held(leases, lambda _: lease_bench.advance(31))


def test_with_lease_notices_a_loss_after_the_last_renewal(lease_bench: LeaseBench, leases: Leases) -> None:
    """T9.13: the key went to someone else just before the body returned, and stays theirs."""

    def body(_: HeldLease) -> str:
        lease_bench.advance(31)
        _taken(leases, _TWO)
        return "done"

    with pytest.raises(LeaseLost):
        _while_held(leases, body)
    held = leases.get("key")
    assert held is not None
    assert held.holder == _TWO


def test_with_lease_tells_its_body_of_the_loss(lease_bench: LeaseBench, leases: Leases) -> None:
    """T9.14: a renewal finds the key gone, and the body can stop."""

    def body(held: HeldLease) -> None:
        lease_bench.advance(31)
        _taken(leases, _TWO)
        assert held.wait_until_lost(30)
        held.check()

    with pytest.raises(LeaseLost):
        with_lease(leases, "key", _ONE, body, ttl_seconds=0.3, clock=SystemClock())


def test_with_lease_keeps_the_lease_alive_past_its_time(lease_bench: LeaseBench, leases: Leases) -> None:
    """T9.15: renewals carry it over several times to live."""

    def body(held: HeldLease) -> str:
        for _ in range(5):
            lease_bench.advance(20)
            held.renew()
            assert leases.acquire("key", _TWO, 30) is None
        return "done"

    assert _while_held(leases, body) == "done"
