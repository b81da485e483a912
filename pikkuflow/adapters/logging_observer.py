"""Tells the log what happened (``Observer`` port)."""

from __future__ import annotations

import logging

from pikkuflow.domain.ids import RunId
from pikkuflow.ports import PassEnded, PassOutcome, StepLost

__all__ = ["LoggingObserver"]


class LoggingObserver:
    """Writes to the ``pikkuflow`` logger: lost steps and warnings as warnings, passes that parked as info, the others for debugging.

    Each record carries ``run_id`` as an extra attribute, so a formatter or a log service can group by it.
    """

    __slots__ = ("_log",)

    def __init__(self, log: logging.Logger | None = None) -> None:
        self._log = log or logging.getLogger("pikkuflow")

    def pass_ended(self, event: PassEnded) -> None:
        """One line a pass."""
        level = logging.INFO if event.outcome is PassOutcome.INTERRUPTED else logging.DEBUG
        self._log.log(
            level,
            "pass over run %s of %s %s: %d steps worked in %.3f s",
            event.run_id,
            event.workflow,
            "parked" if event.outcome is PassOutcome.INTERRUPTED else event.outcome,
            event.steps_worked,
            event.seconds,
            extra={"run_id": event.run_id},
        )

    def step_lost(self, event: StepLost) -> None:
        """A warning that names run, step and attempt (spec 5.1)."""
        then = "no attempt is left: it failed" if event.exhausted else "it is worked again as a new attempt"
        self._log.warning(
            "step %r of run %s lost its worker in attempt %d; %s",
            event.step,
            event.run_id,
            event.attempt,
            then,
            extra={"run_id": event.run_id},
        )

    def warn(self, message: str, *, run_id: RunId | None = None) -> None:
        """A warning; the run, when there is one, is named in front."""
        if run_id is None:
            self._log.warning("%s", message)
        else:
            self._log.warning("run %s: %s", run_id, message, extra={"run_id": run_id})
