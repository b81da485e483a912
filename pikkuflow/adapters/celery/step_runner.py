"""Runs a user's Celery task as a step, in place or in a step worker: the same runner for both (design 1, recipes.md 1).

The order is Celery's own: prerun, ``before_start``, body, *the outcome is stored*, ``on_success`` / ``on_retry`` / ``on_failure``,
``after_return``, postrun. Storing is the engine's (``commit``); this module publishes nothing and stores nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from celery import Celery, _state
from celery.app.trace import task_has_custom
from celery.exceptions import Ignore, Reject, Retry
from celery.result import allow_join_result

from pikkuflow.adapters.celery.arguments import checked_arguments
from pikkuflow.adapters.celery.message_options import (
    DESTINATION,
    Destination,
    as_json,
    destination_of,
    from_json_options,
)
from pikkuflow.adapters.celery.names import qualified_name
from pikkuflow.adapters.celery.routing import MessageRoute, Routing
from pikkuflow.adapters.celery.step_hooks import StepHooks, StepTold
from pikkuflow.adapters.celery.step_request import (
    Replaced,
    StepRequest,
    asked_delay,
    asked_override,
    error_of,
    gave_up,
    seconds_until,
    step_request,
)
from pikkuflow.domain.command import StepCall
from pikkuflow.domain.definition import Registry
from pikkuflow.domain.option_values import refuse_options
from pikkuflow.engine.current_step import step_context
from pikkuflow.errors import PayloadError, TaskNotFound, WorkflowDefinitionError
from pikkuflow.ports import Attempted, AttemptEnd, Route, StepWork
from pikkuflow.settings import Settings

__all__ = ["CeleryStepRunner"]

_TASKS: Final[Any] = _state._task_stack  # type: ignore[attr-defined]  # noqa: SLF001 - what current_task reads

_FINAL: Final = "no_retry_on"
"""Key of a row's options: names of the exception types that are final, for the step worker, which sees only the row."""


