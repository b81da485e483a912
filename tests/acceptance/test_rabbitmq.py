"""RabbitMQ and no Redis anywhere: leases are rows, hints are due times, and everything still holds (spec 6.1, D11)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.deployment import Deployment, deployed
from tests.servers.postgres import PostgresServer
from tests.servers.processes import wait_until
from tests.servers.rabbitmq import RabbitServer

SECONDS = 30


@pytest.fixture(scope="module")
def rabbitmq_deployment(
    tmp_path_factory: pytest.TempPathFactory, rabbitmq_server: RabbitServer, postgres_server: PostgresServer
) -> Iterator[Deployment]:
    """A virtual host, a PostgreSQL database, a prefork worker and a beat."""
    vhost, database = rabbitmq_server.create_vhost(), postgres_server.create_database()
    deployment = deployed(
        tmp_path_factory.mktemp("rabbitmq"),
        broker_url=rabbitmq_server.url(vhost),
        database_url=postgres_server.url(database),
    )
    try:
        deployment.worker("steps", name="rabbit")
        deployment.beat("steps")
        yield deployment
    finally:
        deployment.close()
        rabbitmq_server.delete_vhost(vhost)
        postgres_server.drop_database(database)


@pytest.fixture(scope="module")
def steps(rabbitmq_deployment: Deployment) -> Any:
    """The client."""
    return rabbitmq_deployment.load("steps")


def test_leases_are_rows_of_the_database(steps: Any) -> None:
    """Nobody asked for Redis, so nobody looks for one."""
    rt = steps.pikku.runtime
    assert "Sql" in type(rt.leases).__name__
    assert rt.hints is not None


def test_steps_in_place_and_dispatched_complete(steps: Any) -> None:
    """In place, fanned out, as a child run, and after a sleep of which only a row knows."""
    runs = [
        steps.row.start("steps.touch", [1, 2, 3]),
        steps.fan.start("steps.touch", list(range(20))),
        steps.parent.start("steps.touch", "child"),
        steps.sleeper.start(0.5),
        steps.one.start("steps.fail_until", 3, retry_delay=0.2, dispatch="queue"),
    ]
    expected = [[1, 2, 3], list(range(20)), "child", ["before", "after"], 3]
    assert [run.result(timeout=SECONDS) for run in runs] == expected


@pytest.mark.parametrize("options", [pytest.param({}, id="in-place"), pytest.param({"dispatch": "queue"}, id="queue")])
def test_a_killed_child_is_taken_over(rabbitmq_deployment: Deployment, steps: Any, options: dict[str, Any]) -> None:
    """As with Redis: the next attempt begins long before a lease lapses, under the same key."""
    run = steps.one.start("steps.hang_until", 2, **options)
    (begun,) = rabbitmq_deployment.wait_for_journal("begun", run=run)
    wait_until(lambda: run.status().steps, what="the row of the step")
    os.kill(begun["pid"], signal.SIGKILL)
    assert run.result(timeout=20) == 2
    lines = rabbitmq_deployment.journal("begun", run=run)
    assert [line["attempt"] for line in lines] == [1, 2]
    assert {line["key"] for line in lines} == {begun["key"]}


def test_a_worker_survives_the_loss_of_its_connections(
    rabbitmq_deployment: Deployment, rabbitmq_server: RabbitServer, steps: Any
) -> None:
    """The server cuts every connection; what is started then is worked all the same."""
    rabbitmq_server.close_connections()
    runs = [steps.one.start("steps.touch", number, dispatch="queue") for number in range(5)]
    assert [run.result(timeout=SECONDS) for run in runs] == list(range(5))
