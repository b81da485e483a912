"""``PikkuFlow``: the extension object, and the only place that chooses and builds adapters (design 5, 7).

Nothing here is built at import. The app's configuration is read when Celery reads it, the surroundings of the engine are built when they
are first used, once for each process: a fork gets its own, and what it inherited is kept untouched, because closing it would close the
parent's connections.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, Unpack, cast, overload

from celery import Celery
from celery.local import Proxy
from celery.utils.imports import gen_task_name

from pikkuflow.adapters.celery.beat import add_beat_entries, add_defaults, add_routes
from pikkuflow.adapters.celery.compensations import Compensations
from pikkuflow.adapters.celery.configured import broker_url, codec_hook
from pikkuflow.adapters.celery.dispatcher import CeleryDispatcher
from pikkuflow.adapters.celery.durable import DurableCanvas, durable
from pikkuflow.adapters.celery.extension import ATTRIBUTE
from pikkuflow.adapters.celery.graph_nodes import GraphChoices, Nodes, graph_definition
from pikkuflow.adapters.celery.handover import CeleryDeliverer
from pikkuflow.adapters.celery.node import Node
from pikkuflow.adapters.celery.routing import Routing
from pikkuflow.adapters.celery.step_runner import CeleryStepRunner
from pikkuflow.adapters.celery.tasks import register_engine_tasks
from pikkuflow.adapters.celery.translate import SignatureTranslator
from pikkuflow.adapters.celery.worker_hooks import install_worker_hooks
from pikkuflow.adapters.celery.workflow_task import WorkflowTask
from pikkuflow.adapters.graph_files import read_graph_file
from pikkuflow.adapters.json_codec import JsonCodec
from pikkuflow.adapters.logging_observer import LoggingObserver
from pikkuflow.adapters.random_ids import RandomIds
from pikkuflow.adapters.redis import RedisHints, RedisLeases, redis_url_of
from pikkuflow.adapters.sql import DueColumnHints, SqlLeases, SqlRunStore
from pikkuflow.adapters.system_clock import SystemClock
from pikkuflow.domain.canvas import CANVAS, canvas_definition
from pikkuflow.domain.definition import Registry, WorkflowDefinition, code_version, dispatch_of, plan_of
from pikkuflow.domain.duration import run_timeout_of
from pikkuflow.domain.gate_act import AuditEntry
from pikkuflow.engine.group_commit import GroupWriter
from pikkuflow.engine.orchestrate import HELPERS
from pikkuflow.engine.runs import Runs
from pikkuflow.engine.runtime import Runtime
from pikkuflow.errors import SettingError, WorkflowDefinitionError
from pikkuflow.ports import Hints, Leases
from pikkuflow.replay.context import Workflow
from pikkuflow.settings import Settings

__all__ = ["PikkuFlow"]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., None])

_SPARE_CONNECTIONS: Final = 2
"""Beside one for each step worked at a time: the lease keeper, and a start that is recorded meanwhile."""


class PikkuFlow:
    """Durable workflows for a Celery app: ``pikku = PikkuFlow(app)``, or ``PikkuFlow()`` and ``init_app(app)`` later."""

    def __init__(self, app: Celery[Any] | None = None) -> None:
        self.registry = Registry([canvas_definition()])
        self.node = Node()
        self.runs = Runs(lambda: self.runtime)
        self._app: Celery | None = None
        self._waiting: list[Callable[[Celery], Any]] = []
        self._compensations = Compensations()
        self._audit: Callable[[AuditEntry], None] | None = None
        self._settings: Settings | None = None
        self._runtime: Runtime | None = None
        self._runtime_pid = 0
        self._inherited: list[Runtime] = []
        self._building = threading.RLock()
        if app is not None:
            self.init_app(app)

    # --- the app ----------------------------------------------------------------------------------------------------
    def init_app(self, app: Celery[Any]) -> None:
        """Bind to an app, configured or not: engine tasks, defaults, routes, beat entries and worker hooks are added.

        Raises ``SettingError`` when the app has another extension, or this one another app.
        """
        if getattr(app, ATTRIBUTE, None) is not None or self._app is not None:
            raise SettingError(
                "This PikkuFlow has an app, or this app a PikkuFlow, already.", hint="Make one PikkuFlow for each app."
            )
        self._app = app
        setattr(app, ATTRIBUTE, self)
        register_engine_tasks(app)
        install_worker_hooks(self)
        self._compensations.bind(app)
        if cast("Any", app).configured:
            self._on_configured()
        else:
            app.on_after_configure.connect(self._on_configured, sender=app, weak=False)
        for register in self._waiting:
            register(app)
        self._waiting.clear()

    @property
    def app(self) -> Celery:
        """The app. Raises ``SettingError`` before ``init_app``."""
        if self._app is None:
            raise SettingError("This PikkuFlow has no app yet.", hint="Call pikku.init_app(app) first.")
        return self._app

    @property
    def settings(self) -> Settings:
        """The settings, read once from the app's configuration and the environment. Raises ``SettingError``."""
        if self._settings is None:
            self._settings = Settings.from_mapping(self.app.conf, os.environ)
        return self._settings

    def _on_configured(self, *_: Any, **__: Any) -> None:
        add_defaults(self.app)
        try:
            settings = self.settings
        except SettingError:
            # Celery only logs what a signal's receiver raises. The worker's start and the first use raise it again.
            return
        add_routes(self.app, settings)
        add_beat_entries(self.app, settings)

    # --- defining ---------------------------------------------------------------------------------------------------
    @overload
    def workflow(self, function: Callable[Concatenate[Workflow, P], R], /) -> WorkflowTask[P, R]: ...
    @overload
    def workflow(
        self,
        *,
        name: str | None = None,
        queue: str | None = None,
        version: str | None = None,
        dispatch: str | None = None,
        quick: bool = False,
        timeout: float | timedelta | str | None = None,
        planned_steps: Sequence[str] | None = None,
        deterministic: bool = False,
        task_options: Mapping[str, Any] | None = None,
    ) -> Callable[[Callable[Concatenate[Workflow, P], R]], WorkflowTask[P, R]]: ...
    def workflow(  # type: ignore[misc]  # noqa: PLR0913 - each is one thing that an author may say
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        version: str | None = None,
        dispatch: str | None = None,
        quick: bool = False,
        timeout: float | timedelta | str | None = None,
        planned_steps: Sequence[str] | None = None,
        deterministic: bool = False,
        task_options: Mapping[str, Any] | None = None,
    ) -> Any:
        """Register a workflow: ``@pikku.workflow`` or ``@pikku.workflow(name="shop.order")``. The app stays unconfigured.

        Args:
            function: the body; its first parameter is ``wf``.
            name: the workflow's and its Celery task's name; else module and function, as Celery names tasks.
            queue: where its passes go; else the route of its task name decides.
            version: what a change of the body is told by; else a hash of its code (D17).
            dispatch: ``"auto"``, ``"queue"`` or ``"inline"`` for its steps; else the setting.
            quick: outcomes of its steps in place may be kept for 10 ms and written together; after a crash these steps repeat.
            timeout: how long a run of it may take in all; one that takes longer fails and is undone. A start may say otherwise.
            planned_steps: names of the steps it may take, in their order, shown with its runs (D16).
            deterministic: it always takes exactly ``planned_steps``.
            task_options: further options of its Celery task, such as ``ignore_result``.

        Raises:
            WorkflowDefinitionError: the function cannot be a workflow, the name is another's, the version no text, or the plan no list.
            DurationError: the timeout is 0 or no duration.
        """

        def register(body: Callable[..., Any]) -> Any:
            definition = WorkflowDefinition(
                name=name or self._name_of(body),
                body=body,
                version=code_version(body) if version is None else version,
                queue=queue,
                dispatch=dispatch_of(dispatch),
                quick=quick,
                planned_steps=None if planned_steps is None else plan_of(planned_steps),
                deterministic=deterministic,
                timeout_seconds=run_timeout_of(timeout, workflow=name or self._name_of(body)),
            )
            self.registry.add(definition)
            return self._task_of(definition, task_options or {})

        return register if function is None else register(function)

    def graph(
        self,
        name: str,
        *,
        nodes: Nodes,
        entry: str | Sequence[str],
        **choices: Unpack[GraphChoices],
    ) -> WorkflowTask[Any, None]:
        """Register a workflow that is data: nodes and what follows each (spec 3). It is started like any other workflow.

        Args:
            name: the workflow's and its Celery task's name.
            nodes: the nodes by id, each a ``Node`` or a mapping of the same fields.
            entry: the id, or ids, of the nodes that a run begins with.
            choices: see ``GraphChoices``. Raises ``WorkflowDefinitionError``, which names the node and what is wrong with it.
        """
        definition = graph_definition(name, nodes, entry, choices, self._app)
        self.registry.add(definition)
        return cast("WorkflowTask[Any, None]", self._task_of(definition, choices.get("task_options") or {}))

    def graph_file(self, path: str | Path, **choices: Unpack[GraphChoices]) -> WorkflowTask[Any, None]:
        """Register the graph workflow of a JSON or YAML file; its form is published as ``pikkuflow/graph.schema.json``.

        Raises as ``graph``, ``SettingError`` for a YAML file without PyYAML, and ``OSError`` for a file that cannot be read.
        """
        return self.graph(**{**read_graph_file(path), **choices})

    def durable(self, canvas: Mapping[str, Any]) -> DurableCanvas:
        """A Celery canvas as a run to start: ``pikku.durable(chain(a.s(1), group(b.s(), c.s()), d.s())).start()``.

        Args:
            canvas: a chain, group, chord, map, starmap, chunks or one task's signature, nested to any depth.

        Raises:
            WorkflowDefinitionError: something in it cannot be made durable; the message names it, and no run was made.
        """
        return durable(self, canvas)

    def compensates(self, task: Any) -> Callable[[F], F]:
        """Declare how a task is undone: ``@pikku.compensates(charge)``. Its steps then record their start before they work (D20).

        The function gets an ``Undo`` (how the step ended) and then the step's own arguments; what it returns is not used. It is a Celery
        task named ``<task>:compensate``, or may be a task already.

        Args:
            task: the Celery task, or its name.
        """

        def register(undo: F) -> F:
            self._compensations.add(task, undo)
            return undo

        return register

    def on_audit(self, hook: Callable[[AuditEntry], None], /) -> Callable[[AuditEntry], None]:
        """Have every decision on an approval told to a function, refused ones too: ``@pikku.on_audit``. The audit table is kept anyway.

        It is called in the process that decides or judges, once the entry is stored. What it raises is a warning in the log (spec 12.3).

        Raises ``WorkflowDefinitionError`` when there is one already.
        """
        if self._audit is not None:
            raise WorkflowDefinitionError("There is an audit hook already.", hint="Call both from one function.")
        self._audit = hook
        return hook

    def workflow_named(self, name: str) -> WorkflowTask[Any, Any]:
        """The registered workflow of that name.

        Raises ``WorkflowNotFound``, and ``WorkflowDefinitionError`` when a Celery task took its name.
        """
        self.registry.get(name)
        if name == CANVAS:
            raise WorkflowDefinitionError(
                f"{name!r} has no task.", hint="Start a canvas: pikku.durable(canvas).start()."
            )
        task: Any = self.app.tasks[name]
        if not isinstance(task, WorkflowTask):
            raise WorkflowDefinitionError(
                f"{name!r} is the name of a Celery task and of a workflow.", hint="Give the workflow another name=."
            )
        return task

    def _name_of(self, body: Callable[..., Any]) -> str:
        function, module = getattr(body, "__name__", type(body).__name__), getattr(body, "__module__", "__main__")
        # Celery's rule (the app's name stands for __main__), which is a dotted path while there is no app.
        return str(gen_task_name(self._app, function, module)) if self._app is not None else f"{module}.{function}"

    def _task_of(self, definition: WorkflowDefinition, options: Mapping[str, Any]) -> Any:
        def register(app: Celery) -> Any:
            # bind: the check of arguments skips `wf`. run: Celery must never call the body (recipes 10).
            made: dict[str, Any] = {
                "bind": True,
                "shared": False,
                "base": WorkflowTask,
                "run": WorkflowTask.run,
                "pikkuflow_workflow": definition.name,
                **options,
            }
            decorate: Any = app.task(name=definition.name, **made)
            return decorate(definition.body)

        if self._app is not None:
            return register(self._app)
        self._waiting.append(register)
        late: Any = Proxy
        return late(lambda: self.app.tasks[definition.name])

    # --- surroundings -----------------------------------------------------------------------------------------------
    @property
    def runtime(self) -> Runtime:
        """The engine's surroundings in this process. Raises ``SettingError`` for an unknown or impossible setting."""
        if self._runtime is None or self._runtime_pid != os.getpid():
            if self._runtime_pid != os.getpid():
                # A lock that another thread of the parent held would stay held for ever.
                self._building = threading.RLock()
            with self._building:
                self._build()
        return cast("Runtime", self._runtime)

    def _build(self) -> None:
        if self._runtime is not None and self._runtime_pid != os.getpid():
            self._inherited.append(self._runtime)
            self._runtime = None
        if self._runtime is None:
            helpers = HELPERS if self.settings.group_commit else 0
            self._runtime = self.compose(
                connections=self.node.concurrency + helpers + _SPARE_CONNECTIONS,
                patience_seconds=self.node.patience_seconds,
            )
            self._runtime_pid = os.getpid()

    def refresh(self) -> None:
        """Close the surroundings of this process; the next use builds them for what the process is by then (a worker, beat)."""
        if self._runtime is not None and self._runtime_pid == os.getpid():
            self._runtime.store.close()
            self._runtime = None

    @contextmanager
    def replaced(self, runtime: Runtime) -> Iterator[Runtime]:
        """Use other surroundings in this process while the block runs; for tests."""
        before = self._runtime, self._runtime_pid
        self._runtime, self._runtime_pid = runtime, os.getpid()
        try:
            yield runtime
        finally:
            self._runtime, self._runtime_pid = before

    def compose(self, *, connections: int, patience_seconds: float | None) -> Runtime:
        """Build fresh surroundings with their own connections.

        Args:
            connections: how many a pool to the database keeps.
            patience_seconds: how long an act waits for a database that is away; None is for ever.
        """
        app, settings, node = self.app, self.settings, self.node
        routing = Routing(app, settings, self.registry)
        codec = JsonCodec(settings.max_payload_bytes, codec_hook(settings.codec))
        store = SqlRunStore(
            settings.database_url,
            pool_size=connections,
            patience_seconds=patience_seconds,
            is_stopping=node.is_stopping,
        )
        leases, hints = self._leases(store, settings)
        return Runtime(
            store=store,
            leases=leases,
            hints=hints,
            dispatcher=CeleryDispatcher(app, settings, self.registry, routing),
            runner=CeleryStepRunner(app, settings, self.registry, routing),
            translate=SignatureTranslator(app, self.registry, undo_task_of=self._compensations.undo_task_of),
            deliverer=CeleryDeliverer(app, codec),
            codec=codec,
            clock=SystemClock(),
            ids=RandomIds(),
            observer=LoggingObserver(),
            registry=self.registry,
            settings=settings,
            holder=node.holder,
            is_stopping=node.is_stopping,
            consumes=lambda workflow: (
                node.is_worker and routing.of_workflow(workflow).queue in app.amqp.queues.consume_from
            ),
            has_broker=bool(broker_url(app)),
            audit=self._audit,
            writer=GroupWriter(store) if settings.group_commit else None,
        )

    def _leases(self, store: SqlRunStore, settings: Settings) -> tuple[Leases, Hints]:
        url = redis_url_of(settings.lease_url or broker_url(self.app) or "")
        if url is not None:
            return RedisLeases(url), RedisHints(url)
        if settings.lease_url is not None:
            raise SettingError(
                "pikkuflow_lease_url names no Redis or Valkey server.",
                hint="Give a redis:// or unix:// URL, or leave it out: leases are then rows of the database.",
            )
        return SqlLeases(store.database), DueColumnHints(store)
