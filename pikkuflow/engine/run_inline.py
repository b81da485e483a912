"""Work a whole run in the calling process, without broker or worker (D26)."""

from __future__ import annotations

from functools import partial
from typing import Final

from pikkuflow.domain.ids import RunId
from pikkuflow.domain.run import Run
from pikkuflow.engine.front_door import run_key
from pikkuflow.engine.keep import kept
from pikkuflow.engine.orchestrate import seconds_until_due
from pikkuflow.engine.renew import renew
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.work_pass import PassEnd, PassResult, work_pass
from pikkuflow.errors import LeaseLost, RunNotFound

__all__ = ["run_inline"]

_LOOK_SECONDS: Final = 0.5
"""How long to wait before looking again at a run that someone else holds, or that waits for something without a time."""


def run_inline(rt: Runtime, run_id: RunId) -> Run:
    """Open passes until the run is settled or suspended, waiting here for sleeps and retry delays; children are worked here as well.

    Returns the run as it then is: settled, or as far as it goes here when only a person or other code can move it (it, or a child that it
    waits for, is suspended).

    Raises:
        RunNotFound: there is no such run.
        LeaseLost: the run was taken from this process while it worked; nothing was written since (T8.1). It goes on elsewhere.
        NoLeaseService: the engine was composed without leases.
        StoreUnavailable: the database stayed away.
    """
    with kept(rt):
        _work_run(rt, run_id)
    run = rt.store.get_run(run_id)
    if run is None:
        raise RunNotFound(f"There is no run {run_id!r}.", run_id)
    return run


def _work_run(rt: Runtime, run_id: RunId) -> bool:
    """Whether the run is settled; False: nothing here can move it on."""
    while True:
        stuck: list[RunId] = []
        result = work_pass(rt, run_id, works_child=partial(_work_child, rt, stuck))
        if result.end in {PassEnd.SETTLED, PassEnd.MISSING}:
            return True
        if result.end is PassEnd.SUSPENDED and not result.again:
            return _left_to_others(rt, run_id, result)
        if result.end is PassEnd.SUPERSEDED:
            raise LeaseLost(
                f"Run {run_id!r} was taken by another process while it was worked here.",
                run_key(run_id),
                hint="Ask for its result: it goes on there.",
            )
        if result.again:
            continue
        if stuck and result.due_seconds is None:
            return _left_to_others(rt, run_id, result)
        _wait(rt, _pause(rt, run_id, result))


def _left_to_others(rt: Runtime, run_id: RunId, result: PassResult) -> bool:
    """Who moves it on sends a message; only a hint says that its time is over, or that of what it waits for. Always False."""
    if rt.has_broker and result.hint_seconds is not None:
        rt.hints.leave(run_id, result.hint_seconds)
    return False


def _work_child(rt: Runtime, stuck: list[RunId], child: RunId) -> None:
    if not _work_run(rt, child):
        stuck.append(child)


def _pause(rt: Runtime, run_id: RunId, result: PassResult) -> float:
    if result.end is PassEnd.NOT_DUE:
        return seconds_until_due(rt, run_id)
    return _LOOK_SECONDS if result.due_seconds is None else result.due_seconds


def _wait(rt: Runtime, seconds: float) -> None:
    """Wait in slices and renew between them: a parent that waits for this run is held all the while."""
    until = rt.clock.monotonic() + seconds
    while (left := until - rt.clock.monotonic()) > 0:
        rt.clock.sleep(min(left, rt.settings.run_lease_seconds / 3))
        renew(rt, [rt.holder()])
