"""Find a run for somebody (spec 12.1)."""

from __future__ import annotations

from pikkuflow.domain.ids import RunId
from pikkuflow.domain.run import Run
from pikkuflow.engine.runtime import Runtime
from pikkuflow.errors import RunForbidden, RunNotFound

__all__ = ["check_owner", "load_run"]


def load_run(rt: Runtime, run_id: RunId, *, user: str | None = None) -> Run:
    """The stored run. Raises ``RunNotFound``, and ``RunForbidden`` when it belongs to someone other than ``user``."""
    run = rt.store.get_run(run_id)
    if run is None:
        raise RunNotFound(f"There is no run {run_id!r}.", run_id, hint="`flow list` shows the runs of this database.")
    check_owner(run, user)
    return run


def check_owner(run: Run, user: str | None) -> None:
    """Raise ``RunForbidden`` when a user is given and the run has another owner."""
    if user is not None and run.owner is not None and run.owner != user:
        raise RunForbidden(f"Run {run.id!r} belongs to someone else.", run.id)
