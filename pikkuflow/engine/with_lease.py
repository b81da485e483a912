"""Do something while holding a lease, and vouch for it only if it was held throughout (spec 6.1).

Two clocks judge. The service's own decides who holds the key. The process's monotonic clock decides when this holder must stop believing
that it does, when nobody answers: it counts from before the last request that was granted, so it is never later than the service's.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from pikkuflow.engine.pace import paced
from pikkuflow.errors import LeaseLost, LeaseTaken
from pikkuflow.ports import Clock, Lease, Leases

__all__ = ["HeldLease", "with_lease"]

T = TypeVar("T")

_RENEWALS_PER_TTL = 3


class HeldLease:
    """The lease as its body sees it: who holds what, and whether it still does.

    A long body looks at ``is_lost`` between two pieces of work, or calls ``check``, and stops when the lease is gone.
    """

    def __init__(self, leases: Leases, lease: Lease, ttl_seconds: float, clock: Clock, granted_at: float) -> None:
        self._leases = leases
        self._lease = lease
        self._ttl_seconds = ttl_seconds
        self._clock = clock
        self._believed_until = granted_at + ttl_seconds
        self._lost = threading.Event()

    @property
    def lease(self) -> Lease:
        """The lease as it was last granted."""
        return self._lease

    @property
    def is_lost(self) -> bool:
        """Whether the body must stop: someone else may hold the key."""
        return self._lost.is_set()

    def wait_until_lost(self, seconds: float) -> bool:
        """Wait at most that many seconds for the loss; whether it is lost."""
        return self._lost.wait(seconds)

    def check(self) -> None:
        """Raise ``LeaseLost`` when it is lost."""
        if self.is_lost:
            raise _lost(self._lease)

    def renew(self) -> None:
        """Extend it once. A service that does not answer is tolerated until this process's clock says that the lease has lapsed."""
        asked_at = self._clock.monotonic()
        try:
            renewed = self._leases.refresh(self._lease, self._ttl_seconds)
        except Exception:  # noqa: BLE001 - whatever stands in the way of an answer, the lease is the holder's until it lapses
            if self._clock.monotonic() >= self._believed_until:
                self._lost.set()
            return
        if renewed is None:
            self._lost.set()
        else:
            self._lease = renewed
            self._believed_until = asked_at + self._ttl_seconds

    def vouch(self) -> None:
        """Make sure that it was held until now.

        Raises:
            LeaseLost: it was not, or the service does not answer, so that nobody knows.
        """
        self.check()
        try:
            renewed = self._leases.refresh(self._lease, self._ttl_seconds)
        except Exception as error:
            raise _lost(self._lease, because="the lease service does not answer") from error
        if renewed is None:
            self._lost.set()
            raise _lost(self._lease)

    def release(self) -> None:
        """Free the key. Errors are swallowed: the key lapses by itself."""
        with contextlib.suppress(Exception):
            self._leases.release(self._lease)


def with_lease(
    leases: Leases,
    key: str,
    holder: str,
    fn: Callable[[HeldLease], T],
    *,
    ttl_seconds: float = 30.0,
    clock: Clock,
) -> T:
    """Hold ``key`` while ``fn`` works, renewing it every third of its time to live by a thread.

    Args:
        leases: the lease service.
        key: what is held.
        holder: who holds it.
        fn: the body; it is given the held lease.
        ttl_seconds: how long the lease lasts without a renewal.
        clock: this process's clock.

    Returns:
        What ``fn`` returned, if the lease was held to the end.

    Raises:
        LeaseTaken: someone else holds it; ``fn`` was not called. There is no waiting.
        LeaseLost: it was lost while ``fn`` worked, or nobody can say at the end; what ``fn`` returned is dropped.
        ConnectionError: the service did not answer at the start; ``fn`` was not called.
    """
    asked_at = clock.monotonic()
    lease = leases.acquire(key, holder, ttl_seconds)
    if lease is None:
        raise LeaseTaken(f"The lease {key!r} is held by someone else.", key, hint="Nothing was done; try again later.")
    held = HeldLease(leases, lease, ttl_seconds, clock, asked_at)
    try:
        with _Keeper(held, ttl_seconds / _RENEWALS_PER_TTL, clock):
            result = fn(held)
        held.vouch()
        return result
    finally:
        held.release()


class _Keeper:
    """The thread that renews, from entering until leaving."""

    def __init__(self, held: HeldLease, every_seconds: float, clock: Clock) -> None:
        self._held = held
        self._clock = clock
        self._every_seconds = every_seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"pikkuflow lease {held.lease.key}", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        # A renewal in flight must be over before the key is freed; services answer, or give up, within their own timeout.
        self._thread.join()

    def _renew(self) -> None:
        for _ in paced(self._clock, self._every_seconds, self._stopped):
            if self._held.is_lost:
                return
            self._held.renew()


def _lost(lease: Lease, *, because: str = "someone else may hold it") -> LeaseLost:
    return LeaseLost(
        f"The lease {lease.key!r} of {lease.holder} was lost: {because}.",
        lease.key,
        hint="What was done under it is not vouched for; it is safe to do again.",
    )
