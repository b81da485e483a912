"""Where a worker and a beat meet the extension: checks before the pool starts, the watching thread, warm shutdown (recipes 5)."""

from __future__ import annotations

from typing import Any

import click
from celery import bootsteps, signals

from pikkuflow.adapters.celery.beat import add_beat_entries
from pikkuflow.adapters.celery.extension import Extension
from pikkuflow.adapters.celery.pools import refuse_green_pool
from pikkuflow.adapters.celery.quiet_log import quieten_celery
from pikkuflow.adapters.celery.tasks import widen_limits
from pikkuflow.adapters.celery.watch import Watch
from pikkuflow.engine.versions import store_versions
from pikkuflow.errors import NoBroker, PikkuFlowError

__all__ = ["WorkerHooks", "install_worker_hooks"]

_BEAT_PATIENCE_SECONDS = 2.0
"""A beat that waits for the database sends no one's tasks; the next tick comes soon."""


class WorkerHooks:
    """What happens to one extension while its app runs as a worker or as beat."""

    def __init__(self, ext: Extension) -> None:
        self._ext = ext
        self._watch: Watch | None = None

    def before_pool(self, worker: Any) -> None:
        """Check what would only fail later, and become a worker; no child exists yet.

        Raises ``click.ClickException`` with the reason and what to do: the command line shows just that, and exits with 1.
        """
        try:
            settings = self._ext.settings
            refuse_green_pool(worker.pool_cls, allowed=settings.allow_green_pools)
            self._ext.node.begin_worker(
                concurrency=_at_a_time(worker), has_limits=bool(worker.time_limit or worker.soft_time_limit)
            )
            self._ext.refresh()
            widen_limits(self._ext.app, worker.time_limit, worker.soft_time_limit)
            _check_servers(self._ext)
            quieten_celery()
        except PikkuFlowError as error:
            raise click.ClickException(f"{error} [{error.code}]") from error

    def after_pool(self, worker: Any) -> None:
        """The pool's processes exist: listen for the shutdown, start to watch."""
        wait = worker.wait_for_soft_shutdown

        def stop_passes_first() -> Any:
            self._ext.node.begin_stopping()
            return wait()

        # Celery tells of a shutdown only after the soft wait, which passes would spend working on.
        worker.wait_for_soft_shutdown = stop_passes_first
        self._watch = Watch(self._ext, worker)
        self._watch.start()

    def on_ready(self, sender: Any = None, **_: Any) -> None:
        """The worker consumes: look once for what an earlier one left (design 3.8)."""
        if self._watch is not None and self._ext.settings.recovery and getattr(sender, "app", None) is self._ext.app:
            self._watch.look_for_leftovers()

    def on_shutting_down(self, **_: Any) -> None:
        """A warm shutdown began. The main process hears of it, children read the flag."""
        if self._ext.node.is_worker:
            self._ext.node.begin_stopping()

    def on_shutdown(self, **_: Any) -> None:
        """No child works any more."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.end()

    def on_beat(self, sender: Any = None, **_: Any) -> None:
        """Beat starts. Whatever was assigned to ``beat_schedule`` since the app was configured, the sweeps are in it."""
        if getattr(sender, "app", None) is self._ext.app:
            self._ext.node.patience_seconds = _BEAT_PATIENCE_SECONDS
            self._ext.refresh()
            add_beat_entries(self._ext.app, self._ext.settings)


class _WorkerStep(bootsteps.StartStopStep):
    """Made into one class for each app."""

    requires = ("celery.worker.components:Pool",)
    hooks: WorkerHooks

    def __init__(self, parent: Any, **kwargs: Any) -> None:
        super().__init__(parent, **kwargs)
        self.hooks.before_pool(parent)

    def start(self, parent: Any) -> None:
        """After the pool's start."""
        self.hooks.after_pool(parent)

    def stop(self, parent: Any) -> None:
        """Stop nothing: children still work, and need what this step started (recipes 5)."""

    terminate = stop


def install_worker_hooks(ext: Extension) -> WorkerHooks:
    """Hang the hooks on the app and on Celery's signals. Once for each extension."""
    hooks = WorkerHooks(ext)
    name = f"pikkuflow.adapters.celery.worker_hooks.Step{id(ext)}"
    ext.app.steps["worker"].add(type("PikkuFlowStep", (_WorkerStep,), {"hooks": hooks, "name": name}))
    signals.worker_ready.connect(hooks.on_ready, weak=False)
    signals.worker_shutting_down.connect(hooks.on_shutting_down, weak=False)
    signals.worker_shutdown.connect(hooks.on_shutdown, weak=False)
    signals.beat_init.connect(hooks.on_beat, weak=False)
    return hooks


def _at_a_time(worker: Any) -> int:
    """How many messages one process of this pool works at a time."""
    is_prefork = worker.pool_cls.__module__.endswith(".prefork")
    return 1 if is_prefork else int(worker.concurrency or 1)


def _check_servers(ext: Extension) -> None:
    """A broker is named, the schema is this code's, and it gets to know the versions that this worker has (spec 1.4).

    With connections that are closed again: nothing open goes through the fork.
    """
    rt = ext.compose(connections=1, patience_seconds=_START_PATIENCE_SECONDS)
    try:
        if not rt.has_broker:
            raise NoBroker(
                "Neither the configuration nor the environment names a broker, so there is nothing to consume.",
                hint="Set broker_url or CELERY_BROKER_URL.",
            )
        rt.store.check_schema()
        store_versions(rt)
    finally:
        rt.store.close()


_START_PATIENCE_SECONDS = 30.0
