"""A deployment as a user has it: one broker, one database, the processes that a test starts, and a client in the test's own process.

Applications are modules of ``tests.acceptance.apps``. Workers import them by name; ``load`` imports them afresh for each deployment, so
that clients of several deployments live side by side in one pytest process.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from celery import _state as celery_state

from pikkuflow.adapters.sql import migrations
from pikkuflow.domain.step import Attempt, Step
from pikkuflow.engine.run_handle import Run
from tests.acceptance.apps import journal
from tests.servers.processes import CeleryProcesses, Program, wait_until

APPS = "tests.acceptance.apps"
QUICK = {"PIKKUFLOW_SWEEP_INTERVAL": "1", "PIKKUFLOW_STALLED_SECONDS": "1", "PIKKUFLOW_UNDISPATCHED_SECONDS": "3"}
"""Sweeps that a test can wait for."""


@dataclass(slots=True, kw_only=True)
class Deployment:
    """Broker, database and settings (environment variables) of one deployment. Made migrated by ``deployed``."""

    folder: Path
    broker_url: str
    database_url: str
    settings: Mapping[str, str] = field(default_factory=lambda: dict(QUICK))
    processes: CeleryProcesses = field(init=False)
    _clients: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.processes = CeleryProcesses(folder=self.folder, env=self.env)

    @property
    def journal_path(self) -> Path:
        """Where tasks write what they did."""
        return self.folder / "journal"

    @property
    def env(self) -> dict[str, str]:
        """What every process of the deployment has in its environment."""
        return {
            "CELERY_BROKER_URL": self.broker_url,
            "PIKKUFLOW_DATABASE_URL": self.database_url,
            journal.JOURNAL: str(self.journal_path),
            **self.settings,
        }

    @contextmanager
    def environ(self) -> Iterator[None]:
        """Within it, this process has the deployment's environment."""
        before = dict(os.environ)
        os.environ.update(self.env)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)

    def load(self, app: str) -> Any:
        """The module of an application as a client of this deployment sees it; imported once a deployment."""
        if app not in self._clients:
            with self.environ(), _fresh_modules():
                module: Any = importlib.import_module(f"{APPS}.{app}")
                module.app.finalize()
                _ = module.pikku.settings
            self._clients[app] = module
        return self._clients[app]

    def worker(self, app: str, **options: Any) -> Program:
        """A worker of an application, once it consumes; see ``CeleryProcesses.worker``. It looks for no neighbours: that takes a second."""
        more = ("--without-mingle", "--without-gossip", *options.pop("options", ()))
        return self.processes.worker(f"{APPS}.{app}", options=more, **options)

    def beat(self, app: str, **options: Any) -> Program:
        """A beat of an application, once it has begun."""
        return self.processes.beat(f"{APPS}.{app}", **options)

    def journal(self, event: str | None = None, *, run: Run[Any] | str | None = None) -> list[dict[str, Any]]:
        """What tasks wrote, the oldest first: all of it, or one kind of event, or that of one run."""
        run_id = run.id if isinstance(run, Run) else run
        return [
            line
            for line in journal.read(self.journal_path)
            if event in {None, line["event"]} and run_id in {None, line.get("run")}
        ]

    def wait_for_journal(
        self, event: str, *, run: Run[Any] | str | None = None, count: int = 1, seconds: float = 20.0
    ) -> list[dict[str, Any]]:
        """Wait until an event was written that often."""
        found: list[dict[str, Any]] = []

        def written() -> bool:
            found[:] = self.journal(event, run=run)
            return len(found) >= count

        wait_until(written, seconds=seconds, what=lambda: f"{count} lines {event!r} of {run}; there are {found}")
        return found

    def close(self) -> None:
        """End every process, by force, since nobody asks for anything of it again; and the clients' connections."""
        for program in reversed(self.processes.programs):
            if program.is_running:
                program.kill_all()
            program.stop()
        for module in self._clients.values():
            close_client(module)
        self._clients.clear()


def close_client(module: Any) -> None:
    """Close what a client in this process has open."""
    module.pikku.runtime.store.close()
    module.app.close()


@contextmanager
def _fresh_modules() -> Iterator[None]:
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_application(name)}
    # Celery gives each app the tasks of all others; of one module's two imports an app must get its own.
    callbacks: set[Any] = celery_state._on_app_finalizers  # type: ignore[attr-defined]
    shared = set(callbacks)
    try:
        yield
    finally:
        callbacks.intersection_update(shared)
        for name in [name for name in sys.modules if _is_application(name)]:
            del sys.modules[name]
        sys.modules.update(kept)


def _is_application(name: str) -> bool:
    return name.startswith(f"{APPS}.") and name != journal.__name__


def deployed(
    folder: Path, *, broker_url: str, database_url: str, settings: Mapping[str, str] | None = None
) -> Deployment:
    """A deployment whose database is migrated, with quick sweeps and ``settings`` (environment variables) on top."""
    migrations.upgrade(database_url)
    return Deployment(
        folder=folder, broker_url=broker_url, database_url=database_url, settings={**QUICK, **(settings or {})}
    )


def steps_of(module: Any, run: Run[Any] | str) -> list[Step]:
    """The step rows of a run, in their order."""
    run_id = run.id if isinstance(run, Run) else run
    return sorted(module.pikku.runtime.store.list_steps(run_id), key=lambda step: step.seq)


def step_of(module: Any, run: Run[Any] | str, name: str) -> Step:
    """One step row of a run."""
    return next(step for step in steps_of(module, run) if step.name == name)


def attempts_of(module: Any, run: Run[Any] | str, name: str) -> list[Attempt | Step]:
    """Every attempt at a step, the earliest first: copies of earlier ones, then the row itself."""
    run_id = run.id if isinstance(run, Run) else run
    earlier: list[Attempt | Step] = [
        one for one in module.pikku.runtime.store.list_attempts(run_id) if one.step == name
    ]
    return [*earlier, step_of(module, run, name)]


def wait_for_status(run: Run[Any], *statuses: str, seconds: float = 20.0) -> str:
    """Wait until a run has one of these statuses, and say which."""
    return str(
        wait_until(
            lambda: (now := run.status().status.value) in statuses and now,
            seconds=seconds,
            what=lambda: f"run {run.id} {'/'.join(statuses)}; it is {run.status().to_dict()}",
        )
    )
