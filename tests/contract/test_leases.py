"""What every lease service promises (spec 6.1, 13.9)."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any, Self

import pytest

from pikkuflow.adapters.system_clock import SystemClock
from pikkuflow.engine.with_lease import HeldLease, with_lease
from pikkuflow.errors import LeaseLost, LeaseTaken
from pikkuflow.ports import Lease, Leases
from tests.contract.lease_benches import (
    LEASE_SERVICES,
    LeaseBench,
    MemoryLeaseBench,
    RedisLeaseBench,
    SqlLeaseBench,
)

_ONE = "node-one:1"
_TWO = "node-two:2"


@pytest.fixture(params=LEASE_SERVICES)
def bench(request: pytest.FixtureRequest) -> Iterator[LeaseBench]:
    """Each lease service in turn, empty."""
    made = _bench_of(request.param, request)
    yield made
    made.close()


def _bench_of(service: str, request: pytest.FixtureRequest) -> LeaseBench:
    if service == "memory":
        return MemoryLeaseBench()
    if service == "valkey":
        return RedisLeaseBench(request.getfixturevalue("valkey_url"))
    store_bench = request.getfixturevalue(f"{service}_bench")
    store_bench.empty()
    return SqlLeaseBench(store_bench)


@pytest.fixture
def leases(bench: LeaseBench) -> Leases:
    """A client of the service."""
    return bench.leases


def _taken(leases: Leases, key: str = "key", holder: str = _ONE, ttl_seconds: float = 30.0) -> Lease:
    lease = leases.acquire(key, holder, ttl_seconds)
    assert lease is not None
    return lease


def test_a_key_has_one_holder(bench: LeaseBench, leases: Leases) -> None:
    """T9.1: the first gets token 1, a second gets nothing, and everyone can see who holds it."""
    lease = _taken(leases)

    assert (lease.key, lease.holder, lease.token) == ("key", _ONE, 1)
    assert bench.another().acquire("key", _TWO, 30) is None
    seen = bench.another().get("key")
    assert seen is not None
    assert (seen.holder, seen.token) == (_ONE, 1)


def test_nobody_holds_a_key_that_was_never_taken(leases: Leases) -> None:
    """T9.1: ``get`` of an unknown key is None."""
    assert leases.get("key") is None


def test_keys_are_independent(leases: Leases) -> None:
    """T9.2: holding one key says nothing about another."""
    _taken(leases, "key")

    assert _taken(leases, "another key", _TWO).token == 1


def test_the_same_holder_keeps_its_token_and_extends(bench: LeaseBench, leases: Leases) -> None:
    """T9.3: taking one's own live key again is an extension."""
    first = _taken(leases)
    bench.advance(20)

    again = _taken(leases)
    bench.advance(20)

    assert again.token == first.token
    assert leases.get("key") is not None


def test_a_lapsed_lease_goes_to_the_next_holder_with_the_next_token(bench: LeaseBench, leases: Leases) -> None:
    """T9.4: and the old holder's refresh is refused."""
    old = _taken(leases)
    bench.advance(31)

    new = _taken(leases, holder=_TWO)

    assert new.token == 2
    assert leases.refresh(old, 30) is None


def test_a_lapsed_lease_cannot_be_refreshed_though_nobody_took_it(bench: LeaseBench, leases: Leases) -> None:
    """T9.4: between lapse and refresh someone else may have come and gone."""
    old = _taken(leases)
    bench.advance(31)

    assert leases.get("key") is None
    assert leases.refresh(old, 30) is None


def test_a_holder_that_lapsed_comes_back_with_a_new_token(bench: LeaseBench, leases: Leases) -> None:
    """T9.4: a lapse is a change of hands, also to oneself."""
    old = _taken(leases)
    bench.advance(31)

    assert _taken(leases).token == 2
    assert leases.refresh(old, 30) is None


def test_release_frees_the_key_and_tokens_go_on_rising(leases: Leases) -> None:
    """T9.5: three holders one after another have tokens 1, 2 and 3."""
    first = _taken(leases)
    assert leases.release(first)
    assert leases.get("key") is None

    second = _taken(leases, holder=_TWO)
    assert leases.release(second)
    third = _taken(leases)

    assert [first.token, second.token, third.token] == [1, 2, 3]


