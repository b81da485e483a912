"""Take over what a dead process or node held, by holder and never by key (design 3.9)."""

from __future__ import annotations

from pikkuflow.domain.act import Expired
from pikkuflow.domain.ids import Holder
from pikkuflow.engine.front_door import run_key
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.send import send_steps, wake_runs

__all__ = ["take_over_holder", "take_over_node"]


def take_over_holder(rt: Runtime, holder: Holder) -> None:
    """Expire what a dead process held, then wake its runs and send its steps again with the same attempt: the claim counts another."""
    _take_over(rt, rt.store.expire_holder(holder), f"{holder}:")


def take_over_node(rt: Runtime, node: str) -> None:
    """As ``take_over_holder``, for every process of a node uuid."""
    _take_over(rt, rt.store.expire_node(node), f"{node}:")


def _take_over(rt: Runtime, expired: Expired, holder_prefix: str) -> None:
    _free_doors(rt, expired, holder_prefix)
    wake_runs(rt, expired.runs)
    send_steps(rt, expired.steps)


def _free_doors(rt: Runtime, expired: Expired, holder_prefix: str) -> None:
    if rt.leases is None:
        return
    try:
        for ref in expired.passes:
            rt.leases.expire(run_key(ref.run_id), holder_prefix)
    except ConnectionError:
        return
