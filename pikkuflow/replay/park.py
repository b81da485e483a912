"""How a pass is left before its body has ended.

A body that has to wait is unwound with a ``BaseException``, so that ``except Exception`` cannot swallow it (design 1). ``finally`` and
``with`` blocks around the wait run at every park.
"""

from __future__ import annotations

from enum import StrEnum

from pikkuflow.domain.failure import Failure
from pikkuflow.domain.status import SuspendCode

__all__ = ["ParkReason", "Parked"]


class ParkReason(StrEnum):
    """Why the body was left."""

    WAITING = "waiting"
    """It needs an outcome that is still in flight."""
    YIELDED = "yielded"
    """The pass worked in place for long enough, or its worker stops; another pass goes on."""
    STOPPED = "stopped"
    """The run was stopped (cancelled, for instance) while the pass worked."""
    SUPERSEDED = "superseded"
    """Another pass owns the run: nothing may be written any more."""
    SUSPENDED = "suspended"
    """The run waits for a person, or for code that fits it; ``code`` says which."""


class Parked(BaseException):
    """The pass is over before the body is. Private: no user code names it.

    ``code``, ``failure`` and ``due_seconds`` belong to SUSPENDED: the run's code, the error to show with it, and the time after which it
    is worth another pass (None leaves that to the engine's backoff when there is a code). A closed gate has its code also where the pass
    waits for other steps first.
    """

    def __init__(
        self,
        reason: ParkReason,
        *,
        code: SuspendCode | None = None,
        failure: Failure | None = None,
        due_seconds: float | None = None,
    ) -> None:
        super().__init__(f"The workflow is parked ({reason}). Let this pass through: it is no error.")
        self.reason = reason
        self.code = code
        self.failure = failure
        self.due_seconds = due_seconds
