"""Hard time limits of dispatched steps: only the worker's main process learns of them (celery-notes 2.5, recipes 5)."""

from __future__ import annotations

from typing import Any

from celery.worker.request import Request

from pikkuflow.adapters.celery.extension import extension_of
from pikkuflow.adapters.celery.node import TimedOut
from pikkuflow.domain.ids import RunId, StepName

__all__ = ["StepRequest"]


class StepRequest(Request):
    """The request of a ``pikkuflow.step`` message in the main process."""

    def on_timeout(self, soft: bool, timeout: float) -> None:  # noqa: FBT001 - Celery's signature
        """A limit was reached. The hard one is noted before the child is ended; the watch writes the failed attempt once it is dead.

        The database is not touched here: this is the worker's event loop.
        """
        request: Any = self
        if not soft and request.worker_pid is not None:
            run_id, steps, *_ = request.args
            node = extension_of(request.app).node
            node.timed_out.put(
                TimedOut(
                    run_id=RunId(run_id),
                    steps=tuple((StepName(name), attempt) for name, attempt in steps),
                    holder=node.holder(request.worker_pid),
                    pid=request.worker_pid,
                    seconds=timeout,
                )
            )
        super().on_timeout(soft, timeout)
