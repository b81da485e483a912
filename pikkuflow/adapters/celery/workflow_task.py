"""A workflow as its users meet it: something to start, and an ordinary Celery task for beat, canvas and ``send_task`` (recipes 2, 7, 10).

A start here commits the run first and wakes it second. A start by message is the task's own body: it inserts the run under the message's
id, so a redelivered message is the same run, and leaves the message's task without a result: the run's end will give it one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec, TypeVar, overload

from celery import Task
from celery.exceptions import Ignore
from celery.result import AsyncResult, EagerResult
from celery.utils import uuid
from celery.utils.functional import maybe_list

from pikkuflow.adapters.celery.extension import extension_of
from pikkuflow.adapters.celery.handover import handover_of
from pikkuflow.adapters.celery.starting import (
    Call,
    Origin,
    begin,
    begin_here,
    delay_of,
    handle_of,
    new_run,
    trail_of,
)
from pikkuflow.domain.run import NewRun
from pikkuflow.engine.pictures import drawn, picture_of_workflow
from pikkuflow.engine.run_handle import Run
from pikkuflow.engine.start import start_runs
from pikkuflow.errors import DirectCallError, PikkuFlowError

if TYPE_CHECKING:
    _Task = Task[Any, Any]
else:
    _Task = Task

__all__ = ["Starter", "WorkflowTask"]

P = ParamSpec("P")
R = TypeVar("R")
Duration = float | timedelta | str


class WorkflowTask(_Task, Generic[P, R]):
    """A registered workflow."""

    abstract = True
    acks_late = True
    reject_on_worker_lost = True
    rate_limit: Any = 0
    typing = True
    pikkuflow_workflow: ClassVar[str]
    """The workflow's name: what tells a workflow from a task where both are signatures."""

    @overload
    def start(self, *args: P.args, **kwargs: P.kwargs) -> Run[R]: ...
    @overload
    def start(
        self, *args: Any, run_id: str, owner: str | None = ..., timeout: Duration | None = ..., **kwargs: Any
    ) -> Run[R]: ...
    @overload
    def start(
        self, *args: Any, owner: str, run_id: str | None = ..., timeout: Duration | None = ..., **kwargs: Any
    ) -> Run[R]: ...
    @overload
    def start(self, *args: Any, timeout: Duration, **kwargs: Any) -> Run[R]: ...
    def start(self, *args: Any, **kwargs: Any) -> Run[R]:
        """Start a run: it is durable once this returns.

        Args:
            args: the workflow's own arguments.
            run_id: the run's id. The same id with the same workflow and input is the same run.
            owner: whose run it is.
            timeout: how long the run may take in all, instead of what its workflow says: seconds, a ``timedelta``, or text such as
                ``"2h"``. One that takes longer fails and is undone. A workflow with a parameter of that name gets it as its argument;
                ``using(timeout=…)`` is the run's.
            kwargs: the workflow's own keyword arguments.

        Raises:
            TypeError: the arguments do not fit the workflow.
            PayloadError: an argument cannot be stored.
            DurationError: the timeout is 0 or no duration.
            RunExists: the id is taken by another workflow or another input.
            NoBroker: the app has no broker; ``run_inline`` needs none.
            StoreUnavailable: the database does not answer; nothing was started.
        """
        begun = self.using(**_choices(self, kwargs))
        return begun.start(*args, **kwargs)

    @overload
    def run_inline(self, *args: P.args, **kwargs: P.kwargs) -> Run[R]: ...
    @overload
    def run_inline(
        self, *args: Any, run_id: str, owner: str | None = ..., timeout: Duration | None = ..., **kwargs: Any
    ) -> Run[R]: ...
    @overload
    def run_inline(
        self, *args: Any, owner: str, run_id: str | None = ..., timeout: Duration | None = ..., **kwargs: Any
    ) -> Run[R]: ...
    @overload
    def run_inline(self, *args: Any, timeout: Duration, **kwargs: Any) -> Run[R]: ...
    def run_inline(self, *args: Any, **kwargs: Any) -> Run[R]:
        """Run the whole of it here, durably, without broker or worker; sleeps are waited for here (D26).

        Returns the settled run, also when it failed: ``result()`` raises then. Raises as ``start`` does, and ``LeaseLost`` when another
        process took the run over (nothing more was written here).
        """
        begun = self.using(**_choices(self, kwargs))
        return begun.run_inline(*args, **kwargs)

    def using(
        self,
        *,
        run_id: str | None = None,
        owner: str | None = None,
        timeout: Duration | None = None,
        on_created: Callable[[str], None] | None = None,
        start_node: str | None = None,
    ) -> Starter[P, R]:
        """The fully typed form of ``start(..., run_id=, owner=, timeout=)``: ``order.using(run_id="order-42").start(42)``.

        ``on_created`` is called with the run's id as soon as the run is stored, before anything of it can fail (T1.15).
        ``start_node`` is the one entry of a graph to begin with; a start at any other node raises ``WorkflowDefinitionError``.
        """
        return Starter(
            task=self, run_id=run_id, owner=owner, timeout=timeout, on_created=on_created, start_node=start_node
        )

    def picture(self, form: str = "mermaid") -> str:
        """The graph, or what a function plans, as a picture: ``"mermaid"``, ``"dot"`` or ``"text"``.

        Raises ``WorkflowDefinitionError`` for a function without ``planned_steps``, and ``SettingError`` for another form.
        """
        return drawn(picture_of_workflow(extension_of(self.app).registry.get(self.pikkuflow_workflow)), form)

    def start_many(self, calls: Iterable[Call]) -> list[Run[R]]:
        """Start many runs with one insert and few messages.

        Args:
            calls: the arguments of each run, and its id and owner where they matter.

        Returns:
            A handle for each call, in the order given.

        Raises as ``start`` does, and then none was started; but after ``RunExists`` the runs whose ids were free are started.
        """
        ext = extension_of(self.app)
        made = [new_run(self, call, Origin(kind="start")) for call in calls]
        begin(ext, made)
        return [handle_of(ext, run.id) for run in made]

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> AsyncResult[R]:
        """Start a run as Celery does it: an ``AsyncResult`` under the run's id."""
        return self.apply_async(args, kwargs)

    def apply_async(  # type: ignore[override]  # the rest of Celery's arguments are read from the options
        self, args: Any = None, kwargs: Any = None, task_id: str | None = None, **options: Any
    ) -> AsyncResult[R]:
        """Start a run with Celery's options: the run is committed here, then its first pass is asked for.

        ``task_id`` is the run's id; ``countdown`` and ``eta`` become the run's due time; ``link``, ``link_error`` and canvas are served
        when it ends. ``owner=`` and ``timeout=`` are understood as well. ``expires`` and routing are not: nothing but ids travels. Raises
        as ``start``.
        """
        ext = extension_of(self.app)
        parent = self.app.current_worker_task
        run_id = task_id or uuid()
        trail = trail_of(parent, options, run_id)
        asked = _asked(options) | trail
        asked.setdefault("ignore_result", self.ignore_result)
        origin = Origin(
            kind="apply_async",
            owner=options.get("owner"),
            headers=options.get("headers"),
            handover=handover_of({**asked, "reply_to": self.app.thread_oid}, self.backend),
            delay_seconds=delay_of(self.app, ext.runtime.clock.now(), options.get("countdown"), options.get("eta")),
            start_node=options.get("start_node"),
            **trail,
        )
        call = Call(args or (), kwargs or {}, run_id=run_id, timeout=options.get("timeout"))
        begin(ext, [new_run(self, call, origin)])
        if self.app.conf.task_always_eager:
            return self._eager(handle_of(ext, run_id))
        result: AsyncResult[R] = self.AsyncResult(run_id)
        if options.get("add_to_parent", True) and parent is not None:
            parent.add_trail(result)
        return result

    def apply(  # type: ignore[override]  # as apply_async
        self, args: Any = None, kwargs: Any = None, task_id: str | None = None, **options: Any
    ) -> EagerResult[R]:
        """Run it here and now, as ``run_inline``; Celery's eager canvas calls this."""
        ext = extension_of(self.app)
        origin = Origin(kind="apply", inline=True, handover=handover_of(_asked(options), self.backend))
        call = Call(args or (), kwargs or {}, run_id=task_id, timeout=options.get("timeout"))
        run = new_run(self, call, origin)
        begin_here(ext, run)
        result = self._eager(handle_of(ext, run.id))
        if options.get("throw"):
            result.get()
        return result

    def run(self, *args: Any, **kwargs: Any) -> None:
        """The body of a start that came as a message: insert the run under the message's id, and leave the task without a result."""
        request = self.request
        origin = Origin(
            kind="message",
            owner=(request.headers or {}).get("pikkuflow_owner"),
            parent_id=request.parent_id,
            root_id=request.root_id,
            headers=request.headers,
            handover=handover_of(request, self.backend),
        )
        start_runs(extension_of(self.app).runtime, [new_run(self, Call(args, kwargs, run_id=request.id), origin)])
        raise Ignore("its run is stored")

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Celery's own way into ``run``. For anyone else: a workflow is not called, it is started (design 1)."""
        if self.request.called_directly:
            raise DirectCallError(
                f"Workflow {self.name!r} was called as a function.",
                hint=f"Use {self.__name__}.start(...) for a durable run, or {self.__name__}.run_inline(...) to run it here.",
            )
        self.run(*args, **kwargs)

    def _eager(self, run: Run[R]) -> EagerResult[R]:
        try:
            value: Any = run.result(timeout=0)
            state, trace = "SUCCESS", None
        except PikkuFlowError as error:
            value, state, trace = error, "FAILURE", str(error)
        if state == "FAILURE" and self.app.conf.task_eager_propagates:
            raise value
        return EagerResult(run.id, value, state, traceback=trace, name=self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter(Generic[P, R]):
    """A workflow with the id, owner and timeout of the run that is about to start (``WorkflowTask.using``)."""

    task: WorkflowTask[P, R]
    run_id: str | None = None
    owner: str | None = None
    timeout: Duration | None = None
    on_created: Callable[[str], None] | None = None
    start_node: str | None = None

    def start(self, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """As ``WorkflowTask.start``."""
        ext = extension_of(self.task.app)
        trail = trail_of(self.task.app.current_worker_task, {}, self.run_id)
        run = self._made(Origin(kind="start", start_node=self.start_node, **trail), args, kwargs)
        begin(ext, [run], self.on_created)
        return handle_of(ext, run.id)

    def run_inline(self, *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """As ``WorkflowTask.run_inline``."""
        ext = extension_of(self.task.app)
        run = self._made(Origin(kind="inline", inline=True, start_node=self.start_node), args, kwargs)
        begin_here(ext, run, self.on_created)
        return handle_of(ext, run.id)

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> AsyncResult[R]:
        """As ``WorkflowTask.delay``."""
        asked = {"owner": self.owner, "timeout": self.timeout, "start_node": self.start_node}
        return self.task.apply_async(args, kwargs, task_id=self.run_id, **asked)

    def _made(self, origin: Origin, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewRun:
        call = Call(args, kwargs, run_id=self.run_id, owner=self.owner, timeout=self.timeout)
        return new_run(self.task, call, origin)


def _choices(task: WorkflowTask[Any, Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Take what is the run's, not its workflow's, out of the keyword arguments of a start."""
    names = ["run_id", "owner"]
    if "timeout" in kwargs and not _takes_timeout(task):
        names.append("timeout")
    return {name: kwargs.pop(name, None) for name in names}


def _takes_timeout(task: WorkflowTask[Any, Any]) -> bool:
    body = extension_of(task.app).runtime.registry.get(task.pikkuflow_workflow).body
    return "timeout" in signature(body).parameters


def _asked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Celery's publishing options under the names that a request has them by (recipes 2)."""
    stamped = options.get("stamped_headers")
    asked = {
        "callbacks": maybe_list(options.get("link")),
        "errbacks": maybe_list(options.get("link_error")),
        "chain": options.get("chain"),
        "chord": options.get("chord"),
        "group": options.get("group_id"),
        "group_index": options.get("group_index"),
        "headers": options.get("headers"),
        "shadow": options.get("shadow"),
        "stamped_headers": stamped,
        "stamps": {key: options.get(key) for key in stamped or ()},
        "delivery_info": {"priority": options.get("priority")},
    }
    if options.get("ignore_result") is not None:
        asked["ignore_result"] = options["ignore_result"]
    return asked
