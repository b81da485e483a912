"""Hints without Redis: a run's ``due_at``, found by the scheduled sweep (D11); the precision is one sweep interval."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from pikkuflow.adapters.sql.run_store import SqlRunStore
from pikkuflow.domain.act import DueRun
from pikkuflow.domain.ids import RunId
from pikkuflow.errors import PikkuFlowError
from pikkuflow.ports import Watch

__all__ = ["DueColumnHints"]

_LOOK_AGAIN_SECONDS: Final = 0.5

_log: Final = logging.getLogger("pikkuflow.hints")


class DueColumnHints:
    """``Hints`` over the run store."""

    def __init__(self, store: SqlRunStore) -> None:
        self._store = store
        self._is_away = False

    def leave(self, run_id: RunId, in_seconds: float) -> None:
        """Move the run's ``due_at`` forward; given up at once when the database is away."""
        try:
            self._store.ask_pass(run_id, in_seconds, patience_seconds=0.0)
            self._is_away = False
        except PikkuFlowError as error:
            if not self._is_away:
                _log.warning("A hint could not be left, the sweeps will find the run: %s", error)
            self._is_away = True

    def leave_again(self, due: Sequence[DueRun]) -> None:
        """Nothing: the columns are the hints."""

    def pop_due(self, limit: int) -> tuple[RunId, ...]:  # noqa: ARG002 - the port's
        """Nothing: the scheduled sweep finds what is due."""
        return ()

    def announce(self, run_id: RunId) -> None:
        """Nobody listens: waiters look again by themselves."""

    @contextmanager
    def watching(self, run_id: RunId) -> Iterator[Watch]:  # noqa: ARG002 - the port's
        """A watch that hears nothing."""
        yield _Patience()

    def wait(self, run_id: RunId, seconds: float) -> bool:  # noqa: ARG002 - the port's
        """Wait a little: look again."""
        return _Patience().wait(seconds)


class _Patience:
    """``Watch`` of a service without announcements."""

    def wait(self, seconds: float) -> bool:
        time.sleep(max(0.0, min(seconds, _LOOK_AGAIN_SECONDS)))
        return False
