"""The node lease: how a worker that starts under a name tells a dead predecessor from a living double (design 3.9).

Two keys. ``node:<name>`` is short and renewed while the worker lives. ``node-last:<name>`` remembers for a month whose it was, because a
lapsed key says nothing any more.
"""

from __future__ import annotations

import logging
from typing import Final

from pikkuflow.adapters.celery.node import Node
from pikkuflow.adapters.celery.process_identity import has_ended
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.take_over import take_over_node
from pikkuflow.ports import Lease, Leases

__all__ = ["NodeLease"]

_LOGGER: Final = logging.getLogger("pikkuflow.worker")
_REMEMBERED_SECONDS: Final = 30 * 86400.0
_DOUBLE_AFTER: Final = 2.0
"""A key that is still held after this many of its own lifetimes is being renewed by someone."""


class NodeLease:
    """One worker's lease on its node name. Its owner calls ``keep`` about three times in ``ttl_seconds``, and ``release`` last of all.

    ``identity`` says which its main process is (``process_identity.identity_of``): a successor need not wait for a dead one's lease.
    """

    def __init__(self, name: str, node: Node, ttl_seconds: float, *, identity: str | None = None) -> None:
        self._name = name
        self._node = node
        self._ttl_seconds = ttl_seconds
        self._holder = node.uuid if identity is None else f"{node.uuid}:{identity}"
        self._lease: Lease | None = None
        self._taken_at = 0.0
        """Epoch seconds by the service's clock."""
        self._has_succeeded = False
        """What a predecessor held is taken over."""
        self._waiting_since: float | None = None
        self._told = False

    def keep(self, rt: Runtime) -> None:
        """Renew the lease; or take it once a predecessor's has lapsed or its process is gone, and then take over what that one held.

        A name whose lease goes on being renewed belongs to a double: that is logged once, and nothing of it is touched.
        Raises ``ConnectionError`` when the lease service does not answer, ``StoreUnavailable`` when the database does not: what is left to
        be taken over is taken over by a later call.
        """
        if rt.leases is None:
            return
        if self._lease is not None:
            self._lease = rt.leases.refresh(self._lease, self._ttl_seconds)
        if self._lease is None:
            self._has_succeeded = False
            self._lease = self._acquire(rt.leases)
            if self._lease is None:
                self._wait(rt)
                return
            self._taken_at = self._lease.expires_at - self._ttl_seconds
        if not self._has_succeeded:
            self._succeed(rt, rt.leases)
            self._has_succeeded = True

    @property
    def is_waiting(self) -> bool:
        """Whether the name is still another's, of whom nobody knows yet whether it lives."""
        return self._waiting_since is not None and not self._told

    def release(self, rt: Runtime) -> None:
        """Free the name for the next worker at once. Raises ``ConnectionError`` as ``keep`` does."""
        if rt.leases is not None and self._lease is not None:
            rt.leases.release(self._lease)
            self._lease = None

    def _acquire(self, leases: Leases) -> Lease | None:
        key = f"node:{self._name}"
        lease = leases.acquire(key, self._holder, self._ttl_seconds)
        held = leases.get(key) if lease is None else None
        if held is not None and has_ended(held.holder.partition(":")[2]) and leases.expire(key, held.holder):
            return leases.acquire(key, self._holder, self._ttl_seconds)
        return lease

    def _wait(self, rt: Runtime) -> None:
        now = rt.clock.monotonic()
        self._waiting_since = self._waiting_since if self._waiting_since is not None else now
        if not self._told and now - self._waiting_since > _DOUBLE_AFTER * self._ttl_seconds:
            self._told = True
            _LOGGER.error(
                "Another worker lives under the node name %s. Give each worker its own name (-n); "
                "what a dead worker of this name held is found by its lease only.",
                self._name,
            )

    def _succeed(self, rt: Runtime, leases: Leases) -> None:
        key = f"node-last:{self._name}"
        last = leases.get(key)
        if last is not None and last.holder != self._node.uuid:
            # Who wrote it after the name was taken lives: a double that held the name when the service lost its memory.
            if last.expires_at - _REMEMBERED_SECONDS < self._taken_at:
                take_over_node(rt, last.holder)
            leases.expire(key, last.holder)
        leases.acquire(key, self._node.uuid, _REMEMBERED_SECONDS)
        self._waiting_since = None
