"""The load of a soak: runs of the workflow ``faulty.storm`` without a pause, and what became of each."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from pikkuflow import PikkuFlowError
from pikkuflow.domain.status import SETTLED_RUN

LOGGER = logging.getLogger("soak")


@dataclass(slots=True, kw_only=True)
class Load:
    """Starts runs so that about ``width`` are open, from a thread of its own.

    ``asked`` holds every id before its start is tried: a start that raises may have committed or not, and is tried again under its id.
    """

    client: Any
    width: int
    step_seconds: float
    asked: dict[str, float] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._go, name="load", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Start no more runs."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def look(self) -> set[str]:
        """The runs that are still open, as the database has it now; all that were when it does not answer."""
        for run_id in set(self.asked) - self.settled:
            try:
                if self.client.pikku.runs.get(run_id).head().status in SETTLED_RUN:
                    self.settled.add(run_id)
            except PikkuFlowError:
                break
        return set(self.asked) - self.settled

    def _go(self) -> None:
        number = 0
        while not self._ended.wait(0.2):
            for _ in range(self.width - len(self.look())):
                number += 1
                self._begin(f"soak-{number}")
                if self._ended.is_set():
                    break

    def _begin(self, run_id: str) -> None:
        self.asked[run_id] = time.time()
        while True:
            try:
                self.client.storm.start(2, self.step_seconds, run_id=run_id)
            except PikkuFlowError as error:
                LOGGER.info("start of %s is tried again: %s", run_id, error)
                time.sleep(0.5)
            else:
                return
