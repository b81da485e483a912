"""Take over what a dead process or node held, by holder and never by key (design 3.9)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pikkuflow.domain.act import Expired, RunRef
from pikkuflow.domain.ids import Holder, RunId
from pikkuflow.domain.status import StepStatus
from pikkuflow.domain.step import Place
from pikkuflow.engine.front_door import run_key
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.send import SOON_SECONDS, message_of, send_steps, wake_runs

__all__ = ["take_over_holder", "take_over_node"]


def take_over_holder(rt: Runtime, holder: Holder, *, in_hand: Sequence[RunId] = ()) -> None:
    """Expire what a dead process held, then wake its runs and send its steps again with the same attempt: the claim counts another.

    ``in_hand`` are the runs of the message that it took last. A pass that it worked without opening held nothing: such a run is woken, and
    what its latest act sent is sent again, since that may not have left (``docs/decisions/unopened-passes.md``).
    """
    expired = rt.store.expire_holder(holder)
    _take_over(rt, expired, f"{holder}:")
    known = {ref.id for ref in expired.runs} | {message.run_id for message in expired.steps}
    others = [run_id for run_id in in_hand if run_id not in known]
    for found in rt.store.find_runs(others) if others else ():
        if found.held_seconds is None:
            _go_on(rt, found.ref)


def _go_on(rt: Runtime, ref: RunRef) -> None:
    run = rt.store.get_run(ref.id)
    if run is None:
        return
    latest = run.updated_at - timedelta(seconds=SOON_SECONDS)
    rows = [row for row in rt.store.list_steps(ref.id) if row.status is StepStatus.SCHEDULED]
    unsent = [row for row in rows if Place.is_queue(row.place) and row.created_at >= latest]
    send_steps(rt, [message_of(rt, row) for row in unsent])
    if run.news > run.seen:
        wake_runs(rt, [ref])


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
