"""The message ``pikkuflow.orchestrate``: one pass over each of its runs (spec 16.3)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from threading import Lock, Semaphore, Thread
from typing import Final

from pikkuflow.domain.ids import RunId
from pikkuflow.engine.break_off import is_outage
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.send import SOON_SECONDS, wake_runs
from pikkuflow.engine.tell import warn
from pikkuflow.engine.watch_starts import WATCH
from pikkuflow.engine.work_pass import PassEnd, work_pass
from pikkuflow.errors import NoLeaseService

__all__ = ["HELPERS", "SHARE_SECONDS", "orchestrate", "seconds_until_due"]

HELPERS: Final = 11
"""Threads of a process that help with messages for several runs, when outcomes are written together."""

SHARE_SECONDS: Final = 0.25
"""How long a message for several runs is worked by the process that took it alone."""

_SHARE_TOGETHER_SECONDS: Final = 1.0
"""The same where outcomes are written together: many runs are under way at once, and fewer share a write once they are handed on."""

_HELPERS: Final = Semaphore(HELPERS)

_SOONEST_SECONDS: Final = 0.2


def orchestrate(rt: Runtime, run_ids: Sequence[RunId], *, lightly: bool = False) -> None:
    """Work one pass over each run, in order; what one of them raises does not keep the others back.

    What is left of a message after ``SHARE_SECONDS`` is handed on, in messages of as many runs as were worked in that time: one process
    must not keep what others have the time for.

    With a group writer they are worked at once, by this thread and up to ``HELPERS`` more of the process, so that they have something to
    write together.

    A run that is held, or whose start is not due, gets a hint and the message succeeds (D11). Runs that the message cannot reach in its
    time (``pass_seconds``), or because the worker stops, get one for now. A settled run is answered by its opening: the door was taken
    and is released again, which costs no statement (T8.5). ``lightly`` is as in ``work_pass``.

    Raises:
        NoLeaseService: the engine was composed without leases (T8.4); nothing was opened.
        Exception: the first error of a pass (``StoreUnavailable``), after all were worked.
        BaseException: ``SystemExit`` and the like, at once (with several threads: when each has ended the pass in hand).
    """
    message = _Message(rt, run_ids, lightly=lightly)
    wanted = len(run_ids) - 1 if rt.writer is not None else 0
    others = [thread for _ in range(wanted) if (thread := _started(message)) is not None]
    with message.shared():
        message.work()
        for thread in others:
            thread.join()
    message.end()


def _started(message: _Message) -> Thread | None:
    """One more thread for the message, unless the process has enough of them."""
    if not _HELPERS.acquire(blocking=False):
        return None

    def work() -> None:
        try:
            message.work()
        finally:
            _HELPERS.release()

    # What is traced, say, is traced there too.
    thread = Thread(target=copy_context().run, args=(work,), name="pikkuflow-runs", daemon=True)
    thread.start()
    return thread


class _Message:
    """The runs of one message, which one thread works or several."""

    def __init__(self, rt: Runtime, run_ids: Sequence[RunId], *, lightly: bool) -> None:
        self._rt = rt
        self._lightly = lightly
        self._left = deque(run_ids)
        self._is_begun = False
        self._lock = Lock()
        self._handing = Lock()
        """Held while runs that were taken out of the message are on their way."""
        self._worked = 0
        self._begun_at = rt.clock.monotonic()
        self._first: Exception | None = None
        self._fatal: BaseException | None = None

    @contextmanager
    def shared(self) -> Iterator[None]:
        """While the block runs, the thread that watches what is being worked hands on what is left after a while.

        It ends when that has left: the process may go away once its message is done, and nobody else knows of those runs before a sweep.
        """
        if len(self._left) <= 1 or not self._rt.has_broker:
            yield
            return
        after = SHARE_SECONDS if self._rt.writer is None else _SHARE_TOGETHER_SECONDS
        key = WATCH.begin(lambda: self._seconds() >= after, self._hand_on, after_seconds=after)
        try:
            yield
        finally:
            WATCH.end(key)
            with self._handing:
                pass

    def work(self) -> None:
        """Work runs while there are any that may be begun."""
        while (run_id := self._next()) is not None:
            try:
                _work(self._rt, run_id, lightly=self._lightly)
                self._worked += 1
            except NoLeaseService as error:
                self._left.clear()
                self._fatal = error
            except Exception as error:  # noqa: BLE001 - raised at the end, once the others had their pass
                _note(self._rt, run_id, error)
                self._first = self._first or error
            except BaseException as error:  # noqa: BLE001 - as above; nothing more is begun
                self._fatal = error

    def end(self) -> None:
        """Leave what was not begun to others, and raise what was raised."""
        for run_id in self._left:
            self._rt.hints.leave(run_id, 0.0)
        error = self._fatal or self._first
        if error is not None:
            raise error

    def _next(self) -> RunId | None:
        with self._lock:
            if not self._left or self._fatal is not None or (self._is_begun and self._is_over()):
                return None
            self._is_begun = True
            return self._left.popleft()

    def _hand_on(self) -> None:
        with self._handing:
            with self._lock:
                left, pieces = list(self._left), max(1, self._worked)
                self._left.clear()
            if left:
                self._send_on(left, pieces)

    def _send_on(self, left: Sequence[RunId], pieces: int) -> None:
        try:
            found = self._rt.store.find_runs(left)
            wake_runs(self._rt, [one.ref for one in found], at_most=pieces)
        except Exception as error:  # noqa: BLE001 - the thread that watches must live; they come back as those that were not reached
            warn(self._rt, f"It could not be handed on, like {len(left) - 1} more: {error!r}", run_id=left[0])
            for run_id in left:
                self._rt.hints.leave(run_id, SOON_SECONDS)

    def _is_over(self) -> bool:
        return self._rt.is_stopping() or self._seconds() >= self._rt.settings.pass_seconds

    def _seconds(self) -> float:
        return self._rt.clock.monotonic() - self._begun_at


def _note(rt: Runtime, run_id: RunId, error: Exception) -> None:
    """An outage is over when it is over. What is wrong otherwise was told, and closed with a time of its own (``break_off``)."""
    if is_outage(error):
        warn(rt, f"A pass could not be worked: {error!r}", run_id=run_id)
        rt.hints.leave(run_id, SOON_SECONDS)


def _work(rt: Runtime, run_id: RunId, *, lightly: bool) -> None:
    result = work_pass(rt, run_id, lightly=lightly)
    # A pass that was opened lightly may have been fenced by a server that died and forgot it: nobody else has the run then.
    if result.end is PassEnd.HELD or (lightly and result.end is PassEnd.SUPERSEDED):
        rt.hints.leave(run_id, SOON_SECONDS)
    if result.end is PassEnd.NOT_DUE:
        rt.hints.leave(run_id, seconds_until_due(rt, run_id))


def seconds_until_due(rt: Runtime, run_id: RunId) -> float:
    """How long until a delayed run may start; a little, when this process' clock says that it may already."""
    run = rt.store.get_run(run_id)
    if run is None or run.due_at is None:
        return _SOONEST_SECONDS
    return max(_SOONEST_SECONDS, (run.due_at - rt.clock.now()).total_seconds())
