"""Group commit: outcomes that wait at the same time, of whatever runs of this process, are written with one statement and commit.

Who comes first writes for itself; who comes meanwhile waits. When the write is over, one of those that wait writes for all of them. So
there is no thread of its own that could be missing after a fork or be stopped too early, nobody waits for company, and one thread alone
pays nothing. "Recorded before the next step" holds as ever: ``write`` returns once its own rows were answered.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from threading import Event, Lock
from typing import Final

from pikkuflow.domain.act import PassNews, PassRef, StepWrite
from pikkuflow.ports import RunStore

__all__ = ["GroupWriter"]

Writes = Sequence[tuple[PassRef, StepWrite]]
Answers = Sequence[PassNews | None]

_ROWS_AT_MOST: Final = 200
_CHARACTERS_AT_MOST: Final = 1_000_000
"""Of arguments and results. Above it company would only make everyone wait for a large write."""


class _Entry:
    """What one thread waits for."""

    __slots__ = ("answers", "is_over", "leads", "run_ids", "size", "writes")

    def __init__(self, writes: Writes) -> None:
        self.writes = writes
        self.size = sum(len(write.step.args or "") + len(write.result or "") for _, write in writes)
        self.run_ids = {ref.run_id for ref, _ in writes}
        self.answers: Answers | None = None
        self.leads = False
        """It is this thread's turn to write, for all that wait."""
        self.is_over = Event()


class GroupWriter:
    """Writes in-place rows for every pass of a process.

    Parameters
    ----------
    store:
        Its ``record`` and ``record_all`` are idempotent, so what was not answered is written again.
    """

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = Lock()
        self._waiting: deque[_Entry] = deque()
        self._is_writing = False

    def write(self, writes: Writes) -> Answers:
        """An answer for each write, in order. A step is in it once at most.

        Raises what the store raises for these rows alone: when a common write fails, each thread writes its own.
        """
        if self._pid != os.getpid():
            # A forked child: whoever was writing stayed behind.
            self._begin()
        entry = _Entry(writes)
        if not self._has_to_wait(entry):
            return self._lead(entry)
        try:
            entry.is_over.wait()
        except BaseException:
            self._leave(entry)
            raise
        if entry.leads:
            return self._lead(entry)
        return self._alone(entry) if entry.answers is None else entry.answers

    def _has_to_wait(self, entry: _Entry) -> bool:
        with self._lock:
            if self._is_writing:
                self._waiting.append(entry)
                return True
            self._is_writing = True
            return False

    def _lead(self, entry: _Entry) -> Answers:
        """Write for everyone who waits, and hand over to one of those who came meanwhile."""
        others: list[_Entry] = []
        try:
            others = self._company(entry)
            if others:
                self._write_together([entry, *others])
            return self._alone(entry) if entry.answers is None else entry.answers
        finally:
            self._hand_over()
            for other in others:
                other.is_over.set()

    def _company(self, entry: _Entry) -> list[_Entry]:
        """Those who wait and may be written together: a run is in it once, so that no row is written twice by one statement."""
        with self._lock:
            run_ids, rows, size = set(entry.run_ids), len(entry.writes), entry.size
            company: list[_Entry] = []
            for other in tuple(self._waiting):
                rows, size = rows + len(other.writes), size + other.size
                if rows > _ROWS_AT_MOST or size > _CHARACTERS_AT_MOST:
                    break
                if run_ids.isdisjoint(other.run_ids):
                    self._waiting.remove(other)
                    company.append(other)
                    run_ids |= other.run_ids
            return company

    def _write_together(self, entries: Sequence[_Entry]) -> None:
        try:
            answers = iter(self._store.record_all([write for entry in entries for write in entry.writes]))
        except Exception:  # noqa: BLE001 - whose fault it is shows when each thread writes its own
            return
        for entry in entries:
            entry.answers = [next(answers) for _ in entry.writes]

    def _alone(self, entry: _Entry) -> Answers:
        if len(entry.writes) == 1:
            ref, write = entry.writes[0]
            return (self._store.record(ref, write),)
        return self._store.record_all(entry.writes)

    def _hand_over(self) -> None:
        with self._lock:
            if not self._waiting:
                self._is_writing = False
                return
            following = self._waiting.popleft()
            following.leads = True
        following.is_over.set()

    def _leave(self, entry: _Entry) -> None:
        """Its thread was interrupted while it waited. What it asked for is written by another, or not at all: its answer is lost."""
        with self._lock:
            if entry in self._waiting:
                self._waiting.remove(entry)
                return
        if entry.leads:
            self._hand_over()
