"""Call a run off: the run first, then its children, one transaction each (design 3.7)."""

from __future__ import annotations

from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import SETTLED_RUN, RunStatus
from pikkuflow.domain.stop import Cancellation, cancelled_failure
from pikkuflow.engine.deliver import deliver
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.send import wake_runs

__all__ = ["cancel_run", "stop_run"]


def cancel_run(rt: Runtime, run_id: RunId, reason: str | None) -> RunStatus | None:
    """Cancel the run and the live child runs below it. The status that it has then; None: there is no such run.

    A run that is settled, or already being undone, is left as it is (T11.37, T11.38). A process that dies between a parent and its children
    leaves them to the parent's unwind, which cancels those that still live. Raises ``StoreUnavailable``.
    """
    return stop_run(rt, Cancellation(run_id=run_id, error=cancelled_failure(reason)))


def stop_run(rt: Runtime, request: Cancellation) -> RunStatus | None:
    """As ``cancel_run``, for whatever reason; the child runs below it are cancelled with the same words."""
    run_id = request.run_id
    stopped = rt.store.cancel_run(request)
    if stopped is None:
        return None
    if stopped.parent is not None:
        wake_runs(rt, [stopped.parent])
    if stopped.is_stopped and stopped.status in SETTLED_RUN:
        _hand_on(rt, run_id)
    if stopped.wake:
        wake_runs(rt, [stopped.run])
    for child in stopped.children:
        cancel_run(rt, child, request.error.message)
    return stopped.status


def _hand_on(rt: Runtime, run_id: RunId) -> None:
    rt.hints.announce(run_id)
    run = rt.store.get_run(run_id)
    if run is not None:
        deliver(rt, run)
