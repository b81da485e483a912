"""A dispatcher and a deliverer that keep what they were given, for a test to look at and to hand on."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from pikkuflow.domain.act import RunRef, StepMessage
from pikkuflow.domain.run import Run
from pikkuflow.errors import DispatchError

__all__ = ["MemoryDeliverer", "MemoryDispatcher"]


class MemoryDispatcher:
    """``Dispatcher`` without a broker.

    ``is_down`` set to True makes both calls raise ``DispatchError`` and keep nothing. ``wakes`` and ``messages`` are what was sent and not
    yet taken; a message is the tuple of step messages that travel together.
    """

    def __init__(self) -> None:
        self.is_down = False
        self.wakes: list[RunRef] = []
        self.messages: list[tuple[StepMessage, ...]] = []
        self._lock = threading.Lock()

    def wake(self, runs: Sequence[RunRef], *, at_most: int | None = None) -> None:  # noqa: ARG002 - each is kept by itself
        """Keep a wake-up for each run. Raises ``DispatchError`` when down."""
        self._check()
        with self._lock:
            self.wakes.extend(runs)

    def send_steps(self, messages: Sequence[StepMessage], *, chunk: int = 1) -> None:
        """Keep the messages; up to ``chunk`` of the same run, task and route together. Raises ``DispatchError`` when down."""
        self._check()
        with self._lock:
            groups: dict[tuple[str, str, str | None, str], list[StepMessage]] = {}
            for message in messages:
                groups.setdefault((message.run_id, message.task, message.queue, message.options), []).append(message)
            for group in groups.values():
                self.messages.extend(tuple(group[at : at + chunk]) for at in range(0, len(group), chunk))

    def take_wakes(self) -> tuple[RunRef, ...]:
        """Take all wake-ups, in the order sent."""
        with self._lock:
            taken, self.wakes = tuple(self.wakes), []
        return taken

    def take_messages(self) -> tuple[tuple[StepMessage, ...], ...]:
        """Take all step messages, in the order sent."""
        with self._lock:
            taken, self.messages = tuple(self.messages), []
        return taken

    def lose_all(self) -> None:
        """Forget everything, as a broker does that was flushed."""
        with self._lock:
            self.wakes, self.messages = [], []

    def _check(self) -> None:
        if self.is_down:
            raise DispatchError("the broker takes no messages")


class MemoryDeliverer:
    """``Deliverer`` that keeps the runs it was given. ``is_down`` set to True makes ``deliver`` raise ``ConnectionError``."""

    def __init__(self) -> None:
        self.is_down = False
        self.delivered: list[Run] = []

    def wants(self, run: Run) -> bool:
        """The run has a handover."""
        return run.handover is not None

    def deliver(self, run: Run) -> None:
        """Keep the run."""
        if self.is_down:
            raise ConnectionError("the result backend does not answer")
        self.delivered.append(run)
