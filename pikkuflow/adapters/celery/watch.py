"""The daemon threads of a worker's main process: they see dead children, fire timers and renew what living ones hold (design 3.9, 4, 7).

They have their own connections, so they never wait behind user code, and short patience with the database, so that one duty does not keep
the others waiting. A duty that fails is logged and comes round again: none of them is needed for anything but speed, sweeps do the rest.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from celery.worker import state

from pikkuflow.adapters.celery.extension import Extension
from pikkuflow.adapters.celery.node import TimedOut
from pikkuflow.adapters.celery.node_lease import NodeLease
from pikkuflow.adapters.celery.pools import (
    busy_pids,
    dead_children,
    is_green,
    live_children,
    note_births,
    start_thread,
)
from pikkuflow.adapters.celery.process_identity import age_seconds, identity_of
from pikkuflow.adapters.celery.stillness import stillness
from pikkuflow.domain.failure import Failure
from pikkuflow.engine.fail_claim import fail_claimed
from pikkuflow.engine.fire_timer import fire_due
from pikkuflow.engine.renew import RENEWALS_A_LEASE, Renewal
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.sweep import SweepKind, recover
from pikkuflow.engine.take_over import take_over_holder
from pikkuflow.engine.versions import wake_for_code
from pikkuflow.errors import StoreUnavailable

__all__ = ["Watch"]

_LOGGER: Final = logging.getLogger("pikkuflow.worker")
_TICK_SECONDS: Final = 0.2
_CONNECTIONS: Final = 3
_STALE_INTERVALS: Final = 3
_RENEWAL: Final = "renewal"
_QUIET_SECONDS: Final = 30.0
"""A duty that goes on failing is logged this often."""


@dataclass(slots=True)
class _Duty:
    name: str
    every_seconds: float
    act: Callable[[], None]
    next_at: float = 0.0
    logged_at: float | None = None


class Watch:
    """One for each running worker."""

    def __init__(self, ext: Extension, worker: Any) -> None:
        self._ext = ext
        self._worker = worker
        self._rt: Runtime = ext.compose(connections=_CONNECTIONS, patience_seconds=1.0)
        self._clock = self._rt.clock
        self._began = self._clock.monotonic()
        self._ended = threading.Event()
        self._children: set[int] = set()
        self._born: deque[int] = deque()
        self._taken: set[int] = set()
        self._late: list[TimedOut] = []
        self._renewal = Renewal(self._rt)
        self._sweeping = threading.Lock()
        self._still = stillness(ext.settings.database_url, self._rt.store.close)
        self._lease = NodeLease(
            worker.hostname, ext.node, ext.settings.node_lease_seconds, identity=identity_of(os.getpid())
        )
        self._duties = self._list_duties()

    def start(self) -> None:
        """Start the threads; after the pool's first processes. Renewal has its own: a Redis that does not answer must not delay it."""
        green = is_green(type(self._worker.pool))
        note_births(self._worker, self._born.append)
        renewal = [duty for duty in self._duties if duty.name == _RENEWAL]
        others = [duty for duty in self._duties if duty.name != _RENEWAL]
        start_thread("pikkuflow-renew", lambda: self._watch(renewal), green=green)
        start_thread("pikkuflow-watch", lambda: self._watch(others), green=green)

    def sweep_once(self, *, began_at: float | None = None) -> None:
        """Run all sweeps in a thread of their own, unless one is under way here: they may take long, leases may not wait.

        ``began_at`` makes it a startup pass (``recover``).
        """
        start_thread("pikkuflow-sweep", lambda: self._sweep(began_at=began_at), green=is_green(type(self._worker.pool)))

    def look_for_leftovers(self) -> None:
        """Drive at once what was left before this process began (design 3.8)."""
        self.sweep_once(began_at=self._clock.monotonic() - age_seconds())

    def end(self) -> None:
        """End the thread and release the node's name: last of all, when no child works any more."""
        self._ended.set()
        with self._still:
            try:
                self._lease.release(self._rt)
                self._rt.store.close()
            except Exception:
                _LOGGER.debug("The node lease was left to lapse.", exc_info=True)

    # --- the thread -------------------------------------------------------------------------------------------------
    def _list_duties(self) -> list[_Duty]:
        settings = self._ext.settings
        leases = (
            settings.run_lease_seconds,
            settings.step_lease_seconds,
            *settings.step_lease_seconds_by_queue.values(),
        )
        duties = [
            _Duty("hard limits", _TICK_SECONDS, self._fail_timed_out),
            _Duty("dead children", _TICK_SECONDS, self._take_over_dead),
            _Duty("timers", _TICK_SECONDS, self._fire_timers),
            _Duty(_RENEWAL, min(leases) / RENEWALS_A_LEASE, self._renew),
            _Duty("node lease", settings.node_lease_seconds / RENEWALS_A_LEASE, self._keep_name),
            _Duty("a free name", _TICK_SECONDS, self._take_name),
        ]
        if settings.recovery:
            duties.append(_Duty("missing sweeps", settings.sweep_interval, self._sweep_if_none_does))
        return duties

    def _watch(self, duties: list[_Duty]) -> None:
        tick_seconds = min(_TICK_SECONDS, *(duty.every_seconds for duty in duties))
        while not self._ended.wait(tick_seconds):
            now = self._clock.monotonic()
            due = [duty for duty in duties if duty.next_at <= now]
            with self._still:
                for duty in due:
                    duty.next_at = now + duty.every_seconds
                    self._do(duty, now)

    def _do(self, duty: _Duty, now: float) -> None:
        if self._ended.is_set():
            return
        try:
            duty.act()
            duty.logged_at = None
        except Exception:
            if duty.logged_at is None or now - duty.logged_at > _QUIET_SECONDS:
                duty.logged_at = now
                # A log handler that fails as well must not end the thread.
                with suppress(Exception):
                    _LOGGER.warning(
                        "The worker's watch could not do its duty (%s); it tries again.", duty.name, exc_info=True
                    )

    # --- duties -----------------------------------------------------------------------------------------------------
    def _fail_timed_out(self) -> None:
        """Once the child works no more: what it had begun is known then. Before the dead are looked at: the claims must still be its."""
        while not self._ext.node.timed_out.empty():
            self._late.append(self._ext.node.timed_out.get_nowait())
        ended = dead_children({late.pid for late in self._late}, set(live_children(self._worker)))
        for late in [late for late in self._late if late.pid in ended]:
            failure = Failure(
                type="billiard.exceptions.TimeLimitExceeded",
                message=f"TimeLimitExceeded: the hard time limit of {late.seconds:g} s was reached",
            )
            self._late.remove(late)
            try:
                fail_claimed(self._rt, late.run_id, late.steps, late.holder, failure)
            except StoreUnavailable:
                self._late.append(late)
                raise

    def _take_over_dead(self) -> None:
        # Births first: whoever was born and is not in the pool any more has ended.
        while self._born:
            self._children.add(self._born.popleft())
        now = set(live_children(self._worker))
        # One that was ended by a limit is left until that is written.
        late = {late.pid for late in self._late}
        dead = dead_children(self._children, now) - self._taken - late
        self._children |= now
        for pid in sorted(dead):
            take_over_holder(self._rt, self._ext.node.holder(pid))
            self._taken.add(pid)
        self._children = now | (self._children & late)
        self._taken &= now

    def _fire_timers(self) -> None:
        if not self._ext.node.is_stopping():
            fire_due(self._rt)

    def _renew(self) -> None:
        busy = busy_pids(state.active_requests)
        if not busy:
            return
        children = live_children(self._worker)
        pids = busy & set(children) if children else {os.getpid()}
        self._renewal.renew([self._ext.node.holder(pid) for pid in sorted(pids)])

    def _keep_name(self) -> None:
        self._lease.keep(self._rt)

    def _take_name(self) -> None:
        """What a dead predecessor held is taken over as soon as its lease has lapsed."""
        if self._lease.is_waiting:
            self._lease.keep(self._rt)

    def _sweep_if_none_does(self) -> None:
        """Beat may be down, or its messages stuck behind a backlog (design 3.8)."""
        alive_seconds = self._clock.monotonic() - self._began
        if not self._ext.node.is_stopping() and _is_stale(
            self._rt.store.sweep_ages(), alive_seconds, _STALE_INTERVALS * self._ext.settings.sweep_interval
        ):
            self.sweep_once()

    def _sweep(self, *, began_at: float | None = None) -> None:
        if not self._sweeping.acquire(blocking=False):
            return
        try:
            with self._still:
                recover(self._rt, began_at=began_at)
                if began_at is not None:
                    wake_for_code(self._rt)
        except Exception:
            _LOGGER.warning("A sweep by this worker failed; it is tried again.", exc_info=True)
        finally:
            self._sweeping.release()


def _is_stale(ages: Mapping[str, float], alive_seconds: float, limit_seconds: float) -> bool:
    """Whether some kind of sweep has not run for that long; one that never ran counts from the worker's start."""
    return any(ages.get(kind.value, alive_seconds) > limit_seconds for kind in SweepKind)
