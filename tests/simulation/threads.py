"""The engine's own threads as actors: the same code, with the scheduler in place of the operating system's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from pikkuflow.engine import close_later, in_place, keep, kept_outcomes, orchestrate, with_lease
from tests.simulation.processes import Process, Watched
from tests.simulation.scheduler import NEVER
from tests.simulation.stage import Stage
from tests.simulation.surroundings import SimEvent, SimLock, SimThread

__all__ = ["record_starts", "threads_as_actors"]


class SimWatch:
    """``StartWatch`` with one actor of each process in place of its thread."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._count = 0

    def begin(self, _is_due: Callable[[], bool], record: Callable[[], None], *, after_seconds: float) -> int:
        """Watch an attempt."""
        self._count += 1
        self._stage.process.watched[self._count] = Watched(self._stage.now + after_seconds, record)
        self._stage.watching.give()
        return self._count

    def end(self, key: int) -> None:
        """The attempt has ended."""
        self._stage.process.watched.pop(key, None)


def record_starts(stage: Stage, process: Process) -> None:
    """The thread of one process that records the starts of steps that have worked for a while."""
    while True:
        stage.scheduler.wait_for(
            stage.watching, lambda: min((one.at for one in process.watched.values()), default=NEVER)
        )
        for key, watched in list(process.watched.items()):
            if watched.at <= stage.now and process.watched.pop(key, None) is not None:
                watched.record()


@contextmanager
def threads_as_actors(stage: Stage) -> Iterator[None]:
    """Put actors in the place of threads while the block runs."""
    thread: Any = type("Thread", (SimThread,), {"stage": stage})
    event: Any = type("Event", (SimEvent,), {"stage": stage})
    lock: Any = type("Lock", (SimLock,), {"stage": stage})
    watch = SimWatch(stage)
    with ExitStack() as stack:
        for module in (close_later, keep):
            stack.enter_context(patch.object(module, "Thread", thread))
            stack.enter_context(patch.object(module, "Event", event))
        stack.enter_context(patch.object(with_lease, "threading", SimpleNamespace(Thread=thread, Event=event)))
        for module in (kept_outcomes, orchestrate):
            stack.enter_context(patch.object(module, "Lock", lock))
        for module in (in_place, kept_outcomes, orchestrate):
            stack.enter_context(patch.object(module, "WATCH", watch))
        yield
