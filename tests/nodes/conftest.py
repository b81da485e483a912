"""pytest-celery's setup over processes: a Valkey server and a worker of this test alone, without Docker.

The plugin itself stays switched off (``addopts`` in pyproject.toml): it would give its fixtures, and Celery's, to every test, and bring
Docker's client with it. What is used of it is imported here, so only a session that collects this folder imports it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from pytest_celery import (
    CeleryBackendCluster,
    CeleryBrokerCluster,
    CeleryTestBackend,
    CeleryTestBroker,
    CeleryTestSetup,
    CeleryWorkerCluster,
)
from pytest_celery.fixtures.backend import celery_backend_cluster_config
from pytest_celery.fixtures.broker import celery_broker_cluster_config
from pytest_celery.fixtures.setup import celery_setup, celery_setup_app, celery_setup_config, celery_setup_name
from pytest_celery.fixtures.worker import celery_worker_cluster_config

from pikkuflow.adapters.sql import migrations
from tests.nodes.containers import ProcessWorker, ServerContainer, WorkerContainer
from tests.nodes.journal import JOURNAL, ORDER_GATE, Journal
from tests.servers.processes import CeleryProcesses
from tests.servers.valkey import ValkeyServer

__all__ = [
    "celery_backend_cluster_config",
    "celery_broker_cluster_config",
    "celery_setup",
    "celery_setup_app",
    "celery_setup_config",
    "celery_setup_name",
    "celery_worker_cluster_config",
]


class ProcessSetup(CeleryTestSetup):  # type: ignore[misc] # pytest-celery has no types
    """The setup, whose application is closed with it."""

    def teardown(self) -> None:
        """Close the connections of the test's own application."""
        self.app.close()


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """What the tasks of this test wrote."""
    return Journal(tmp_path / "journal")


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file that is not there yet; tasks wait for it."""
    return tmp_path / "gate"


@pytest.fixture
def celery_setup_cls() -> type[ProcessSetup]:
    """What makes the setup."""
    return ProcessSetup


@pytest.fixture
def celery_broker_cluster(own_valkey: ValkeyServer) -> Any:
    """A broker that the test may restart."""
    return CeleryBrokerCluster(CeleryTestBroker(ServerContainer(own_valkey, database=0)))


@pytest.fixture
def celery_backend_cluster(own_valkey: ValkeyServer) -> Any:
    """A result backend in the same server."""
    return CeleryBackendCluster(CeleryTestBackend(ServerContainer(own_valkey, database=2)))


@pytest.fixture
def worker_app() -> str:
    """The application that the worker serves, as a module of this folder; tests that want another one parametrize it."""
    return "plain"


@pytest.fixture
def deployment_env(
    celery_worker_cluster_config: dict[str, Any], journal: Journal, gate: Path, tmp_path: Path
) -> dict[str, str]:
    """The environment of workers and beats."""
    return {
        "CELERY_BROKER_URL": celery_worker_cluster_config["celery_broker_cluster_config"]["urls"][0],
        "CELERY_RESULT_BACKEND": celery_worker_cluster_config["celery_backend_cluster_config"]["urls"][0],
        "PIKKUFLOW_DATABASE_URL": f"sqlite:///{tmp_path / 'runs.db'}",
        JOURNAL: str(journal.path),
        ORDER_GATE: str(gate),
    }


@pytest.fixture
def celery_worker_cluster(
    worker_app: str, celery_processes: CeleryProcesses, deployment_env: dict[str, str], celery_setup_app: Celery
) -> Iterator[Any]:
    """One worker that works one task at a time. Mingle and gossip are left out: looking for neighbours takes a second."""
    celery_processes.env.update(deployment_env)
    if worker_app == "flows":
        migrations.upgrade(deployment_env["PIKKUFLOW_DATABASE_URL"])
    program = celery_processes.celery(
        f"tests.nodes.{worker_app}",
        *("worker", "-n", "w1@%h", "-c", "1", "-l", "INFO", "--without-mingle", "--without-gossip"),
        name="worker-w1",
    )
    container = WorkerContainer(program, node_name="w1")
    container.start()
    worker = ProcessWorker(container, celery_setup_app)
    yield CeleryWorkerCluster(worker)
    worker.kill()  # a warm shutdown takes seconds, and nobody asks for anything of it again
