"""What the engine needs and does not have: leases, broker, database."""

from __future__ import annotations

from pikkuflow.errors.root import PikkuFlowError

__all__ = [
    "DispatchError",
    "LeaseLost",
    "LeaseTaken",
    "NoBroker",
    "NoLeaseService",
    "SchemaOutdated",
    "StoreUnavailable",
]


class _LeaseError(PikkuFlowError):
    def __init__(self, message: str, key: str = "", *, hint: str = "") -> None:
        super().__init__(message, key, hint=hint)
        self.key = key


class LeaseTaken(_LeaseError):
    """Someone else holds the lease; nothing was done (spec 6.1)."""

    code = "LEASE_TAKEN"


class LeaseLost(_LeaseError):
    """The lease was lost, or nobody can vouch for it (spec 6.1)."""

    code = "LEASE_LOST"


class NoLeaseService(PikkuFlowError):
    """The engine was composed without leases, so mutual exclusion is impossible (spec 6.2)."""

    code = "NO_LEASE_SERVICE"


class NoBroker(PikkuFlowError):
    """Neither configuration nor environment names a broker (D26)."""

    code = "NO_BROKER"


class DispatchError(PikkuFlowError):
    """A message could not be handed to the broker; the row stays and a sweep sends it (D21)."""

    code = "DISPATCH_ERROR"


class StoreUnavailable(PikkuFlowError):
    """The database did not answer within the patience of this process; nothing is known to be lost."""

    code = "STORE_UNAVAILABLE"
    status = 503


class SchemaOutdated(PikkuFlowError):
    """The database's schema is older than this code; the hint has the command to run."""

    code = "SCHEMA_OUTDATED"
