"""The message ``pikkuflow.orchestrate``: one pass over each of its runs (spec 16.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pikkuflow.domain.ids import RunId
from pikkuflow.engine.break_off import is_outage
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.send import SOON_SECONDS
from pikkuflow.engine.tell import warn
from pikkuflow.engine.work_pass import PassEnd, work_pass
from pikkuflow.errors import NoLeaseService

__all__ = ["orchestrate", "seconds_until_due"]

_SOONEST_SECONDS: Final = 0.2


def orchestrate(rt: Runtime, run_ids: Sequence[RunId]) -> None:
    """Work one pass over each run, in order; what one of them raises does not keep the others back.

    A run that is held, or whose start is not due, gets a hint and the message succeeds (D11). Runs that the message cannot reach in its
    time (``pass_seconds``), or because the worker stops, get one for now. A settled run is answered by its opening: the door was taken
    and is released again, which costs no statement (T8.5).

    Raises:
        NoLeaseService: the engine was composed without leases (T8.4); nothing was opened.
        Exception: the first error of a pass (``StoreUnavailable``), after all were worked.
        BaseException: ``SystemExit`` and the like, at once.
    """
    begun_at, first = rt.clock.monotonic(), None
    for at, run_id in enumerate(run_ids):
        if at and (rt.is_stopping() or rt.clock.monotonic() - begun_at >= rt.settings.pass_seconds):
            _leave(rt, run_ids[at:])
            break
        try:
            _work(rt, run_id)
        except NoLeaseService:
            raise
        except Exception as error:  # noqa: BLE001 - raised below, once the others had their pass
            _note(rt, run_id, error)
            first = first or error
        except BaseException:
            _leave(rt, run_ids[at + 1 :])
            raise
    if first is not None:
        raise first


def _note(rt: Runtime, run_id: RunId, error: Exception) -> None:
    """An outage is over when it is over. What is wrong otherwise was told, and closed with a time of its own (``break_off``)."""
    if is_outage(error):
        warn(rt, f"A pass could not be worked: {error!r}", run_id=run_id)
        rt.hints.leave(run_id, SOON_SECONDS)


def _work(rt: Runtime, run_id: RunId) -> None:
    result = work_pass(rt, run_id)
    if result.end is PassEnd.HELD:
        rt.hints.leave(run_id, SOON_SECONDS)
    if result.end is PassEnd.NOT_DUE:
        rt.hints.leave(run_id, seconds_until_due(rt, run_id))


def seconds_until_due(rt: Runtime, run_id: RunId) -> float:
    """How long until a delayed run may start; a little, when this process' clock says that it may already."""
    run = rt.store.get_run(run_id)
    if run is None or run.due_at is None:
        return _SOONEST_SECONDS
    return max(_SOONEST_SECONDS, (run.due_at - rt.clock.now()).total_seconds())


def _leave(rt: Runtime, run_ids: Sequence[RunId]) -> None:
    for run_id in run_ids:
        rt.hints.leave(run_id, 0.0)
