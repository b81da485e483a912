"""Cancel a run for somebody: what ``run.cancel`` does."""

from __future__ import annotations

from pikkuflow.domain.run import Run
from pikkuflow.domain.status import RunStatus
from pikkuflow.engine.cancel import cancel_run
from pikkuflow.engine.run_inline import run_inline
from pikkuflow.engine.runtime import Runtime
from pikkuflow.errors import PayloadError, RunNotFound

__all__ = ["call_off"]


def call_off(rt: Runtime, run: Run, reason: str | None) -> RunStatus:
    """Call the run off; the status that it has then (T11.38). In an app without a broker it is undone here, unless a process works it.

    Raises:
        PayloadError: the reason is no text; nothing was changed.
        RunNotFound: the run was deleted meanwhile.
        StoreUnavailable: the database stayed away.
    """
    if reason is not None and not isinstance(reason, str):
        raise PayloadError(f"The reason of a cancel is text, not {type(reason).__name__}.")
    status = cancel_run(rt, run.id, reason)
    if status is None:
        raise RunNotFound(f"There is no run {run.id!r}.", run.id)
    if status is not RunStatus.COMPENSATING or rt.has_broker:
        return status
    now = rt.store.get_run(run.id)
    if now is None or now.pass_until is not None:
        return status
    return run_inline(rt, run.id).status
