"""Handing a run's outcome on to Celery: what a message asks for at its start, and what is done with it at the end (recipes 2).

At least once (design 7): a chord counts a member once, callbacks and the rest of a chain may be sent again by a sweep.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from celery import Celery, group
from celery.app.task import Context
from celery.backends.base import DisabledBackend
from celery.canvas import maybe_signature
from kombu.exceptions import OperationalError
from sqlalchemy.exc import OperationalError as DatabaseAway

from pikkuflow.domain.run import Run
from pikkuflow.domain.status import RunStatus
from pikkuflow.errors import PikkuFlowError, RunCancelled, RunFailed
from pikkuflow.ports import Codec

__all__ = ["CeleryDeliverer", "handover_of"]

_KEPT: Final = (
    "callbacks",
    "errbacks",
    "chain",
    "chord",
    "group",
    "group_index",
    "root_id",
    "parent_id",
    "reply_to",
    "correlation_id",
    "ignore_result",
    "headers",
    "stamps",
    "stamped_headers",
    "replaced_task_nesting",
    "delivery_info",
    "shadow",
)
_SAYS_WHAT_TO_DO: Final = frozenset({"callbacks", "errbacks", "chain", "chord", "reply_to"})
"""Without any of these there is nothing to hand on but the result itself."""


def handover_of(asked: Mapping[str, Any] | Context, backend: Any) -> str | None:
    """What a start asks to be done with the run's outcome, as JSON text; None when it asks for nothing special.

    Args:
        asked: fields of the start's request, by a request's names.
        backend: the task's result backend. The address of who waits is kept only for one that answers by messages.
    """
    kept = {key: asked.get(key) for key in _KEPT if asked.get(key) or key == "group_index"}
    if kept["group_index"] is None:  # the first of a group has 0, which is as true as the others
        del kept["group_index"]
    if not _answers_by_message(backend):
        kept.pop("reply_to", None)
    if not _SAYS_WHAT_TO_DO & kept.keys() and "ignore_result" not in kept:
        return None
    return json.dumps(kept, default=_plain)


def _answers_by_message(backend: Any) -> bool:
    return hasattr(backend, "destination_for")


def _plain(value: Any) -> Any:
    """Sets of stamps become lists; anything else that JSON does not know is shown as text."""
    return sorted(value) if isinstance(value, set | frozenset) else str(value)


class CeleryDeliverer:
    """The ``Deliverer`` port over Celery's result backend and canvas."""

    def __init__(self, app: Celery, codec: Codec) -> None:
        self._app = app
        self._codec = codec
        self._keeps: bool | None = None

    def wants(self, run: Run) -> bool:
        """There is a canvas to go on with, or a result backend that someone may ask under the run's id. Nobody asks for a child's."""
        asked = json.loads(run.handover) if run.handover else {}
        if _SAYS_WHAT_TO_DO & asked.keys():
            return True
        return run.parent is None and not asked.get("ignore_result") and self._keeps_results(run)

    def deliver(self, run: Run) -> None:
        """Store the result, send callbacks and the rest of a chain, count a chord; on failure errbacks instead.

        Raises ``ConnectionError`` when the backend or the broker does not answer, and whatever else they raise; a sweep repeats it.
        """
        task = self._app.tasks.get(run.workflow)
        try:
            self._hand_on(run, task)
        except Exception as error:
            if self._is_outage(error, task):
                raise ConnectionError(str(error)) from error
            raise

    def _hand_on(self, run: Run, task: Any) -> None:
        context = self._context(run, task)
        backend = task.backend if task is not None else self._app.backend
        stores = not context.ignore_result
        if run.status is not RunStatus.COMPLETED:
            backend.mark_as_failure(
                run.id,
                _error(run),
                run.error.traceback if run.error else None,
                request=context,
                store_result=stores,
            )
            return
        value = None if run.output is None else self._codec.decode(run.output)
        self._send_on(run, context, value)
        backend.mark_as_done(run.id, value, request=context, store_result=stores)

    def _send_on(self, run: Run, context: Context, value: Any) -> None:
        family = {"parent_id": run.id, "root_id": context.root_id or run.id}
        asked: Any = context
        callbacks: list[Any] = [maybe_signature(each, app=self._app) for each in asked.callbacks or ()]
        for callback in sorted(callbacks, key=lambda each: not isinstance(each, group)):
            callback.apply_async((value,), **family)
        if asked.chain:
            *rest, following = asked.chain
            signature: Any = maybe_signature(following, app=self._app)
            signature.apply_async((value,), chain=rest, **family)

    def _context(self, run: Run, task: Any) -> Context:
        asked = json.loads(run.handover) if run.handover else {}
        given = self._codec.decode(run.input)
        asked.setdefault("ignore_result", bool(task is not None and task.ignore_result))
        return Context(
            asked,
            id=run.id,
            task=run.workflow,
            args=given["args"],
            kwargs=given["kwargs"],
            called_directly=False,
        )

    def _is_outage(self, error: Exception, task: Any) -> bool:
        """A publish that fails is kombu's own error; Celery's database backend lets SQLAlchemy's through, the others name theirs."""
        if isinstance(error, OSError | OperationalError | DatabaseAway):
            return True
        backend = task.backend if task is not None else self._app.backend
        return isinstance(error, getattr(backend, "connection_errors", ()))

    def _keeps_results(self, run: Run) -> bool:
        task = self._app.tasks.get(run.workflow)
        if task is not None and task.ignore_result:
            return False
        if self._keeps is None:
            backend = self._app.backend
            # A backend that answers by messages needs the address of who asked: it comes in the handover.
            self._keeps = not isinstance(backend, DisabledBackend) and not _answers_by_message(backend)
        return self._keeps


def _error(run: Run) -> PikkuFlowError:
    message = (run.error.message if run.error else "") or "Unknown error"
    if run.status is RunStatus.CANCELLED:
        return RunCancelled(message if run.error else "The run was cancelled.", run.id)
    return RunFailed(message, run.id)
