"""What every lease service promises (spec 6.1, 13.9)."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any, Self

import pytest
from redis import Redis

from pikkuflow.ports import Lease, Leases
from tests.contract.lease_benches import LeaseBench, RedisLeaseBench, lease_bench_of

_ONE = "node-one:1"
_TWO = "node-two:2"


def _taken(leases: Leases, key: str = "key", holder: str = _ONE, ttl_seconds: float = 30.0) -> Lease:
    lease = leases.acquire(key, holder, ttl_seconds)
    assert lease is not None
    return lease


def test_a_key_has_one_holder(lease_bench: LeaseBench, leases: Leases) -> None:
    """T9.1: the first gets token 1, a second gets nothing, and everyone can see who holds it."""
    lease = _taken(leases)

    assert (lease.key, lease.holder, lease.token) == ("key", _ONE, 1)
    assert lease_bench.another().acquire("key", _TWO, 30) is None
    seen = lease_bench.another().get("key")
    assert seen is not None
    assert (seen.holder, seen.token) == (_ONE, 1)


def test_nobody_holds_a_key_that_was_never_taken(leases: Leases) -> None:
    """T9.1: ``get`` of an unknown key is None."""
    assert leases.get("key") is None


def test_keys_are_independent(leases: Leases) -> None:
    """T9.2: holding one key says nothing about another."""
    _taken(leases, "key")

    assert _taken(leases, "another key", _TWO).token == 1


def test_the_same_holder_keeps_its_token_and_extends(lease_bench: LeaseBench, leases: Leases) -> None:
    """T9.3: taking one's own live key again is an extension."""
    first = _taken(leases)
    lease_bench.advance(20)

    again = _taken(leases)
    lease_bench.advance(20)

    assert again.token == first.token
    assert leases.get("key") is not None


def test_a_lapsed_lease_goes_to_the_next_holder_with_the_next_token(lease_bench: LeaseBench, leases: Leases) -> None:
    """T9.4: and the old holder's refresh is refused."""
    old = _taken(leases)
    lease_bench.advance(31)

    new = _taken(leases, holder=_TWO)

    assert new.token == 2
    assert leases.refresh(old, 30) is None


def test_a_lapsed_lease_cannot_be_refreshed_though_nobody_took_it(lease_bench: LeaseBench, leases: Leases) -> None:
    """T9.4: between lapse and refresh someone else may have come and gone."""
    old = _taken(leases)
    lease_bench.advance(31)

    assert leases.get("key") is None
    assert leases.refresh(old, 30) is None


def test_a_holder_that_lapsed_comes_back_with_a_new_token(lease_bench: LeaseBench, leases: Leases) -> None:
    """T9.4: a lapse is a change of hands, also to oneself."""
    old = _taken(leases)
    lease_bench.advance(31)

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


def test_a_stale_release_has_no_effect(lease_bench: LeaseBench, leases: Leases) -> None:
    """T9.6: whoever lost the key cannot free it for the new holder."""
    old = _taken(leases)
    lease_bench.advance(31)
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


def test_refresh_extends(lease_bench: LeaseBench, leases: Leases) -> None:
    """T9.7: the refreshed lease outlives its first time to live, and later expiry is told."""
    lease = _taken(leases)
    lease_bench.advance(20)

    refreshed = leases.refresh(lease, 30)
    lease_bench.advance(20)

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


def test_concurrent_acquires_admit_exactly_one(lease_bench: LeaseBench) -> None:
    """T9.8: five clients at once, ten times over."""
    clients = [lease_bench.another() for _ in range(5)]
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


def test_concurrent_acquires_of_a_lapsed_key_admit_exactly_one(lease_bench: LeaseBench) -> None:
    """T9.8: also when the key has a past."""
    _taken(lease_bench.leases)
    lease_bench.advance(31)
    clients = [lease_bench.another() for _ in range(5)]
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


# --- forgetting ---------------------------------------------------------------------------------------------------------


def test_a_key_that_nobody_held_for_a_day_is_forgotten(lease_bench: LeaseBench, leases: Leases) -> None:
    """Spec 6.1: tokens of a key in use go on rising, over releases and lapses; what is older than a day leaves no row behind."""
    leases.release(_taken(leases, "used"))
    for number in range(3):
        leases.release(_taken(leases, f"old {number}"))
    lease_bench.advance(80_000)
    leases.release(_taken(leases, "used"))
    held = _taken(leases, "held", ttl_seconds=90_000.0)
    assert leases.forget(10) == 0
    lease_bench.advance(20_000)

    dropped = [leases.forget(2) for _ in range(3)]

    assert dropped in ([2, 1, 0], [0, 0, 0])
    assert leases.get("held") is not None
    assert leases.refresh(held, 30) is not None
    assert _taken(leases, "old 0").token == 1
    if dropped[0]:
        assert _taken(leases, "used").token == 3


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


# --- in bulk (design 3.1) -----------------------------------------------------------------------------------------------


def test_many_keys_are_read_in_their_order(leases: Leases) -> None:
    """``get_all``: a lease or None for each key, also for none."""
    first, second = _taken(leases, "first"), _taken(leases, "second", _TWO)

    assert leases.get_all([]) == ()
    found = leases.get_all(["second", "nobody's", "first"])

    assert [lease and (lease.key, lease.holder, lease.token) for lease in found] == [
        (second.key, second.holder, second.token),
        None,
        (first.key, first.holder, first.token),
    ]


def test_many_leases_are_refreshed_each_by_compare(lease_bench: LeaseBench, leases: Leases) -> None:
    """``refresh_all``: what is not this lease any more is None and left alone, the others last longer."""
    kept, gone, lost = (_taken(leases, key) for key in ("kept", "gone", "lost"))
    leases.release(gone)
    leases.release(lost)
    _taken(leases, "lost", _TWO)

    refreshed = leases.refresh_all([lost, kept, gone], 90)

    assert [lease is not None for lease in refreshed] == [False, True, False]
    assert leases.refresh_all([], 90) == ()
    lease_bench.advance(60)
    assert [lease is not None for lease in leases.get_all(["kept", "gone", "lost"])] == [True, False, False]


def test_bulk_calls_survive_a_server_that_forgot_its_scripts(valkey_url: str) -> None:
    """A restarted Redis knows no script: it is told once, and every call is answered."""
    bench = RedisLeaseBench(valkey_url)
    try:
        held = [_taken(bench.leases, key) for key in ("a", "b")]
        with Redis.from_url(valkey_url) as server:
            server.script_flush()

        assert all(bench.leases.refresh_all(held, 30))
        assert all(bench.leases.get_all(["a", "b"]))
    finally:
        bench.close()


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
    bench = lease_bench_of(service, request)
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
