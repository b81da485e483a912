"""A counted app: PostgreSQL with fsync on, an emptied Valkey, and a few workflows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from celery import Celery

from pikkuflow import PikkuFlow, Workflow, WorkflowTask
from pikkuflow.adapters.sql import migrations
from tests.integration.counts.meter import Meter
from tests.servers.postgres import PostgresServer
from tests.servers.valkey import ValkeyServer


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The meter, and what it measures."""

    meter: Meter
    here: WorkflowTask[[int], int]
    """So many steps in place."""
    there: WorkflowTask[[int], int]
    """So many steps, each on a step worker."""
    fan: WorkflowTask[[int, int], int]
    """So many parallel steps, so many to a message."""
    nap: WorkflowTask[[int], None]
    """So many sleeps."""


def _counted(app: Celery, pikku: PikkuFlow, meter: Meter) -> Counted:
    @app.task(name="counted.inc", shared=False)
    def inc(x: int) -> int:
        return x + 1

    def chain(wf: Workflow, steps: int) -> int:
        for x in range(steps):
            wf.do(inc.s(x))
        return steps

    @pikku.workflow(name="counted.fan")
    def fan(wf: Workflow, count: int, chunk: int) -> int:
        return sum(wf.map(inc, list(range(count)), chunk=chunk))

    @pikku.workflow(name="counted.nap")
    def nap(wf: Workflow, count: int) -> None:
        for _ in range(count):
            wf.sleep(0.001)

    here = pikku.workflow(name="counted.here")(chain)
    there = pikku.workflow(name="counted.there", dispatch="queue")(chain)
    return Counted(meter=meter, here=here, there=there, fan=fan, nap=nap)


@pytest.fixture
def counted(durable_postgres_server: PostgresServer, valkey_server: ValkeyServer) -> Iterator[Counted]:
    """The app on servers of its own database; its connections are open and its statements known."""
    valkey_server.flush()
    database = durable_postgres_server.create_database()
    migrations.upgrade(durable_postgres_server.url(database))
    app = Celery("counted", broker=valkey_server.broker_url, set_as_current=False)
    app.conf.update(
        task_default_queue="counted",
        pikkuflow_database_url=durable_postgres_server.url(database),
        pikkuflow_lease_url=valkey_server.url(0),
    )
    pikku = PikkuFlow(app)
    meter = Meter(durable_postgres_server, database, valkey_server, pikku)
    with durable_postgres_server.without_log_writers("walwriter"):
        # It would bring a commit to the disk now and then that someone waits for, and nobody would be counted as having waited.
        yield _counted(app, pikku, meter)
    meter.store.close()
    meter.redis.close()
    app.close()
    durable_postgres_server.drop_database(database)
