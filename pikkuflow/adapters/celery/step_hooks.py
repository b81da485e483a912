"""Everybody who is told about a step: the task's own hooks, Celery's signals, log lines and, if wanted, task events (design 1).

After the outcome is stored nothing here can change it: what a hook or a receiver raises is logged.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from billiard.einfo import ExceptionInfo
from celery import Celery, signals, states
from celery.app.trace import LOG_FAILURE, LOG_IGNORED, LOG_REJECTED, LOG_RETRY, LOG_SUCCESS
from celery.exceptions import Ignore, Reject, Retry
from celery.utils.saferepr import saferepr

from pikkuflow.adapters.celery.step_events import StepEvents
from pikkuflow.adapters.celery.step_request import error_of

__all__ = ["StepHooks", "StepTold"]

_LOGGER: Final = logging.getLogger("celery.app.trace")
"""Celery's own logger, so that levels and handlers set for tasks hold for steps."""

_REPR_LENGTH: Final = 1024


@dataclass(slots=True, kw_only=True)
class StepTold:
    """What there is to tell; filled while the attempt goes on. ``is_last`` is the engine's answer to the commit: no attempt follows."""

    task: Any
    request: Any
    value: Any = None
    raised: Exception | None = None
    is_last: bool = True
    is_committed: bool = False
    started: float = field(default_factory=time.monotonic)

    @property
    def state(self) -> str | None:
        """The state as Celery names it; None when the body was left by a BaseException."""
        if not self.is_committed and self.raised is None and self.value is None:
            return None
        if self.raised is None:
            return states.SUCCESS
        if isinstance(self.raised, Reject):
            return states.REJECTED
        if isinstance(self.raised, Ignore):
            return states.IGNORED
        return states.FAILURE if self.is_last else states.RETRY

    @property
    def runtime(self) -> float:
        """Seconds since the attempt began."""
        return time.monotonic() - self.started


class StepHooks:
    """Tells everybody, in Celery's order."""

    def __init__(self, app: Celery, *, sends_events: bool) -> None:
        self._app = app
        self._events = StepEvents(app) if sends_events else None

    @contextmanager
    def around(self, told: StepTold) -> Iterator[None]:
        """Tell of the start, let the block run and commit, and tell of the outcome.

        What leaves the block passes through. Postrun is sent whatever happens; nothing else is told of an outcome that was not committed.
        """
        task, request = told.task, told.request
        ids: dict[str, Any] = {"task_id": request.id, "args": request.args, "kwargs": request.kwargs}
        try:
            _send(signals.task_prerun, sender=task, task=task, **ids)
            self._app.loader.on_task_init(request.id, task)
            self._tell_begin(told)
            yield
            _guarded(told, "telling the outcome", lambda: self._tell_outcome(told))
        finally:
            retval = told.value if told.raised is None else told.raised
            _send(signals.task_postrun, sender=task, task=task, retval=retval, state=told.state, **ids)

    def _tell_begin(self, told: StepTold) -> None:
        if self._events is not None:
            request = told.request
            shown = {"name": told.task.name, "args": repr(request.args), "kwargs": repr(request.kwargs)}
            self._events.send("task-received", request, **shown)
            self._events.send("task-started", request)

    def _tell_outcome(self, told: StepTold) -> None:
        raised = told.raised
        if raised is None:
            self._tell_success(told)
        elif told.state == states.RETRY:
            self._tell_retry(told, raised)
        elif told.state == states.FAILURE:
            self._tell_failure(told, raised)
        else:
            self._tell_ignored(told)

    def _tell_success(self, told: StepTold) -> None:
        task, request, value = told.task, told.request, told.value
        _guarded(told, "on_success", lambda: task.on_success(value, request.id, request.args, request.kwargs))
        _send(signals.task_success, sender=task, result=value, runtime=told.runtime)
        if _LOGGER.isEnabledFor(logging.INFO):
            _log(told, logging.INFO, LOG_SUCCESS, return_value=saferepr(value, _REPR_LENGTH), runtime=told.runtime)
        self._after_return(told, None)
        if self._events is not None:
            shown = saferepr(value, _REPR_LENGTH)
            self._events.send("task-succeeded", request, result=shown, runtime=told.runtime)

    def _tell_retry(self, told: StepTold, raised: Exception) -> None:
        task, request = told.task, told.request
        cause, einfo = error_of(raised), _einfo(raised)
        _guarded(told, "on_retry", lambda: task.on_retry(cause, request.id, request.args, request.kwargs, einfo))
        _send(signals.task_retry, sender=task, request=request, reason=raised, einfo=einfo)
        _log(told, logging.INFO, LOG_RETRY, exc=str(raised) if isinstance(raised, Retry) else repr(raised))
        self._tell_event(told, "task-retried", exception=repr(cause), traceback=str(einfo.traceback))

    def _tell_failure(self, told: StepTold, raised: Exception) -> None:
        task, request = told.task, told.request
        error = error_of(raised)
        einfo = _einfo(error)
        _guarded(told, "on_failure", lambda: task.on_failure(error, request.id, request.args, request.kwargs, einfo))
        _send(
            signals.task_failure,
            sender=task,
            task_id=request.id,
            exception=error,
            args=request.args,
            kwargs=request.kwargs,
            traceback=error.__traceback__,
            einfo=einfo,
        )
        is_expected = bool(task.throws) and isinstance(error, task.throws)
        _log(
            told,
            logging.INFO if is_expected else logging.ERROR,
            LOG_FAILURE,
            description="raised expected" if is_expected else "raised unexpected",
            exc=repr(error),
            exc_info=None if is_expected else error,
        )
        self._after_return(told, einfo)
        self._tell_event(told, "task-failed", exception=repr(error), traceback=str(einfo.traceback))

    def _tell_ignored(self, told: StepTold) -> None:
        if told.state == states.REJECTED:
            _log(told, logging.WARNING, LOG_REJECTED, exc=repr(told.raised))
            self._tell_event(told, "task-rejected")
        else:
            _log(told, logging.INFO, LOG_IGNORED, description="ignored")

    def _after_return(self, told: StepTold, einfo: ExceptionInfo | None) -> None:
        task, request = told.task, told.request
        retval = told.value if told.raised is None else told.raised
        _guarded(
            told,
            "after_return",
            lambda: task.after_return(told.state, retval, request.id, request.args, request.kwargs, einfo),
        )

    def _tell_event(self, told: StepTold, kind: str, **fields: Any) -> None:
        if self._events is not None:
            self._events.send(kind, told.request, **fields)


def _send(signal: Any, **carried: Any) -> None:
    if signal.receivers:
        signal.send(**carried)


def _einfo(error: Exception) -> ExceptionInfo:
    if error.__traceback__ is None:
        # A picture needs a traceback, and an error that was never raised has none.
        with suppress(type(error)):
            raise error
    return ExceptionInfo((type(error), error, error.__traceback__))


def _guarded(told: StepTold, hook: str, call: Callable[[], object]) -> None:
    try:
        call()
    except Exception:
        _LOGGER.exception("Task %s[%s] %s raised.", told.task.name, told.request.id, hook)


def _log(told: StepTold, level: int, text: str, *, exc_info: BaseException | None = None, **fields: Any) -> None:
    request = told.request
    context = {
        "id": request.id,
        "name": told.task.name,
        "hostname": request.hostname,
        "args": saferepr(request.args, _REPR_LENGTH),
        "kwargs": saferepr(request.kwargs, _REPR_LENGTH),
        **fields,
    }
    _LOGGER.log(level, text.strip(), context, exc_info=exc_info, extra={"data": context})
