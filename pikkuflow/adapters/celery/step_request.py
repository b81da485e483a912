"""The request under which a user's task runs as a step: Celery's own, but nothing that the task does with it publishes a message.

``Task.retry`` and ``Task.replace`` publish unless the request is eager. This request is eager for exactly these two askers; user code,
custom base classes and Django's fixup go on reading False. A base class that calls ``super().__call__`` copies the request's fields into a
plain ``Context``, so the answer is among the fields as well, as an object whose truth depends on who asks.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from math import isfinite
from types import FrameType, TracebackType
from typing import Any, Final

from celery import Celery, Task
from celery.app.task import Context
from celery.canvas import Signature
from celery.exceptions import Ignore, MaxRetriesExceededError, Reject, Retry
from celery.utils.serialization import UnpickleableExceptionWrapper
from celery.utils.time import maybe_iso8601, maybe_make_aware

from pikkuflow.adapters.celery.message_options import LIMITS, PUBLISHED
from pikkuflow.domain.duration import LONGEST_SECONDS
from pikkuflow.ports import StepWork

__all__ = [
    "Replaced",
    "StepRequest",
    "asked_delay",
    "asked_override",
    "error_of",
    "gave_up",
    "seconds_until",
    "step_request",
]

_RETRY: Final = Task.retry.__code__
_REPLACE: Final = Task.on_replace.__code__
_CONTEXT_FIELDS: Final = frozenset(vars(Context))


class Replaced(Ignore):
    """``self.replace(sig)`` was called: the attempt's value is what the signature gives. As in Celery, nothing after the call runs."""

    def __init__(self, signature: Signature[Any]) -> None:
        super().__init__("Replaced by another task")
        self.signature = signature


def _is_eager_for(asker: FrameType) -> bool:
    if asker.f_code is _REPLACE:
        raise Replaced(asker.f_locals["sig"])
    return asker.f_code is _RETRY


class _EagerForAskers:
    def __bool__(self) -> bool:
        return _is_eager_for(sys._getframe(1))  # noqa: SLF001 - who asks is the point


class StepRequest(Context):
    """``self.request`` of a task that runs as a step."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.__dict__["is_eager"] = _EagerForAskers()

    @property
    def is_eager(self) -> bool:  # type: ignore[override]
        """True for ``Task.retry``, which then raises instead of publishing; False for everyone else."""
        return _is_eager_for(sys._getframe(1))  # noqa: SLF001 - who asks is the point


def step_request(task: Task[Any, Any], work: StepWork, step_id: str, delivery_info: Mapping[str, Any]) -> StepRequest:
    """The request of one attempt: its id is the invocation id, ``retries`` the attempts before it, root and parent are the run."""
    headers = dict(work.options.get("headers") or {})
    outer = task.app.current_worker_task
    fields = {
        "id": step_id,
        "task": task.name,
        "args": list(work.args),
        "kwargs": dict(work.kwargs),
        "retries": work.attempt - 1,
        "root_id": work.run_id,
        "parent_id": work.run_id,
        "correlation_id": step_id,
        "called_directly": False,
        "headers": headers,
        "delivery_info": {"redelivered": False, **delivery_info},
        "hostname": getattr(getattr(outer, "request", None), "hostname", None),
        "timelimit": [work.options.get(key) or getattr(task, key, None) for key in LIMITS],
        "ignore_result": True,
    }
    if not headers:
        return StepRequest(**fields)
    # Celery shows a message's headers as fields of the request, too: ``self.request.traceparent``.
    shown = {key: value for key, value in headers.items() if key not in _CONTEXT_FIELDS and key not in fields}
    return StepRequest(**shown, **fields)


def gave_up(task: Task[Any, Any], error: BaseException) -> bool:
    """The task's own ``max_retries`` are spent: ``retry`` raised the task's exception again, or ``MaxRetriesExceededError``.

    ``retry`` of another task, called as a function inside this one, says nothing about this step.
    """
    if isinstance(error, Retry):
        return False
    return isinstance(error, MaxRetriesExceededError) or _passed_retry_of(task, error.__traceback__)


def _passed_retry_of(task: Task[Any, Any], trace: TracebackType | None) -> bool:
    while trace is not None:
        if trace.tb_frame.f_code is _RETRY and trace.tb_frame.f_locals.get("self") is task:
            return True
        trace = trace.tb_next
    return False


def error_of(raised: Exception) -> Exception:
    """The error that a person wants to read: what ``retry(exc=…)`` or ``Reject(reason)`` carries, else what was raised.

    Celery carries something else in its place when the exception does not pickle; the original is then still its context.
    """
    if isinstance(raised, Reject):
        reason = getattr(raised, "reason", None)
        return reason if isinstance(reason, Exception) else raised
    if not isinstance(raised, Retry) or raised.exc is None:
        return raised
    original = raised.__context__
    was_replaced = isinstance(raised.exc, UnpickleableExceptionWrapper) or (
        isinstance(original, type(raised.exc)) and type(original) is not type(raised.exc)
    )
    return original if was_replaced and isinstance(original, Exception) else raised.exc


def asked_delay(app: Celery, task: Task[Any, Any], retry: Retry) -> float | None:
    """Seconds until the next attempt if the task asked for a delay, None if it did not (D29).

    A task asks by ``countdown=`` or ``eta=``, by ``retry_backoff``, or by a ``default_retry_delay`` of its own. Celery's built-in three
    minutes are nobody's wish: then the step's own delay holds.
    """
    if retry.when is None or retry.when == task.default_retry_delay == Task.default_retry_delay:
        return None
    return seconds_until(app, retry.when)


def seconds_until(app: Celery, when: Any) -> float:
    """A countdown, or how far away a time is (naive times are in the app's time zone, as in Celery); never below 0.

    Raises ``TypeError`` or ``ValueError`` when it is neither.
    """
    if isinstance(when, timedelta):
        when = when.total_seconds()
    if isinstance(when, int | float) and not isinstance(when, bool):
        if not isfinite(when) or when > LONGEST_SECONDS:
            raise ValueError(f"{when!r} is no number of seconds up to a thousand years.")
        return max(0.0, float(when))
    moment = maybe_iso8601(when)
    if not isinstance(moment, datetime):
        raise TypeError(f"{when!r} is neither a number of seconds nor a time.")
    return max(0.0, (maybe_make_aware(moment, app.timezone) - datetime.now(UTC)).total_seconds())


def asked_override(task: Any, request: Any, retry: Any) -> dict[str, Any]:
    """What ``retry(args=, kwargs=, queue=…)`` changed for the next attempt.

    Those of ``args``, ``kwargs`` and ``options`` (not yet routed) that changed; empty when nothing did.
    """
    asked = retry.sig
    if asked is None:
        return {}
    unchanged = task.signature_from_request(request)
    changed: dict[str, Any] = {}
    if list(asked.args) != list(request.args or ()) or dict(asked.kwargs) != dict(request.kwargs or {}):
        changed = {"args": list(asked.args), "kwargs": dict(asked.kwargs)}
    before, after = unchanged.options, asked.options
    options = {
        key: after[key] for key in (*PUBLISHED, *LIMITS, "headers") if key in after and after[key] != before.get(key)
    }
    return {**changed, "options": options} if options else changed
