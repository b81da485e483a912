"""Whoever is told of a run: observers and loggers, which may fail at every word, and the result backend that outcomes are handed on to."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pikkuflow.domain.ids import RunId
from pikkuflow.domain.run import Run
from pikkuflow.ports import StepLost
from tests.simulation.ledger import Ledger
from tests.simulation.plan import FaultKind
from tests.simulation.stage import Stage

__all__ = ["Deaf", "SimDeliverer", "SimObserver", "logging_as_planned"]

_LOGGER: Final = logging.getLogger("pikkuflow")


class Deaf(Exception):
    """What an observer or a log handler raises that is out of order."""


class SimObserver:
    """Writes to the trace. When it is ``deaf``, it then fails."""

    def __init__(self, stage: Stage, *, deaf: bool) -> None:
        self._stage = stage
        self._deaf = deaf

    def pass_ended(self, event: Any) -> None:  # noqa: ARG002 - the port's signature
        """Nothing to do."""
        self._fail()

    def step_lost(self, event: StepLost) -> None:
        """Write it."""
        self._stage.trace("lost step", "", (event.run_id, event.step, event.attempt))
        self._fail()

    def warn(self, message: str, *, run_id: RunId | None = None) -> None:
        """Write it."""
        self._stage.trace("warning", "", (run_id, message))
        self._fail()

    def _fail(self) -> None:
        if self._deaf:
            raise Deaf


class SimDeliverer:
    """Hands outcomes to a result backend that may be away, or refuse one."""

    def __init__(self, stage: Stage, ledger: Ledger) -> None:
        self._stage = stage
        self._ledger = ledger

    def wants(self, run: Run) -> bool:
        """The run has a handover."""
        return run.handover is not None

    def deliver(self, run: Run) -> None:
        """Tell the ledger. Raises ``ConnectionError`` while the backend is away, ``ValueError`` for an outcome that it refuses."""
        stage = self._stage
        fault = stage.point("deliver", "before", (run.id, run.status))
        if stage.now < stage.backend_down_until:
            raise ConnectionError("the result backend does not answer")
        if fault is FaultKind.SPOIL:
            raise ValueError("the result backend cannot take this")
        self._ledger.delivered(run)
        stage.point("deliver", "after", (run.id,))


class _DeafHandler(logging.Handler):
    def handle(self, record: logging.LogRecord) -> bool:  # noqa: ARG002 - logging's signature
        raise Deaf


@contextmanager
def logging_as_planned(*, deaf: bool) -> Iterator[None]:
    """No log record goes anywhere while the block runs; when it is ``deaf``, each makes its logger fail."""
    before = logging.root.manager.disable
    if not deaf:
        if before < logging.CRITICAL:
            logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            if before < logging.CRITICAL:
                logging.disable(before)
        return
    handler, propagates = _DeafHandler(), _LOGGER.propagate
    logging.disable(logging.NOTSET)
    _LOGGER.addHandler(handler)
    _LOGGER.propagate = False
    try:
        yield
    finally:
        _LOGGER.propagate = propagates
        _LOGGER.removeHandler(handler)
        logging.disable(before)