class CeleryStepRunner:
    """Implements ``ports.StepRunner`` on a Celery app."""

    def __init__(self, app: Celery, settings: Settings, registry: Registry, routing: Routing | None = None) -> None:
        self._app = app
        self._settings = settings
        self._routing = routing or Routing(app, settings, registry)
        self._destinations: dict[tuple[Any, ...], Destination] = {}
        self._hooks = StepHooks(app, sends_events=settings.step_events)

    def route(self, call: StepCall, workflow: str) -> Route:
        """Check the arguments and route a new step; see ``ports.StepRunner``.

        Raises also ``SettingError`` when its queue does not exist and may not be created, ``PayloadError`` when an option is no JSON, and
        ``WorkflowDefinitionError`` for an option that no message can carry, such as a ``countdown`` that is no number.
        """
        name = str(call.task)
        refuse_options(call.options, what=f"step {call.name!r}")
        task = self._app.tasks.get(name)
        args, kwargs = call.args, dict(call.kwargs)
        if task is not None:
            args, kwargs = checked_arguments(task, args, kwargs)
        route = self._routing.of_task(name, args, kwargs, call.options)
        return Route(
            leaves="unknown" if task is None else self._routing.leaves(route, workflow),
            queue=route.queue,
            options=_options_text(call, route),
            lease_seconds=self._settings.step_lease_seconds_of(route.queue),
            args=args,
            kwargs=kwargs,
            delay_seconds=self._delay(call),
            expires_seconds=self._seconds(call, "expires", getattr(task, "expires", None)),
        )

    def is_known(self, task: str) -> bool:
        """The task is registered on this worker."""
        return task in self._app.tasks

    def run(self, work: StepWork, commit: Callable[[Attempted], bool]) -> None:
        """Run the task; see ``ports.StepRunner``."""
        task = self._app.tasks.get(work.task)
        if task is None:
            raise TaskNotFound(
                f"Task {work.task!r} of step {work.step!r} is not registered on this worker.",
                work.task,
                hint="Import the module that defines it on every worker of the step's queue.",
            )
        with step_context(work) as step:
            request = step_request(task, work, step.invocation_id, self._delivery_info(work.options))
            self._run(StepTold(task=task, request=request), work, commit)

    def _run(self, told: StepTold, work: StepWork, commit: Callable[[Attempted], bool]) -> None:
        try:
            with _frame(told.task, told.request), self._hooks.around(told):
                is_last = commit(self._attempt(told, work))
                told.is_last = is_last or told.raised is None
                told.is_committed = True
                if told.raised is None and not is_last:
                    told.raised = PayloadError(f"The result of step {work.step!r} could not be stored.")
        finally:
            # Its traceback leads back here: a cycle that would keep the locals of every frame of the task.
            told.raised = None

    def _attempt(self, told: StepTold, work: StepWork) -> Attempted:
        try:
            value = self._work(told, work)
        except Exception as error:  # noqa: BLE001 - whatever a task raises is its outcome
            return self._failed(told, error, work)
        told.value = value
        return Attempted(end=AttemptEnd.SUCCEEDED, value=value)

    def _work(self, told: StepTold, work: StepWork) -> Any:
        task, request = told.task, told.request
        if hasattr(task, "pikkuflow_workflow"):
            raise WorkflowDefinitionError(
                f"Step {work.step!r} names the workflow {work.task!r} as if it were a task.",
                hint="Define the workflow also where its parent runs, so that it becomes a child run.",
            )
        # The task itself when its class has a __call__; never the undecorated function: run may be Sentry's or autoretry's wrapper.
        body = task if task_has_custom(task, "__call__") else task.run
        try:
            task.before_start(request.id, request.args, request.kwargs)
            value = body(*request.args, **request.kwargs)
        except Replaced as replaced:
            with allow_join_result():
                return replaced.signature.apply().get()
        if isinstance(value, Retry):
            # ``return self.retry(throw=False)``: asked for, though not raised.
            raise value
        return value

    def _failed(self, told: StepTold, raised: Exception, work: StepWork) -> Attempted:
        told.raised = raised
        error = error_of(raised)
        if error.__traceback__ is None:
            # ``retry(exc=ValueError())``: never raised itself.
            error.__traceback__ = raised.__traceback__
        if isinstance(raised, Ignore) or (isinstance(raised, Reject) and not getattr(raised, "requeue", False)):
            return Attempted(end=AttemptEnd.IGNORED, error=error)
        if _is_final(error, work) or isinstance(raised, WorkflowDefinitionError) or gave_up(told.task, raised):
            return Attempted(end=AttemptEnd.GAVE_UP, error=error)
        if not isinstance(raised, Retry):
            return Attempted(end=AttemptEnd.RAISED, error=error)
        try:
            delay, override = asked_delay(self._app, told.task, raised), self._override(told, work, raised)
        except Exception as impossible:  # noqa: BLE001 - Celery rejects a task that asks for an impossible retry
            return Attempted(end=AttemptEnd.GAVE_UP, error=impossible)
        return Attempted(end=AttemptEnd.RAISED, error=error, delay_seconds=delay, override=override)

    def _override(self, told: StepTold, work: StepWork, retry: Retry) -> Mapping[str, Any] | None:
        override = asked_override(told.task, told.request, retry)
        changed = override.get("options")
        if not changed:
            return override or None
        refuse_options(changed, what=f"the retry of step {work.step!r}")
        args, kwargs = override.get("args", told.request.args), override.get("kwargs", told.request.kwargs)
        route = self._routing.again(str(told.task.name), tuple(args), kwargs, work.options, changed)
        # A key of the old address that the new one lacks has to go.
        options = {**dict.fromkeys(DESTINATION), **route.options}
        if "headers" in changed:
            options["headers"] = changed["headers"]
        return {**override, "options": options}

    def _delivery_info(self, options: Mapping[str, Any]) -> dict[str, Any]:
        address = tuple(options.get(key) for key in DESTINATION)
        try:
            known = self._destinations.get(address)
        except TypeError:
            # A queue that is declared by the message itself.
            return self._delivered(destination_of(self._app, from_json_options(options)), options)
        if known is None:
            known = self._destinations[address] = destination_of(self._app, from_json_options(options))
        return self._delivered(known, options)

    @staticmethod
    def _delivered(destination: Destination, options: Mapping[str, Any]) -> dict[str, Any]:
        exchange, routing_key = destination
        return {"exchange": exchange, "routing_key": routing_key, "priority": options.get("priority")}

    def _delay(self, call: StepCall) -> float | None:
        key = "eta" if call.options.get("eta") else "countdown"
        return self._seconds(call, key, None) or None

    def _seconds(self, call: StepCall, key: str, default: Any) -> float | None:
        when = call.options.get(key, default)
        if when is None:
            return None
        try:
            return seconds_until(self._app, when)
        except (TypeError, ValueError) as error:
            raise WorkflowDefinitionError(f"{key}={when!r} of step {call.name!r} is no time: {error}") from error


def _options_text(call: StepCall, route: MessageRoute) -> str:
    headers = call.options.get("headers")
    if not headers and not call.no_retry_on:
        return route.text
    options = dict(route.options)
    if headers:
        options["headers"] = dict(headers)
    if call.no_retry_on:
        options[_FINAL] = [qualified_name(kind) for kind in call.no_retry_on]
    return as_json(options, what=f"step {call.name!r}")


def _is_final(error: BaseException, work: StepWork) -> bool:
    if isinstance(error, work.no_retry_on):
        return True
    names = work.options.get(_FINAL) or ()
    return any(qualified_name(kind) in names for kind in type(error).__mro__)


@contextmanager
def _frame(task: Any, request: StepRequest) -> Iterator[None]:
    """Make the task the current one and its request the current request, and put back what was there, whatever leaves the block."""
    mark = "override_max_retries"  # retry(max_retries=) leaves it on the task, which other runs share
    _TASKS.push(task)
    task.request_stack.push(request)
    try:
        yield
    finally:
        task.__dict__.pop(mark, None)
        task.request_stack.pop()
        _TASKS.pop()
