"""Hand a settled run's outcome on to Celery, at least once (design 7)."""

from __future__ import annotations

from pikkuflow.domain.run import Run
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.tell import warn

__all__ = ["deliver"]


def deliver(rt: Runtime, run: Run) -> bool:
    """Hand it on when there is something to hand on. False: it failed; a sweep repeats what has a handover."""
    try:
        if not rt.deliverer.wants(run):
            return True
        rt.deliverer.deliver(run)
        if run.handover is not None:
            rt.store.mark_delivered(run.id)
    except Exception as error:  # noqa: BLE001 - a backend may raise anything, and the run is settled whatever it does
        warn(rt, f"The run's outcome could not be handed on: {error!r}", run_id=run.id)
        return False
    return True
