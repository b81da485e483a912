"""Close a pass that could not be closed because the store was away.

Whoever renews for this process keeps renewing what it holds, so a pass that nobody works any more would be held for as long as the process
lives. One daemon thread for each such pass asks again until the store answers.
"""

from __future__ import annotations

from threading import Event, Thread
from typing import Final

from pikkuflow.domain.act import Closing, PassRef, RunRef
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.send import wake_runs
from pikkuflow.engine.tell import warn
from pikkuflow.errors import StoreUnavailable

__all__ = ["close_later"]

_PAUSE_SECONDS: Final = 1.0


def close_later(rt: Runtime, ref: PassRef, closing: Closing) -> None:
    """Close the pass, if it is open, as soon as the store answers."""
    Thread(target=_close, args=(rt, ref, closing), name="pikkuflow-close", daemon=True).start()


def _close(rt: Runtime, ref: PassRef, closing: Closing) -> None:
    is_done = False
    while not is_done:
        Event().wait(_PAUSE_SECONDS)
        try:
            is_done = _is_closed(rt, ref, closing)
        except StoreUnavailable:
            continue
        except Exception as error:  # noqa: BLE001 - a daemon thread has no one to raise to
            warn(rt, f"A pass could not be closed: {error!r}", run_id=ref.run_id)
            return


def _is_closed(rt: Runtime, ref: PassRef, closing: Closing) -> bool:
    closed = rt.store.close_pass(ref, closing)
    run = rt.store.get_run(ref.run_id) if closed is not None and closed.wake else None
    if run is not None:
        wake_runs(rt, [RunRef(id=run.id, workflow=run.workflow)])
    return True
