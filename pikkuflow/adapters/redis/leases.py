"""Leases in Redis or Valkey: ``SET NX PX`` with a holder and a counter of tokens, in scripts (spec 6.1, D19)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pikkuflow.adapters.redis.client import DEFAULT_PREFIX, RedisClient, Script
from pikkuflow.ports import Lease

__all__ = ["RedisLeases"]

_ACQUIRE: Final = Script.load("acquire")
_REFRESH: Final = Script.load("refresh")
_RELEASE: Final = Script.load("release")
_GET: Final = Script.load("get")
_EXPIRE: Final = Script.load("expire")

_COUNTER_MS: Final = 600_000
"""How long the counter of a key outlives its last lease. Every run leaves one behind, so it must go some time;
tokens begin at 1 again then, ten minutes after anyone could have held the key."""


class RedisLeases:
    """The lease service on a Redis or Valkey server (``Leases`` port). Each method is one round trip; the server's clock judges.

    Args:
        url: a redis-py URL.
        prefix: in front of every key, for deployments that share a database of a server.
        timeout_seconds: how long to wait for a connection or an answer before ``ConnectionError``.
    """

    __slots__ = ("_client", "_prefix")

    def __init__(self, url: str, *, prefix: str = DEFAULT_PREFIX, timeout_seconds: float = 2.0) -> None:
        self._client = RedisClient(url, timeout_seconds=timeout_seconds)
        self._prefix = prefix

    def acquire(self, key: str, holder: str, ttl_seconds: float) -> Lease | None:
        """Take a free or lapsed key, or extend one's own (same token); None when someone else holds it.

        Raises:
            ConnectionError: the server does not answer.
        """
        got = self._client.run(_ACQUIRE, self._keys(key), holder, _milliseconds(ttl_seconds), _COUNTER_MS)
        return None if got is None else Lease(key=key, holder=holder, token=got[0], expires_at=got[1] / 1_000)

    def refresh(self, lease: Lease, ttl_seconds: float) -> Lease | None:
        """Extend by compare; None when the lease is no longer this one.

        Raises:
            ConnectionError: the server does not answer.
        """
        keys = self._keys(lease.key)
        return _refreshed(lease, self._client.run(_REFRESH, keys, *_asked(lease, ttl_seconds)))

    def release(self, lease: Lease) -> bool:
        """Free by compare; the counter stays. False when it was not this lease's any more.

        Raises:
            ConnectionError: the server does not answer.
        """
        return bool(self._client.run(_RELEASE, self._keys(lease.key)[:1], _held(lease)))

    def get(self, key: str) -> Lease | None:
        """The live lease, or None.

        Raises:
            ConnectionError: the server does not answer.
        """
        return _found(key, self._client.run(_GET, self._keys(key)[:1]))

    def get_all(self, keys: Sequence[str]) -> tuple[Lease | None, ...]:
        """``get`` of each key, in order.

        Raises:
            ConnectionError: the server does not answer.
        """
        answers = self._client.run_all(_GET, [(self._keys(key)[:1], ()) for key in keys]) if keys else []
        return tuple(_found(key, got) for key, got in zip(keys, answers, strict=True))

    def refresh_all(self, leases: Sequence[Lease], ttl_seconds: float) -> tuple[Lease | None, ...]:
        """``refresh`` of each lease, in order.

        Raises:
            ConnectionError: the server does not answer.
        """
        calls = [(self._keys(lease.key), _asked(lease, ttl_seconds)) for lease in leases]
        answers = self._client.run_all(_REFRESH, calls) if calls else []
        return tuple(_refreshed(lease, until) for lease, until in zip(leases, answers, strict=True))

    def expire(self, key: str, holder_prefix: str) -> bool:
        """Free the key if its holder is the prefix or begins with it as whole parts (design 3.9).

        Raises:
            ConnectionError: the server does not answer.
        """
        return bool(self._client.run(_EXPIRE, self._keys(key)[:1], holder_prefix))

    def forget(self, limit: int) -> int:  # noqa: ARG002 - the port's
        """Nothing: keys and counters have times to live."""
        return 0

    def close(self) -> None:
        """Give back the connections; the leases stay and the service can be used again."""
        self._client.close()

    def _keys(self, key: str) -> tuple[str, str]:
        # The braces keep both in one slot of a cluster.
        return f"{self._prefix}lease:{{{key}}}", f"{self._prefix}token:{{{key}}}"


def _found(key: str, got: Any) -> Lease | None:
    if got is None:
        return None
    token, holder = got[0].split(" ", 1)
    return Lease(key=key, holder=holder, token=int(token), expires_at=got[1] / 1_000)


def _asked(lease: Lease, ttl_seconds: float) -> tuple[str | int, ...]:
    return _held(lease), _milliseconds(ttl_seconds), _COUNTER_MS


def _refreshed(lease: Lease, until: Any) -> Lease | None:
    if until is None:
        return None
    return Lease(key=lease.key, holder=lease.holder, token=lease.token, expires_at=until / 1_000)


def _held(lease: Lease) -> str:
    return f"{lease.token} {lease.holder}"


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1_000))
