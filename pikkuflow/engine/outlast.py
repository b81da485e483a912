"""Outlast what is away: work that is done is not done again because its outcome could not be encoded or written at once.

The store has its own patience; this is about what it does not know: a codec hook whose service is down, an exception that strikes the write
from outside (Celery's soft time limit is raised wherever the process happens to be), and the moments in which a worker stops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from pikkuflow.domain.ids import RunId
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.tell import warn
from pikkuflow.errors import PayloadError, StepSuperseded

__all__ = ["outlast"]

T = TypeVar("T")

_FIRST_SECONDS: Final = 0.05
_LONGEST_SECONDS: Final = 5.0
_STOPPING_SECONDS: Final = 10.0
"""How long a worker that stops goes on trying: longer than a failover, shorter than the patience of supervisors."""
_STRANGE_TRIES: Final = 3
_TOLD_EVERY_SECONDS: Final = 60.0


def outlast(
    rt: Runtime, act: Callable[[], T], *, what: str, run_id: RunId, is_outage: Callable[[Exception], bool]
) -> T:
    """Do ``act`` until it goes through, pausing 0.05 s, doubling up to 5 s, with jitter. The claim is renewed meanwhile, as while it works.

    Args:
        rt: the engine's surroundings.
        act: idempotent.
        what: names it in the warning, which comes with the second failure and then once a minute.
        run_id: its run, for the warning.
        is_outage: the error is over when something is back. Any other is tried three times: it may have struck from outside.

    Raises:
        PayloadError, StepSuperseded: at once; another try would find the same.
        Exception: what ``act`` raised last, when it is no outage, or when the worker has been stopping for 10 s.
    """
    struggle = _Struggle(rt, what, run_id, is_outage)
    while True:
        try:
            # Inside, for an exception from outside may strike the pause too.
            struggle.pause()
            return act()
        except (PayloadError, StepSuperseded):
            raise
        except Exception as error:
            struggle.failed(error)
            if struggle.is_lost:
                raise


class _Struggle:
    def __init__(self, rt: Runtime, what: str, run_id: RunId, is_outage: Callable[[Exception], bool]) -> None:
        self._rt = rt
        self._what = what
        self._run_id = run_id
        self._is_outage = is_outage
        self._failures = self._strange = 0
        self._last: Exception | None = None
        self._told_at: float | None = None
        self._stops_at: float | None = None

    def failed(self, error: Exception) -> None:
        self._last = error
        self._failures += 1
        self._strange += not self._is_outage(error)
        if self._rt.is_stopping() and self._stops_at is None:
            self._stops_at = self._rt.clock.monotonic() + _STOPPING_SECONDS

    @property
    def is_lost(self) -> bool:
        is_over = self._stops_at is not None and self._rt.clock.monotonic() >= self._stops_at
        return is_over or self._strange >= _STRANGE_TRIES

    def pause(self) -> None:
        if self._failures > 1:
            self._tell()
        if self._failures:
            longest = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2.0 ** min(self._failures - 1, 10))
            self._rt.clock.sleep(longest * (0.5 + self._rt.ids.jitter()))

    def _tell(self) -> None:
        now = self._rt.clock.monotonic()
        if self._told_at is None or now - self._told_at >= _TOLD_EVERY_SECONDS:
            self._told_at = now
            warn(self._rt, f"{self._what} has to wait and is tried again: {self._last!r}", run_id=self._run_id)
