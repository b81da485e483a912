"""Hand a settled run's outcome on to Celery, at least once (design 7)."""

from __future__ import annotations

from enum import StrEnum

from pikkuflow.domain.run import Run
from pikkuflow.engine.break_off import is_outage
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.tell import warn

__all__ = ["Delivery", "deliver"]


class Delivery(StrEnum):
    """What became of handing one outcome on."""

    DONE = "done"
    NOTHING = "nothing"
    """There was nothing to hand on."""
    FAILED = "failed"
    """Something is wrong with this outcome; the next one may do better."""
    AWAY = "away"
    """The broker, the result backend or the store did not answer: the next one would fare no better."""


def deliver(rt: Runtime, run: Run) -> Delivery:
    """Hand it on when there is something to hand on; a sweep repeats what has a handover and failed. Raises nothing."""
    try:
        wanted = rt.deliverer.wants(run)
        if wanted:
            rt.deliverer.deliver(run)
        if run.handover is not None:
            rt.store.mark_delivered(run.id)
    except Exception as error:  # noqa: BLE001 - a backend may raise anything, and the run is settled whatever it does
        warn(rt, f"The run's outcome could not be handed on: {error!r}", run_id=run.id)
        return Delivery.AWAY if is_outage(error) else Delivery.FAILED
    return Delivery.DONE if wanted else Delivery.NOTHING
