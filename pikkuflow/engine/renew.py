"""Renew what live processes hold, by holder (design 3.1, 7)."""

from __future__ import annotations

from collections.abc import Sequence

from pikkuflow.domain.act import PassRef
from pikkuflow.domain.ids import Holder
from pikkuflow.engine.front_door import run_key
from pikkuflow.engine.runtime import Runtime
from pikkuflow.ports import Leases

__all__ = ["renew"]


def renew(rt: Runtime, holders: Sequence[Holder]) -> None:
    """Extend the passes and claims of these processes, then the front doors of the runs they work.

    A door that was lost (Redis emptied, or failed over) is taken again: the row says that the pass goes on (D19). A lease service that
    does not answer is left alone. Raises ``StoreUnavailable``.
    """
    if not holders:
        return
    renewed = rt.store.renew_holders(holders, rt.settings.run_lease_seconds)
    if rt.leases is None:
        return
    try:
        _renew_doors(rt, rt.leases, renewed.passes)
    except ConnectionError:
        return


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
