"""A deployment on MariaDB (issue A, "Stores")."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.conftest import empty_broker
from tests.acceptance.deployment import Deployment, attempts_of, deployed
from tests.servers.mariadb import MariaServer
from tests.servers.processes import wait_until
from tests.servers.valkey import ValkeyServer

SECONDS = 30


@pytest.fixture(scope="module")
def mysql_deployment(
    tmp_path_factory: pytest.TempPathFactory, mariadb_server: MariaServer, valkey_server: ValkeyServer
) -> Iterator[Deployment]:
    """Valkey, a MariaDB database and a prefork worker."""
    database = mariadb_server.create_database()
    deployment = deployed(
        tmp_path_factory.mktemp("mysql"),
        broker_url=empty_broker(valkey_server),
        database_url=mariadb_server.url(database),
    )
    try:
        deployment.worker("steps")
        yield deployment
    finally:
        deployment.close()
        mariadb_server.drop_database(database)


@pytest.fixture(scope="module")
def steps(mysql_deployment: Deployment) -> Any:
    """The client."""
    return mysql_deployment.load("steps")


def test_every_kind_of_step_completes(steps: Any) -> None:
    """In place, fanned out, as a child run, after a sleep, after retries; with text that needs four bytes."""
    runs = [
        steps.row.start("steps.touch", [1, 2, 3]),
        steps.fan.start("steps.touch", list(range(30)), chunk=5),
        steps.parent.start("steps.touch", "naïve 🦊 \u0000"),
        steps.sleeper.start(0.5),
        steps.one.start("steps.fail_until", 3, retry_delay=0.2),
        steps.one.start("steps.fail_until", 3, retry_delay=0.2, dispatch="queue"),
    ]
    expected = [[1, 2, 3], list(range(30)), "naïve 🦊 \u0000", ["before", "after"], 3, 3]
    assert [run.result(timeout=SECONDS) for run in runs] == expected


@pytest.mark.parametrize("options", [pytest.param({}, id="in-place"), pytest.param({"dispatch": "queue"}, id="queue")])
def test_a_killed_child_is_taken_over(mysql_deployment: Deployment, steps: Any, options: dict[str, Any]) -> None:
    """T6.2: the next attempt begins soon, and both are kept."""
    run = steps.one.start("steps.hang_until", 2, **options)
    (begun,) = mysql_deployment.wait_for_journal("begun", run=run)
    wait_until(lambda: run.status().steps, what="the row of the step")
    os.kill(begun["pid"], signal.SIGKILL)
    assert run.result(timeout=20) == 2
    assert [row.attempt for row in attempts_of(steps, run, "work")] == [1, 2]


def test_many_runs_at_once_lose_nothing(mysql_deployment: Deployment, steps: Any) -> None:
    """Deadlocks of MariaDB are tried again, and never seen as failures."""
    runs = [steps.fan.start("steps.touch", list(range(10))) for _ in range(10)]
    assert [run.result(timeout=SECONDS) for run in runs] == [list(range(10))] * 10
    for run in runs:
        assert len(mysql_deployment.journal("touched", run=run)) == 10
