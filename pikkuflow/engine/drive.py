"""Have a run go on after something came for it: by a message, or here when the app has no broker (D26)."""

from __future__ import annotations

from pikkuflow.domain.act import RunRef
from pikkuflow.engine.run_inline import run_inline
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.send import wake_runs

__all__ = ["drive"]


def drive(rt: Runtime, run: RunRef | None) -> None:
    """Wake the run, or work it as far as it goes. None: somebody else sees the news."""
    if run is None:
        return
    if rt.has_broker:
        wake_runs(rt, [run])
    else:
        run_inline(rt, run.id)
