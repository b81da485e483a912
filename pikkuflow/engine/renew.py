"""Renew what live processes hold, by holder (design 3.1, 7)."""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import suppress
from typing import Final

from pikkuflow.domain.act import PassRef, Renewed
from pikkuflow.domain.ids import Holder, RunId, StepName
from pikkuflow.domain.status import StepStatus
from pikkuflow.domain.step import Place, Step
from pikkuflow.engine.front_door import run_key
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.tell import warn
from pikkuflow.errors import StepLeaseExpired
from pikkuflow.ports import Leases

__all__ = ["RENEWALS_A_LEASE", "Renewal", "renew", "warn_of_short_leases"]

RENEWALS_A_LEASE: Final = 3
_SHORT_SECONDS: Final = 1.0

_WARNED: Final[set[tuple[Holder, float]]] = set()


class Renewal:
    """What one process renews for itself or its children, from one time to the next, so that a lost claim is told of (spec 5.3)."""

    def __init__(self, rt: Runtime) -> None:
        self._rt = rt
        self._held: frozenset[tuple[RunId, StepName]] = frozenset()
        self._told: set[tuple[RunId, StepName, int]] = set()

    def renew(self, holders: Sequence[Holder]) -> None:
        """As ``renew``. A claim of these holders that another has taken since is warned of once and not asked for again.

        Raises ``StoreUnavailable``: whether anything was lost is not known then.
        """
        claims = frozenset(renew(self._rt, holders).claims)
        gone, self._held = self._held - claims, claims
        places = {Place.worker(holder) for holder in holders}
        for run_id, name in sorted(gone):
            self._tell_if_lost(run_id, name, places)

    def _tell_if_lost(self, run_id: RunId, name: StepName, places: Container[str]) -> None:
        for attempt in self._lost(run_id, name, places):
            if (run_id, name, attempt) not in self._told:
                self._told.add((run_id, name, attempt))
                warn(
                    self._rt,
                    f"The lease of step {name!r} attempt {attempt} was lost: its outcome will be refused.",
                    run_id=run_id,
                )

    def _lost(self, run_id: RunId, name: StepName, places: Container[str]) -> list[int]:
        """Attempts that were taken from these places: an attempt that ended is not shown as running any more."""
        row = self._rt.store.get_step(run_id, name)
        if row is None:
            return []
        if row.error is not None and row.error.code == StepLeaseExpired.code and row.place in places:
            return [row.attempt]
        if row.attempt == 1:
            return []
        earlier = [each for each in self._rt.store.list_attempts(run_id) if each.step == name and each.place in places]
        return [each.attempt for each in earlier if each.status is StepStatus.RUNNING]


def renew(rt: Runtime, holders: Sequence[Holder]) -> Renewed:
    """Extend the passes and claims of these processes, then the front doors of the runs they work.

    A door that was lost (Redis emptied, or failed over) is taken again: the row says that the pass goes on (D19). A lease service that
    does not answer is left alone. Returns what is still held. Raises ``StoreUnavailable``.
    """
    if not holders:
        return Renewed()
    renewed = rt.store.renew_holders(holders, rt.settings.run_lease_seconds)
    if rt.leases is not None:
        with suppress(ConnectionError):
            _renew_doors(rt, rt.leases, renewed.passes)
    return renewed


def warn_of_short_leases(rt: Runtime, steps: Sequence[Step]) -> None:
    """Warn of a claimed step whose lease is so short that it is renewed more than once a second (D32); once a process for each length."""
    for step in steps:
        every_seconds = step.lease_seconds / RENEWALS_A_LEASE
        key = (rt.holder(), step.lease_seconds)
        if every_seconds < _SHORT_SECONDS and key not in _WARNED:
            _WARNED.add(key)
            warn(
                rt,
                f"Step {step.name!r} has a lease of {step.lease_seconds:g} s, renewed every {every_seconds:.2g} s: a short pause of its"
                f" worker loses it. Set pikkuflow_step_lease_seconds above {RENEWALS_A_LEASE * _SHORT_SECONDS:g}.",
                run_id=step.run_id,
            )


def _renew_doors(rt: Runtime, leases: Leases, refs: Sequence[PassRef]) -> None:
    if not refs:
        return
    found = leases.get_all([run_key(ref.run_id) for ref in refs])
    ours = [
        lease
        for ref, lease in zip(refs, found, strict=True)
        if lease is not None and lease.holder.endswith(f":{ref.pass_id}")
    ]
    if ours:
        leases.refresh_all(ours, rt.settings.run_lease_seconds)
    for ref, lease in zip(refs, found, strict=True):
        if lease is None:
            _take_again(rt, leases, ref)


def _take_again(rt: Runtime, leases: Leases, ref: PassRef) -> None:
    """A door that is gone is taken only while the row says that the pass goes on: nobody would release it after that."""
    run = rt.store.get_run(ref.run_id)
    if run is not None and run.pass_id == ref.pass_id and run.pass_holder is not None:
        leases.acquire(run_key(ref.run_id), f"{run.pass_holder}:{ref.pass_id}", rt.settings.run_lease_seconds)
