"""What only the Redis adapter promises of leases: round trips, forks, forgetting servers, outages."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from pikkuflow.adapters.redis import RedisLeases
from pikkuflow.ports import Lease
from tests.servers.valkey import ValkeyServer


@pytest.fixture
def leases(valkey_url: str) -> Iterator[RedisLeases]:
    """The service on an emptied server."""
    made = RedisLeases(valkey_url)
    yield made
    made.close()


@pytest.fixture
def server(valkey_url: str) -> Iterator[Any]:
    """The server itself."""
    with Redis.from_url(valkey_url, decode_responses=True) as client:
        yield client


def _taken(leases: RedisLeases, key: str = "key", ttl_seconds: float = 30.0) -> Lease:
    lease = leases.acquire(key, "node:1", ttl_seconds)
    assert lease is not None
    return lease


def test_each_act_is_one_round_trip(leases: RedisLeases, server: Any) -> None:
    """D19: the front door to a run costs one question."""
    _do_each_act(leases)
    server.config_resetstat()

    _do_each_act(leases)

    counts = {name: stats["calls"] for name, stats in server.info("commandstats").items()}
    assert counts["cmdstat_evalsha"] == 5
    assert "cmdstat_eval" not in counts


def _do_each_act(leases: RedisLeases) -> None:
    lease = _taken(leases)
    leases.refresh(lease, 30)
    leases.get("key")
    leases.release(lease)
    leases.expire("key", "node:")


def test_a_server_that_forgot_the_scripts_is_taught_again(leases: RedisLeases, server: Any) -> None:
    """A restart, a failover or SCRIPT FLUSH loses them."""
    lease = _taken(leases)
    server.script_flush()

    assert leases.refresh(lease, 30) is not None
    assert leases.release(lease)


def test_a_lease_and_its_counter_leave_the_server_by_themselves(leases: RedisLeases, server: Any) -> None:
    """Every run takes a lease once; none may stay for ever."""
    _taken(leases, "workflow-run:order-42")

    keys = server.keys("*")

    assert sorted(keys) == ["pikkuflow:lease:{workflow-run:order-42}", "pikkuflow:token:{workflow-run:order-42}"]
    assert 0 < server.pttl("pikkuflow:lease:{workflow-run:order-42}") <= 30_000
    assert 30_000 < server.pttl("pikkuflow:token:{workflow-run:order-42}") <= 630_000


def test_the_counter_outlives_a_lease_that_is_renewed_for_long(leases: RedisLeases, server: Any) -> None:
    """Spec 6.1: the token rises when the key changes hands, however long it was held."""
    lease = _taken(leases)
    server.pexpire("pikkuflow:token:{key}", 1_000)

    leases.refresh(lease, 30)

    assert server.pttl("pikkuflow:token:{key}") > 30_000


def test_the_shortest_lease_lasts_a_millisecond(leases: RedisLeases) -> None:
    """Spec 6.1: minimum expiry 1 ms; a time to live of 0 is no error and no lease for ever."""
    assert leases.acquire("key", "node:1", 0.0) is not None
    deadline = time.monotonic() + 5
    while leases.get("key") is not None and time.monotonic() < deadline:
        time.sleep(0.001)

    assert leases.get("key") is None


def test_two_deployments_share_a_server_by_prefix(valkey_url: str, leases: RedisLeases) -> None:
    """The same run id in two applications is two runs."""
    other = RedisLeases(valkey_url, prefix="staging:")
    try:
        _taken(leases)
        assert _taken(other).token == 1
    finally:
        other.close()


# Python 3.12 warns of a fork beside threads; prefork does it all the same, and this child only asks a server.
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_has_a_client_of_its_own(leases: RedisLeases) -> None:
    """Celery-notes 2.8: prefork children begin as copies, and a shared connection gives one the other's answers."""
    _taken(leases, "parent")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        seen = [leases.get("parent"), leases.acquire("child", "node:2", 30)]
        os.write(writing, json.dumps([lease and lease.holder for lease in seen]).encode())
        os._exit(0)
    answers = [leases.get("parent") for _ in range(50)]
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as said:
        assert json.load(said) == ["node:1", "node:2"]
    assert all(answer is not None and answer.holder == "node:1" for answer in answers)


def test_a_server_that_is_away_is_a_connection_error_at_once() -> None:
    """The port: the caller decides what an outage means, and is not kept waiting."""
    leases = RedisLeases("unix:///nonexistent/socket?db=1")
    began = time.monotonic()

    with pytest.raises(ConnectionError, match="does not serve"):
        leases.acquire("key", "node:1", 30)
    with pytest.raises(ConnectionError, match="does not serve"):
        leases.get("key")

    assert time.monotonic() - began < 2


def test_a_server_that_hangs_is_a_connection_error_after_the_timeout(own_valkey: ValkeyServer) -> None:
    """The port: never waits. A frozen server holds nobody for long."""
    leases = RedisLeases(own_valkey.url(), timeout_seconds=0.2)
    _taken(leases)
    with Redis.from_url(own_valkey.url()) as server:
        server.execute_command("CLIENT", "PAUSE", "60000", "ALL")
    began = time.monotonic()

    with pytest.raises(ConnectionError):
        leases.get("key")

    assert time.monotonic() - began < 5
    leases.close()


def test_a_server_that_restarted_is_used_again_without_an_error(own_valkey: ValkeyServer) -> None:
    """The pooled connection is dead once; that is nobody's outage."""
    leases = RedisLeases(own_valkey.url())
    lease = _taken(leases)
    own_valkey.restart()

    assert leases.refresh(lease, 30) is not None
    leases.close()


def test_an_emptied_server_takes_the_lease_away(own_valkey: ValkeyServer) -> None:
    """Design 3.1: the holder learns it at its next renewal; the run's row decides who goes on."""
    leases = RedisLeases(own_valkey.url())
    lease = _taken(leases)
    own_valkey.flush()

    assert leases.refresh(lease, 30) is None
    again = _taken(leases)
    assert again.token == 1
    leases.close()


def test_a_server_that_refuses_to_write_is_a_connection_error(own_valkey: ValkeyServer) -> None:
    """A replica after a failover, or a full server: nobody can be granted anything there."""
    leases = RedisLeases(own_valkey.url())
    _taken(leases)
    with Redis.from_url(own_valkey.url()) as server:
        server.replicaof("127.0.0.1", "1")

    with pytest.raises(ConnectionError):
        leases.acquire("another", "node:1", 30)
    leases.close()
