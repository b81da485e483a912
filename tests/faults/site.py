"""A deployment whose servers are its own, so that they can be killed, frozen and emptied; and what tests do to processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.deployment import Deployment, deployed
from tests.servers.postgres import PostgresServer
from tests.servers.processes import Program, wait_until
from tests.servers.valkey import ValkeyServer

LONG = 60.0
"""Seconds until a condition must have come true; machines that test are busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A deployment with a Valkey and a PostgreSQL server that nobody else uses."""

    deployment: Deployment
    valkey: ValkeyServer
    postgres: PostgresServer

    @property
    def faulty(self) -> Any:
        """The client of the application ``faulty``."""
        return self.deployment.load("faulty")


@contextmanager
def own_site(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[Site]:
    """Servers, a migrated database and a deployment on them; all of it is gone at the end."""
    valkey, postgres = ValkeyServer(), PostgresServer()
    try:
        valkey.start()
        postgres.start()
        deployment = deployed(
            folder,
            broker_url=valkey.broker_url,
            database_url=postgres.url(postgres.create_database()),
            settings=settings,
        )
        try:
            yield Site(deployment=deployment, valkey=valkey, postgres=postgres)
        finally:
            resume(valkey.program)
            deployment.close()
    finally:
        valkey.stop()
        postgres.stop()


def freeze(program: Program) -> list[int]:
    """SIGSTOP a program and its children, as when a machine sleeps; the pids."""
    pids = [program.pid, *(child.pid for child in program.children())]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    return pids


def resume(program: Program) -> None:
    """SIGCONT for a program and its children; harmless when it has ended or runs."""
    if program.is_running:
        for pid in [program.pid, *(child.pid for child in program.children())]:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                continue


def wait_for_steps(run: Any, *names: str, seconds: float = LONG) -> None:
    """Wait until a run shows these steps."""
    wait_until(
        lambda: {step.name for step in run.status().steps} >= set(names),
        seconds=seconds,
        what=lambda: f"steps {names} of {run.id}: {run.status().to_dict()}",
    )


def keys_of(lines: list[dict[str, Any]]) -> set[str]:
    """The idempotency keys in lines of the journal."""
    return {line["key"] for line in lines}


def attempts_begun(deployment: Deployment, run: Any) -> list[int]:
    """The attempts of a run's steps that began, the first first."""
    return [line["attempt"] for line in deployment.journal("begun", run=run)]
