"""Cancel a run for somebody: what ``run.cancel`` does."""

from __future__ import annotations

from pikkuflow.domain.ids import RunId
from pikkuflow.domain.run import Run
from pikkuflow.domain.status import SETTLED_RUN, RunStatus
from pikkuflow.domain.stop import CANCEL_CODE
from pikkuflow.engine.cancel import cancel_run
from pikkuflow.engine.run_inline import run_inline
from pikkuflow.engine.runtime import Runtime
from pikkuflow.errors import PayloadError, RunNotFound, RunSettled

__all__ = ["call_off"]


def call_off(rt: Runtime, run: Run, reason: str | None) -> RunStatus:
    """Call the run off; the status that it has then. In an app without a broker it is undone here, unless a process works it.

    Raises:
        PayloadError: the reason is no text; nothing was changed.
        RunSettled: the run has ended otherwise than by a cancel (issue D, bad input); nothing was changed.
        RunNotFound: the run was deleted meanwhile.
        StoreUnavailable: the database stayed away.
    """
    if reason is not None and not isinstance(reason, str):
        raise PayloadError(f"The reason of a cancel is text, not {type(reason).__name__}.")
    status = cancel_run(rt, run.id, reason)
    if status is None:
        raise RunNotFound(f"There is no run {run.id!r}.", run.id)
    if status in SETTLED_RUN and not _was_called_off(rt, run.id, status):
        raise RunSettled(f"Run {run.id!r} has ended ({status.value}); nothing was cancelled.", run.id)
    if status is not RunStatus.COMPENSATING or rt.has_broker:
        return status
    now = rt.store.get_run(run.id)
    if now is None or now.pass_until is not None:
        return status
    return run_inline(rt, run.id).status


def _was_called_off(rt: Runtime, run_id: RunId, status: RunStatus) -> bool:
    """Whoever calls a run off twice learns how it ended; so does whoever is answered late."""
    if status is RunStatus.CANCELLED:
        return True
    run = rt.store.get_run(run_id)
    return run is not None and run.code == CANCEL_CODE