def test_a_stale_release_has_no_effect(bench: LeaseBench, leases: Leases) -> None:
    """T9.6: whoever lost the key cannot free it for the new holder."""
    old = _taken(leases)
    bench.advance(31)
    new = _taken(leases, holder=_TWO)

    assert not leases.release(old)

    held = leases.get("key")
    assert held is not None
    assert (held.holder, held.token) == (_TWO, new.token)


def test_a_second_release_says_that_there_was_nothing_to_free(leases: Leases) -> None:
    """T9.6: releasing is by compare."""
    lease = _taken(leases)

    assert leases.release(lease)
    assert not leases.release(lease)


def test_a_lease_of_an_earlier_token_of_the_same_holder_is_stale(leases: Leases) -> None:
    """T9.6: compare is by holder and token, so a holder's own old lease frees nothing."""
    old = _taken(leases)
    leases.release(old)
    new = _taken(leases)

    assert not leases.release(old)
    assert leases.refresh(old, 30) is None
    assert leases.refresh(new, 30) is not None


def test_refresh_extends(bench: LeaseBench, leases: Leases) -> None:
    """T9.7: the refreshed lease outlives its first time to live, and later expiry is told."""
    lease = _taken(leases)
    bench.advance(20)

    refreshed = leases.refresh(lease, 30)
    bench.advance(20)

    assert refreshed is not None
    assert (refreshed.holder, refreshed.token) == (lease.holder, lease.token)
    assert leases.acquire("key", _TWO, 30) is None
    longer = leases.refresh(refreshed, 300)
    assert longer is not None
    assert longer.expires_at > refreshed.expires_at


def test_the_expiry_that_is_told_is_the_expiry_that_is_stored(leases: Leases) -> None:
    """T9.7: ``get`` shows what acquire and refresh answered."""
    lease = _taken(leases)
    seen = leases.get("key")
    refreshed = leases.refresh(lease, 300)
    seen_later = leases.get("key")

    assert seen is not None
    assert seen_later is not None
    assert refreshed is not None
    assert abs(seen.expires_at - lease.expires_at) < 0.05
    assert abs(seen_later.expires_at - refreshed.expires_at) < 0.05


def test_concurrent_acquires_admit_exactly_one(bench: LeaseBench) -> None:
    """T9.8: five clients at once, ten times over."""
    clients = [bench.another() for _ in range(5)]
    with ThreadPoolExecutor(len(clients)) as pool:
        for turn in range(10):
            got = list(
                pool.map(
                    lambda numbered, key=f"key {turn}": numbered[1].acquire(key, f"node:{numbered[0]}", 30),
                    enumerate(clients),
                ),
            )
            winners = [lease for lease in got if lease is not None]
            assert [lease.token for lease in winners] == [1]


def test_concurrent_acquires_of_a_lapsed_key_admit_exactly_one(bench: LeaseBench) -> None:
    """T9.8: also when the key has a past."""
    _taken(bench.leases)
    bench.advance(31)
    clients = [bench.another() for _ in range(5)]
    with ThreadPoolExecutor(len(clients)) as pool:
        got = list(pool.map(lambda numbered: numbered[1].acquire("key", f"node:{numbered[0]}", 30), enumerate(clients)))

    assert [lease.token for lease in got if lease is not None] == [2]


def test_texts_of_any_kind_are_keys_and_holders(leases: Leases) -> None:
    """D19: run ids are the user's, so braces, spaces, quotes and other alphabets are part of a key."""
    for key in ("workflow-run:{order} 'äö' \"1\"", "workflow-run:}{", "workflow-run:%s:token"):
        assert _taken(leases, key, "node ü:1 2").token == 1
        held = leases.get(key)
        assert held is not None
        assert (held.key, held.holder) == (key, "node ü:1 2")


# --- take-over (design 3.9) ---------------------------------------------------------------------------------------------


def test_expire_frees_what_a_dead_process_held(leases: Leases) -> None:
    """Design 3.9: the next holder need not wait for the time to live; the dead one's refresh is refused."""
    dead = _taken(leases, holder="node:12")

    assert leases.expire("key", "node:12")

    assert leases.get("key") is None
    assert leases.refresh(dead, 30) is None
    assert _taken(leases, holder=_TWO).token == 2


