"""Deployments for acceptance tests: one a module where runs do not disturb each other, one a test where processes are killed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from pikkuflow.adapters.sql import migrations
from tests.acceptance.deployment import Deployment, deployed
from tests.servers.postgres import PostgresServer
from tests.servers.valkey import ValkeyServer

_numbers = cycle(range(2, 16))
"""Databases of Valkey: 0 and 1 are other tests'."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder is an acceptance test, and starts real processes unless it says otherwise."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.acceptance)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Show what the deployment's processes said when a test failed."""
    report: Any = yield
    if report.failed and call.when in {"setup", "call"}:
        for value in getattr(item, "funcargs", {}).values():
            for program in value.processes.programs if isinstance(value, Deployment) else ():
                report.sections.append((f"log of {program.name}", program.log_tail(60)))
    return report  # type: ignore[no-any-return]


def empty_broker(valkey: ValkeyServer) -> str:
    """The broker URL of an emptied database that no other deployment of this moment uses."""
    number = next(_numbers)
    with Redis.from_url(valkey.url(number)) as client:
        client.flushdb()
    return valkey.broker_url.replace("virtual_host=0", f"virtual_host={number}")


def _migrate(url: str) -> None:
    migrations.upgrade(url)


def on_valkey(
    folder: Path, valkey: ValkeyServer, postgres: PostgresServer, settings: Mapping[str, str] | None = None
) -> Iterator[Deployment]:
    """A deployment on an emptied Valkey database and a fresh PostgreSQL database; everything it started is gone at the end."""
    name = postgres.create_database(template=postgres.template("migrated", _migrate))
    deployment = deployed(folder, broker_url=empty_broker(valkey), database_url=postgres.url(name), settings=settings)
    try:
        yield deployment
    finally:
        deployment.close()
        postgres.drop_database(name)


@pytest.fixture(scope="module")
def shared_deployment(
    tmp_path_factory: pytest.TempPathFactory, valkey_server: ValkeyServer, postgres_server: PostgresServer
) -> Iterator[Deployment]:
    """A deployment that the tests of a module share: Valkey and PostgreSQL."""
    yield from on_valkey(tmp_path_factory.mktemp("deployment"), valkey_server, postgres_server)


@pytest.fixture
def deployment(tmp_path: Path, valkey_server: ValkeyServer, postgres_server: PostgresServer) -> Iterator[Deployment]:
    """A deployment of one test: Valkey and PostgreSQL."""
    yield from on_valkey(tmp_path, valkey_server, postgres_server)
