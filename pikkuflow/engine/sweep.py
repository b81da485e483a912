"""Sweeps: bounded, repeatable repair of what a crash or a lost message left behind (design 3.8, spec 7).

A sweep selects and sends; it changes no outcome. What it drives is guarded where it lands: an opening or a claim judges again. Selecting
raises each row's next-send time in the same statement, so a backlog is not amplified by a fleet.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final, TypeVar

from pikkuflow.domain.act import RunRef, StepMessage, SweepRequest, Swept
from pikkuflow.engine.deadlines import end_overdue_runs
from pikkuflow.engine.deliver import Delivery, deliver
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.send import routed
from pikkuflow.engine.tell import warn
from pikkuflow.engine.with_lease import HeldLease, with_lease
from pikkuflow.errors import DispatchError, LeaseLost, LeaseTaken

__all__ = ["SweepCounts", "SweepKind", "recover", "sweep"]

_LOGGER: Final = logging.getLogger("pikkuflow")
_SHORTEST_LEASE_SECONDS: Final = 3.0
_LONGEST_LEASE_SECONDS: Final = 30.0
_HINTS_WITHIN_SECONDS: Final = 3600.0
_HINT_PAGES: Final = 100
_LEASES_AT_ONCE: Final = 1000

T = TypeVar("T", bound=RunRef | StepMessage)


class SweepKind(StrEnum):
    """The three sweeps."""

    STALLED = "stalled"
    UNDISPATCHED = "undispatched"
    SCHEDULED = "scheduled"


_ORDER: Final = (SweepKind.SCHEDULED, SweepKind.STALLED, SweepKind.UNDISPATCHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCounts:
    """What was really driven (spec 7.3)."""

    resumed: int = 0
    """Stalled runs."""
    redispatched: int = 0
    """Steps that were not sent, or sent and not picked up, or whose claim lapsed."""
    woken: int = 0
    """Runs with a sleep, a retry or a start that is due, and those whose own time was over."""
    retried: int = 0
    """Dispatched retries that are due."""
    delivered: int = 0
    """Outcomes handed on that could not be before."""
    unsent: int = 0
    """Runs and steps that were found and whose messages did not leave; a later sweep sends them."""
    undelivered: int = 0
    """Outcomes that could still not be handed on."""

    def __add__(self, other: SweepCounts) -> SweepCounts:
        """Sum them field by field."""
        return SweepCounts(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def __bool__(self) -> bool:
        """Whether anything was driven."""
        return any((self.resumed, self.redispatched, self.woken, self.retried, self.delivered))


def sweep(rt: Runtime, kind: SweepKind, *, began_at: float | None = None) -> SweepCounts:
    """Run one kind of sweep, page by page, under the lease ``workflow-recovery:<kind>``.

    ``began_at`` makes it a startup pass: the ``monotonic`` of ``rt.clock`` at which this process began. What was left before that is driven
    at once, whatever the thresholds; what came since is younger than anything that an earlier process can have lost, and sending it again
    would only put off its next time (``next_send_at``, shared by the fleet).

    Another sweeper of that kind is silently left to it (T10.11); a lease service that does not answer keeps nothing back, since sweeping
    twice is safe. What one row raises does not stop the others (T10.9).

    Raises ``StoreUnavailable``.
    """
    counts = _under_lease(rt, kind, began_at=began_at)
    _log(counts)
    return counts


def recover(rt: Runtime, *, began_at: float | None = None) -> SweepCounts:
    """Run all kinds, in the order scheduled, stalled, undispatched; one line with five counts when anything was done (T10.13).

    ``began_at`` as in ``sweep``; a startup pass also leaves the hints of rows not yet due again. Raises ``StoreUnavailable``.
    """
    counts = SweepCounts()
    for kind in _ORDER:
        counts += _under_lease(rt, kind, began_at=began_at)
    _log(counts)
    return counts


def _under_lease(rt: Runtime, kind: SweepKind, *, began_at: float | None) -> SweepCounts:
    if rt.leases is None:
        return _swept(rt, kind, None, began_at=began_at)
    found: list[SweepCounts] = []
    try:
        with_lease(
            rt.leases,
            f"workflow-recovery:{kind}",
            f"{rt.holder()}:{rt.ids.new_id()}",
            lambda held: found.append(_swept(rt, kind, held, began_at=began_at)),
            ttl_seconds=_lease_seconds(rt),
            clock=rt.clock,
        )
    except LeaseTaken:
        return SweepCounts()
    except LeaseLost:
        # What was driven was driven; another sweeper may drive it again, which is harmless.
        return found[0] if found else SweepCounts()
    except ConnectionError:
        return found[0] if found else _swept(rt, kind, None, began_at=began_at)
    return found[0]


def _lease_seconds(rt: Runtime) -> float:
    """One interval, renewed while the sweep goes on: a sweeper that is killed keeps the next ones away for no longer (scenario 18)."""
    return min(_LONGEST_LEASE_SECONDS, max(_SHORTEST_LEASE_SECONDS, rt.settings.sweep_interval))


def _swept(rt: Runtime, kind: SweepKind, held: HeldLease | None, *, began_at: float | None) -> SweepCounts:
    if not rt.has_broker:
        return SweepCounts()
    counts = _Sweep(rt, kind, held, began_at=began_at).work()
    rt.store.note_sweep(kind)
    return counts


_COUNTED: Final = {
    Delivery.DONE: SweepCounts(delivered=1),
    Delivery.NOTHING: SweepCounts(),
    Delivery.FAILED: SweepCounts(undelivered=1),
    Delivery.AWAY: SweepCounts(undelivered=1),
}


class _Sweep:
    def __init__(self, rt: Runtime, kind: SweepKind, held: HeldLease | None, *, began_at: float | None) -> None:
        self._rt = rt
        self._kind = kind
        self._held = held
        self._began_at = began_at

    def work(self) -> SweepCounts:
        counts, after = SweepCounts(), None
        while self._held is None or not self._held.is_lost:
            page = self._page(after)
            counts += self._drive(page)
            if page.last is None:
                break
            after = page.last
        if self._kind is SweepKind.STALLED:
            counts += self._deliver()
        if self._kind is SweepKind.SCHEDULED:
            counts += SweepCounts(woken=end_overdue_runs(self._rt))
            self._forget_leases()
            if self._began_at is not None:
                self._leave_hints()
        return counts

    def _page(self, after: str | None) -> Swept:
        store = self._rt.store
        pages: dict[SweepKind, Callable[[SweepRequest], Swept]] = {
            SweepKind.STALLED: store.sweep_stalled,
            SweepKind.UNDISPATCHED: store.sweep_undispatched,
            SweepKind.SCHEDULED: store.sweep_scheduled,
        }
        request = SweepRequest(
            older_than_seconds=_threshold(self._rt, self._kind, self._began_at),
            limit=self._rt.settings.sweep_page,
            after=after,
        )
        return pages[self._kind](request)

    def _drive(self, page: Swept) -> SweepCounts:
        for run_id in page.forgotten:
            warn(self._rt, "Nothing would have moved this run on; the sweep gives it a pass.", run_id=run_id)
        runs = self._send(page.runs, self._rt.dispatcher.wake)
        steps = self._send(page.steps, self._send_steps)
        unsent = len(page.runs) + len(page.steps) - runs - steps
        if self._kind is SweepKind.SCHEDULED:
            return SweepCounts(woken=runs, retried=steps, unsent=unsent)
        return SweepCounts(resumed=runs, redispatched=steps, unsent=unsent)

    def _send_steps(self, messages: Sequence[StepMessage]) -> None:
        self._rt.dispatcher.send_steps([routed(self._rt, message) for message in messages])

    def _send(self, items: Sequence[T], send: Callable[[Sequence[T]], None]) -> int:
        """Send all at once; when one of them is refused, each by itself. The number that left."""
        if not items:
            return 0
        try:
            send(items)
        except DispatchError as error:
            # The broker is away for all of them alike; the rows come back when their next-send time is over.
            first = items[0]
            warn(
                self._rt,
                f"The {self._kind} sweep could not send {_what(items)}: {error}",
                run_id=first.id if isinstance(first, RunRef) else first.run_id,
            )
            return 0
        except Exception:  # noqa: BLE001 - found out which below
            return sum(self._send_one(item, send) for item in items)
        return len(items)

    def _send_one(self, item: T, send: Callable[[Sequence[T]], None]) -> bool:
        try:
            send([item])
        except Exception as error:  # noqa: BLE001 - one bad row does not stop the sweep (T10.9)
            run_id = item.id if isinstance(item, RunRef) else item.run_id
            warn(self._rt, f"The {self._kind} sweep could not drive this run: {error!r}", run_id=run_id)
            return False
        return True

    def _forget_leases(self) -> None:
        if self._rt.leases is not None:
            # Its outage is not the sweep's, and there is time for this.
            with suppress(ConnectionError):
                self._rt.leases.forget(_LEASES_AT_ONCE)

    def _leave_hints(self) -> None:
        """Hints of what comes soon are left again: the service may have lost them (T10.7). Later ones cost one sweep interval."""
        after = None
        for _ in range(_HINT_PAGES):
            page = self._rt.store.upcoming(_HINTS_WITHIN_SECONDS, self._rt.settings.sweep_page, after)
            self._rt.hints.leave_again(page.due)
            after = page.last
            if after is None or (self._held is not None and self._held.is_lost):
                return

    def _deliver(self) -> SweepCounts:
        """Outcomes that are due to be handed on, until an outage: those not tried keep their time and come first when it is over."""
        store, counts = self._rt.store, SweepCounts()
        while self._held is None or not self._held.is_lost:
            runs = store.undelivered_runs(self._rt.settings.sweep_page)
            for run in runs:
                # Before it is tried: one whose delivery kills this process would be the first of every page.
                if not store.put_off_delivery(run.id):
                    continue
                result = deliver(self._rt, run)
                counts += _COUNTED[result]
                if result is Delivery.AWAY:
                    return counts
            if not runs:
                break
        return counts


def _what(items: Sequence[RunRef | StepMessage]) -> str:
    noun = "run" if isinstance(items[0], RunRef) else "step"
    return f"this {noun}" if len(items) == 1 else f"{len(items)} {noun}s, this one among them"


def _threshold(rt: Runtime, kind: SweepKind, began_at: float | None) -> float:
    """Seconds of patience (D14): a due row is fired at once, firing it twice is harmless."""
    patience = {
        SweepKind.STALLED: rt.settings.stalled_seconds,
        SweepKind.UNDISPATCHED: rt.settings.undispatched_seconds,
        SweepKind.SCHEDULED: 0.0,
    }[kind]
    return patience if began_at is None else min(patience, rt.clock.monotonic() - began_at)


def _log(counts: SweepCounts) -> None:
    if counts:
        _LOGGER.info(
            "recovered: %d runs resumed, %d steps sent again, %d runs woken, %d retries sent, %d outcomes handed on",
            counts.resumed,
            counts.redispatched,
            counts.woken,
            counts.retried,
            counts.delivered,
        )
