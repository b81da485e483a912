"""What only the worker's main process learns of the engine's messages: who took them, and their hard time limits (celery-notes 2.5)."""

from __future__ import annotations

from typing import Any

from celery.worker.request import Request

from pikkuflow.adapters.celery.extension import extension_of
from pikkuflow.adapters.celery.node import TimedOut
from pikkuflow.domain.ids import RunId, StepName

__all__ = ["PassRequest", "StepRequest"]


class PassRequest(Request):
    """The request of a ``pikkuflow.orchestrate`` message in the main process."""

    def on_accepted(self, pid: Any, time_accepted: float) -> None:
        """A child took it: should that die, its runs are looked at (``take_over_holder``)."""
        request: Any = self
        extension_of(request.app).node.in_hand[pid] = self._runs()
        super().on_accepted(pid, time_accepted)

    def on_success(self, failed__retval__runtime: Any, **kwargs: Any) -> Any:
        """The child has answered: it holds what is written, and nothing besides."""
        request: Any = self
        extension_of(request.app).node.in_hand.pop(request.worker_pid, None)
        return super().on_success(failed__retval__runtime, **kwargs)

    def _runs(self) -> tuple[RunId, ...]:
        request: Any = self
        (run_ids,) = request.args
        return tuple(map(RunId, run_ids))


class StepRequest(PassRequest):
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

    def _runs(self) -> tuple[RunId, ...]:
        request: Any = self
        return (RunId(request.args[0]),)
