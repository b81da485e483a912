"""The lease service in memory (spec 6.1), judged by a clock that a test moves."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pikkuflow.ports import Clock, Lease

__all__ = ["MemoryLeases"]

_SHORTEST_SECONDS: Final = 0.001
_FORGET_SECONDS: Final = 86_400.0


class MemoryLeases:
    """``Leases`` over a dictionary.

    ``is_down`` set to True makes every call raise ``ConnectionError``, as a service does that is not there.
    """

    def __init__(self, clock: Clock) -> None:
        self.is_down = False
        self._clock = clock
        self._lock = threading.Lock()
        self._leases: dict[str, Lease] = {}

    def acquire(self, key: str, holder: str, ttl_seconds: float) -> Lease | None:
        """Take a free or lapsed key, or extend one's own (same token). None: someone else holds it."""
        with self._lock:
            now = self._now()
            known = self._leases.get(key)
            if known is not None and known.expires_at > now:
                if known.holder != holder:
                    return None
                token = known.token
            else:
                token = known.token + 1 if known is not None else 1
            lease = Lease(key=key, holder=holder, token=token, expires_at=now + max(ttl_seconds, _SHORTEST_SECONDS))
            self._leases[key] = lease
            return lease

    def refresh(self, lease: Lease, ttl_seconds: float) -> Lease | None:
        """Extend by compare (holder and token). None: the lease is no longer this one."""
        with self._lock:
            now = self._now()
            if not self._is_current(lease, now):
                return None
            extended = replace(lease, expires_at=now + max(ttl_seconds, _SHORTEST_SECONDS))
            self._leases[lease.key] = extended
            return extended

    def release(self, lease: Lease) -> bool:
        """Free by compare; the token counter stays. False: it was not this lease's any more."""
        with self._lock:
            now = self._now()
            if not self._is_current(lease, now):
                return False
            self._leases[lease.key] = replace(lease, expires_at=now)
            return True

    def get(self, key: str) -> Lease | None:
        """The live lease, or None."""
        with self._lock:
            now = self._now()
            known = self._leases.get(key)
            return known if known is not None and known.expires_at > now else None

    def get_all(self, keys: Sequence[str]) -> tuple[Lease | None, ...]:
        """``get`` of each key, in order."""
        return tuple([self.get(key) for key in keys])

    def refresh_all(self, leases: Sequence[Lease], ttl_seconds: float) -> tuple[Lease | None, ...]:
        """``refresh`` of each lease, in order."""
        return tuple([self.refresh(lease, ttl_seconds) for lease in leases])

    def expire(self, key: str, holder_prefix: str) -> bool:
        """Free the key if its holder is the prefix or begins with it as whole parts (design 3.9). False: it does not."""
        with self._lock:
            now = self._now()
            known = self._leases.get(key)
            if known is None or known.expires_at <= now or not _is_of(known.holder, holder_prefix):
                return False
            self._leases[key] = replace(known, expires_at=now)
            return True

    def forget(self, limit: int) -> int:
        """Drop at most ``limit`` keys that nobody held for a day."""
        with self._lock:
            before = self._now() - _FORGET_SECONDS
            old = [key for key, lease in self._leases.items() if lease.expires_at < before][:limit]
            for key in old:
                del self._leases[key]
            return len(old)

    def _now(self) -> float:
        if self.is_down:
            raise ConnectionError("the lease service does not answer")
        return self._clock.now().timestamp()

    def _is_current(self, lease: Lease, now: float) -> bool:
        known = self._leases.get(lease.key)
        return (
            known is not None and known.expires_at > now and known.holder == lease.holder and known.token == lease.token
        )


def _is_of(holder: str, prefix: str) -> bool:
    return f"{holder}:".startswith(prefix.removesuffix(":") + ":")
