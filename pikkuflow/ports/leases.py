"""The lease service: timed rights (spec 6.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Lease", "Leases"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A timed right. ``token`` starts at 1 and rises by one whenever the key changes hands, also after a release (spec 6.1)."""

    key: str
    holder: str
    token: int
    expires_at: float
    """Epoch seconds by the service's clock."""


class Leases(Protocol):
    """The lease service (spec 6.1, D19). Never waits. Raises ``ConnectionError`` (or a subclass) when the service does not answer."""

    def acquire(self, key: str, holder: str, ttl_seconds: float) -> Lease | None:
        """Take a free or lapsed key, or extend one's own (same token). None: someone else holds it."""
        ...

    def refresh(self, lease: Lease, ttl_seconds: float) -> Lease | None:
        """Extend by compare (holder and token). None: the lease is no longer this one."""
        ...

    def release(self, lease: Lease) -> bool:
        """Free by compare; the token counter stays. False: it was not this lease's any more."""
        ...

    def get(self, key: str) -> Lease | None:
        """The live lease, or None."""
        ...

    def get_all(self, keys: Sequence[str]) -> tuple[Lease | None, ...]:
        """``get`` of each key, in order, in one round trip."""
        ...

    def refresh_all(self, leases: Sequence[Lease], ttl_seconds: float) -> tuple[Lease | None, ...]:
        """``refresh`` of each lease, in order, in one round trip."""
        ...

    def expire(self, key: str, holder_prefix: str) -> bool:
        """Free the key if its holder is the prefix or begins with it as whole ``:`` parts (take-over, design 3.9). False: it does not.

        ``node:12`` and ``node:`` mean ``node:12`` and ``node:12:x``, and ``node:12`` never means ``node:123``.
        """
        ...

    def forget(self, limit: int) -> int:
        """Drop what is left of at most ``limit`` keys that nobody held for a day; the number dropped, 0 where that happens by itself.

        Tokens of such a key begin at 1 again: whoever held it has lapsed a day ago, and a holder's name is never used twice.
        """
        ...
