"""Outcomes of quick steps that the body has seen and the store has not: written together, in the order of their steps (issue C, Build 3).

They are kept for as long as nothing that rests on them leaves the process. Whoever is about to send, insert, park, close or work anything
but another quick step writes them first. While a quick step works for longer than they may be kept, the watching thread writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Final

from pikkuflow.domain.act import PassNews, StepWrite
from pikkuflow.engine.watch_starts import WATCH
from pikkuflow.ports import Clock

__all__ = ["KEPT_AT_MOST", "KEPT_CHARACTERS", "KEPT_SECONDS", "KeptOutcomes"]

KEPT_AT_MOST: Final = 20
"""Outcomes written together at most."""

KEPT_SECONDS: Final = 0.01
"""How much work may be kept, counted from the beginning of the first step among it."""

KEPT_CHARACTERS: Final = 100_000
"""A result of that size or more is written at once: it is no quick write, and many of them would be a large one."""

Write = Callable[[Sequence[StepWrite]], Sequence[PassNews | None]]
"""Writes rows of the pass's run; an answer for each."""


class KeptOutcomes:
    """What one pass keeps.

    Parameters
    ----------
    write:
        Writes outcomes; idempotent, since it is asked again with the same ones when it raised.
    clock:
        Its ``monotonic`` says how long something was kept.
    """

    def __init__(self, write: Write, clock: Clock) -> None:
        self._write = write
        self._clock = clock
        self._kept: list[StepWrite] = []
        self._since = 0.0
        self._key: int | None = None
        # Held while writing: an outcome never overtakes the ones before it.
        self._lock = Lock()
        self._answers: list[PassNews | None] = []

    def add(self, write: StepWrite, *, began_at: float) -> bool:
        """Keep an outcome of a step that began at that ``monotonic``. True: it is time to write."""
        with self._lock:
            if not self._kept:
                self._since = began_at
                self._key = WATCH.begin(self._is_due, self._write_aside, after_seconds=KEPT_SECONDS)
            self._kept.append(write)
            is_large = write.result is not None and len(write.result) >= KEPT_CHARACTERS
            return is_large or len(self._kept) >= KEPT_AT_MOST or self._is_due()

    def write(self, *more: StepWrite) -> Sequence[PassNews | None]:
        """Write everything that is kept, and ``more`` after it. The answers of all that was written since the last call.

        Raises what writing raises; then everything is still kept, but for ``more``.
        """
        if not self._kept and not self._answers:
            # The usual pass keeps nothing.
            return self._write(more) if more else ()
        with self._lock:
            writes = (*self._kept, *more)
            answers = self._write(writes) if writes else ()
            self._forget()
            found = (*self._answers, *answers)
            self._answers.clear()
            return found

    def write_aside(self) -> bool:
        """Write from another thread than the pass's; the pass hears of it with its next write. False: it could not be written now."""
        with self._lock:
            if self._kept:
                try:
                    answers = self._write(tuple(self._kept))
                except Exception:  # noqa: BLE001 - the pass will write them itself, and see what is wrong
                    return False
                self._answers.extend(answers)
                self._forget()
        return True

    def take(self) -> tuple[StepWrite, ...]:
        """Everything that is kept, for the write that closes the pass."""
        with self._lock:
            kept = tuple(self._kept)
            self._forget()
            return kept

    def drop(self) -> None:
        """The pass is over and could not write them: their steps are worked again."""
        with self._lock:
            self._forget()

    def _write_aside(self) -> None:
        self.write_aside()

    def _forget(self) -> None:
        self._kept.clear()
        if self._key is not None:
            WATCH.end(self._key)
            self._key = None

    def _is_due(self) -> bool:
        return self._clock.monotonic() - self._since >= KEPT_SECONDS
