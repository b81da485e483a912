"""End the runs that took longer than their own ``timeout`` (issue D, Build 7), also those that no pass would look at.

A pass sees a deadline by itself, between two steps and at its end. What is left to the sweep are runs that a long step holds, and those
that wait while their hint was lost.
"""

from __future__ import annotations

from pikkuflow.domain import loss
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.run import Run
from pikkuflow.domain.status import RunStatus
from pikkuflow.domain.stop import Cancellation
from pikkuflow.engine.cancel import stop_run
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.tell import warn
from pikkuflow.errors import StoreUnavailable

__all__ = ["end_overdue_runs"]


def end_overdue_runs(rt: Runtime) -> int:
    """Stop each of them as a cancel does, but as failed. How many there were.

    What one of them raises does not stop the others (T10.9). Raises ``StoreUnavailable``.
    """
    ended, refused = 0, set[RunId]()
    while True:
        # Those that could not be stopped are still the first.
        page = rt.store.overdue_runs(rt.settings.sweep_page + len(refused))
        fresh = [run for run in page if run.id not in refused]
        if not fresh:
            return ended
        left = {run.id for run in fresh if not _end(rt, run)}
        ended += len(fresh) - len(left)
        refused |= left


def _end(rt: Runtime, run: Run) -> bool:
    error = loss.run_timed_out(run.timeout_seconds)
    try:
        stop_run(rt, Cancellation(run_id=run.id, error=error, ending=RunStatus.FAILED))
    except StoreUnavailable:
        raise
    except Exception as unexpected:  # noqa: BLE001 - one bad row does not stop the sweep (T10.9)
        warn(rt, f"The run's timeout is over, and it could not be stopped: {unexpected!r}", run_id=run.id)
        return False
    return True
