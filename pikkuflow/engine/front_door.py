"""The front door to a run: a lease that turns others away without touching the database (design 3.1, D19).

It decides nothing. A lease service that does not answer never stops a pass: the run's row decides.
"""

from __future__ import annotations

from contextlib import suppress

from pikkuflow.domain.ids import PassId, RunId
from pikkuflow.engine.runtime import Runtime
from pikkuflow.errors import NoLeaseService
from pikkuflow.ports import Lease, Leases

__all__ = ["Door", "open_door", "run_key"]


class Door:
    """The door is ours, or (without a lease) nobody can say whose."""

    def __init__(self, leases: Leases, lease: Lease | None) -> None:
        self._leases = leases
        self._lease = lease

    def close(self) -> None:
        """Release what was taken, once; a service that is away lets it lapse."""
        lease, self._lease = self._lease, None
        if lease is None:
            return
        with suppress(ConnectionError):
            self._leases.release(lease)


def run_key(run_id: RunId) -> str:
    """The lease key of a run."""
    return f"workflow-run:{run_id}"


def open_door(rt: Runtime, run_id: RunId, pass_id: PassId) -> Door | None:
    """Take the run's lease; never waits. None: someone else is in.

    The lease's holder is ``<process holder>:<pass id>``, so that what a dead process held is found by prefix. Raises ``NoLeaseService``
    when the engine was composed without leases (spec 6.2, T8.4).
    """
    leases = _leases(rt)
    try:
        lease = leases.acquire(run_key(run_id), f"{rt.holder()}:{pass_id}", rt.settings.run_lease_seconds)
    except ConnectionError:
        return Door(leases, None)
    return None if lease is None else Door(leases, lease)


def _leases(rt: Runtime) -> Leases:
    if rt.leases is None:
        raise NoLeaseService(
            "This engine has no lease service, so two passes could work one run at the same time.",
            hint="Pass leases= to pikkuflow.engine.runtime.Runtime, or let PikkuFlow(app) compose it.",
        )
    return rt.leases
