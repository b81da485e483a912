"""Broker URLs as redis-py reads them (design 7: ``lease_url`` is the broker if that is Redis)."""

from __future__ import annotations

import pytest

from pikkuflow.adapters.redis import redis_url_of


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://:p%40ss@host:6380/2", "redis://:p%40ss@host:6380/2"),
        ("valkey://host/1", "redis://host/1"),
        ("rediss://host/0?ssl_cert_reqs=CERT_NONE", "rediss://host/0?ssl_cert_reqs=none"),
        ("redis+socket:///run/valkey.sock?virtual_host=3", "unix:///run/valkey.sock?db=3"),
        ("redis+socket:///run/valkey.sock", "unix:///run/valkey.sock"),
        ("unix:///run/valkey.sock?db=1", "unix:///run/valkey.sock?db=1"),
        ("redis://one/0;redis://two/0", "redis://one/0"),
    ],
)
def test_a_redis_broker_is_also_the_lease_service(url: str, read: str) -> None:
    """Kombu and redis-py write the same server differently."""
    assert redis_url_of(url) == read


@pytest.mark.parametrize("url", ["amqp://localhost//", "sentinel://host:26379", "memory://", "", "localhost:6379"])
def test_any_other_broker_is_none(url: str) -> None:
    """Then leases are rows of the database."""
    assert redis_url_of(url) is None