def test_expire_of_a_node_frees_what_any_of_its_processes_held(leases: Leases) -> None:
    """Design 3.9: a node's prefix means all of its processes, and their attempts."""
    _taken(leases, "one", "node:12")
    _taken(leases, "two", "node:13:2")

    assert leases.expire("one", "node:")
    assert leases.expire("two", "node")


def test_expire_leaves_other_holders_alone(leases: Leases) -> None:
    """Design 3.9: another node, a process number that merely begins alike, a free key."""
    _taken(leases, "one", "node:123")
    _taken(leases, "two", "nodes:12")

    assert not leases.expire("one", "node:12")
    assert not leases.expire("two", "node")
    assert not leases.expire("three", "node:12")
    assert leases.get("one") is not None
    assert leases.get("two") is not None


# --- with_lease ---------------------------------------------------------------------------------------------------------


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
    _taken(leases, holder=_TWO)

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


def test_with_lease_does_not_vouch_for_a_body_that_outlived_its_lease(bench: LeaseBench, leases: Leases) -> None:
    """T9.12: nobody took the key, but somebody could have."""
    with pytest.raises(LeaseLost):
        _while_held(leases, lambda _: bench.advance(31))


def test_with_lease_notices_a_loss_after_the_last_renewal(bench: LeaseBench, leases: Leases) -> None:
    """T9.13: the key went to someone else just before the body returned, and stays theirs."""

    def body(_: HeldLease) -> str:
        bench.advance(31)
        _taken(leases, holder=_TWO)
        return "done"

    with pytest.raises(LeaseLost):
        _while_held(leases, body)
    held = leases.get("key")
    assert held is not None
    assert held.holder == _TWO


def test_with_lease_tells_its_body_of_the_loss(bench: LeaseBench, leases: Leases) -> None:
    """T9.14: a renewal finds the key gone, and the body can stop."""

    def body(held: HeldLease) -> None:
        bench.advance(31)
        _taken(leases, holder=_TWO)
        assert held.wait_until_lost(30)
        held.check()

    with pytest.raises(LeaseLost):
        with_lease(leases, "key", _ONE, body, ttl_seconds=0.3, clock=SystemClock())


def test_with_lease_keeps_the_lease_alive_past_its_time(bench: LeaseBench, leases: Leases) -> None:
    """T9.15: renewals carry it over several times to live."""

    def body(held: HeldLease) -> str:
        for _ in range(5):
            bench.advance(20)
            held.renew()
            assert leases.acquire("key", _TWO, 30) is None
        return "done"

    assert _while_held(leases, body) == "done"


# --- whose clock --------------------------------------------------------------------------------------------------------


class _SkewedDatetime(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> Self:
        return super().now(tz) + timedelta(hours=1)

    @classmethod
    def utcnow(cls) -> Self:
        return cls.now()


@pytest.fixture
def skewed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A call that puts this process's wall clock an hour ahead, wherever pikkuflow's adapters could look at it."""
    real_time = time.time

    def skew() -> None:
        monkeypatch.setattr(time, "time", lambda: real_time() + 3_600)
        monkeypatch.setattr(time, "time_ns", lambda: int((real_time() + 3_600) * 1e9))
        for name, module in list(sys.modules.items()):
            if name.startswith("pikkuflow.adapters.") and hasattr(module, "datetime"):
                monkeypatch.setattr(module, "datetime", _SkewedDatetime)

    return skew


# Memory and SQLite live on one host, whose clock is theirs.
@pytest.mark.parametrize("service", ["postgres", "mysql", "valkey"])
def test_expiry_is_judged_by_the_services_clock(service: str, skewed: Any, request: pytest.FixtureRequest) -> None:
    """T9.17: a client whose clock is an hour ahead neither takes a live lease nor writes one that lasts an hour longer."""
    bench = _bench_of(service, request)
    try:
        lease = _taken(bench.leases)
        honest_now = time.time()

        skewed()
        hasty = bench.another()

        assert hasty.acquire("key", _TWO, 30) is None
        seen = hasty.get("key")
        assert seen is not None
        assert abs(seen.expires_at - lease.expires_at) < 5
        assert _taken(hasty, "another key").expires_at < honest_now + 60
    finally:
        bench.close()
