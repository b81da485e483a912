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
from weakref import WeakSet

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

    __slots__ = ("answers", "company", "is_over", "run_ids", "size", "writes")

    def __init__(self, writes: Writes) -> None:
        self.writes = writes
        self.size = sum(len(write.step.args or "") + len(write.result or "") for _, write in writes)
        self.run_ids = {ref.run_id for ref, _ in writes}
        self.company: list[_Entry] = []
        """Those it writes for."""
        self.answers: Answers | None = None
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
        self.begin()
        _WRITERS.add(self)

    def begin(self) -> None:
        """Nobody writes and nobody waits. In a forked child too: whoever did stayed behind."""
        self._lock = Lock()
        self._waiting: deque[_Entry] = deque()
        self._leader: _Entry | None = None

    def write(self, writes: Writes) -> Answers:
        """An answer for each write, in order. A step is in it once at most.

        Raises what the store raises for these rows alone: when a common write fails, each thread writes its own.
        """
        entry = _Entry(writes)
        try:
            self._wait(entry)
            if self._leader is entry:
                self._lead(entry)
        finally:
            # An exception from outside (Ctrl+C, a soft time limit around an inline run) strikes anywhere, here as well.
            try:
                self._leave(entry)
            except BaseException:
                self._leave(entry)
                raise
        return self._alone(entry) if entry.answers is None else entry.answers

    def _wait(self, entry: _Entry) -> None:
        """Until another has written for it, or it is its thread's turn to write."""
        with self._lock:
            if self._leader is None:
                self._leader = entry
                return
            self._waiting.append(entry)
        entry.is_over.wait()

    def _lead(self, entry: _Entry) -> None:
        """Write for everyone who waits."""
        self._gather(entry)
        if entry.company:
            self._write_together([entry, *entry.company])
        if entry.answers is None:
            entry.answers = self._alone(entry)

    def _gather(self, entry: _Entry) -> None:
        """Those who wait and may be written together: a run is in it once, so that no row is written twice by one statement."""
        with self._lock:
            run_ids, rows, size = set(entry.run_ids), len(entry.writes), entry.size
            for other in tuple(self._waiting):
                rows, size = rows + len(other.writes), size + other.size
                if rows > _ROWS_AT_MOST or size > _CHARACTERS_AT_MOST:
                    break
                if run_ids.isdisjoint(other.run_ids):
                    entry.company.append(other)
                    self._waiting.remove(other)
                    run_ids |= other.run_ids

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

    def _leave(self, entry: _Entry) -> None:
        """Hand over to one of those who came meanwhile, and let go whom it wrote for; also when its thread was interrupted at any moment.

        May be done again. What an interrupted thread waited for is written by another, or not at all: its answer is lost.
        """
        with self._lock:
            for gone in (entry, *entry.company):
                if gone in self._waiting:
                    self._waiting.remove(gone)
            if self._leader is entry:
                self._leader = self._waiting.popleft() if self._waiting else None
            leader = self._leader
        for other in entry.company:
            other.is_over.set()
        if leader is not None:
            leader.is_over.set()


_WRITERS: Final[WeakSet[GroupWriter]] = WeakSet()


def _begin_anew() -> None:
    for writer in tuple(_WRITERS):
        writer.begin()


# Before the child has another thread: two of them would begin it twice.
os.register_at_fork(after_in_child=_begin_anew)
