"""Fault tests: real workers, beats, Valkey and PostgreSQL, and something that goes wrong with them.

Those that take long are marked ``faults`` and ``slow``: ``make faults`` runs all of them, ``make test`` the short ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import on_valkey
from tests.acceptance.deployment import Deployment
from tests.faults.site import Site, own_site
from tests.servers.postgres import PostgresServer
from tests.servers.valkey import ValkeyServer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is marked ``faults`` takes long and starts Celery processes."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("faults"):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.celery)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Show what the processes said when a test failed."""
    report: Any = yield
    if report.failed and call.when in {"setup", "call"}:
        for value in getattr(item, "funcargs", {}).values():
            deployment = value.deployment if isinstance(value, Site) else value
            for program in deployment.processes.programs if isinstance(deployment, Deployment) else ():
                report.sections.append((f"log of {program.name}", program.log_tail(60)))
    return report  # type: ignore[no-any-return]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Servers and a deployment for this test alone."""
    with own_site(tmp_path) as made:
        yield made


@pytest.fixture
def deployment(tmp_path: Path, valkey_server: ValkeyServer, postgres_server: PostgresServer) -> Iterator[Deployment]:
    """A deployment of one test on servers that others use as well."""
    yield from on_valkey(tmp_path, valkey_server, postgres_server)


@pytest.fixture(scope="module")
def shared_deployment(
    tmp_path_factory: pytest.TempPathFactory, valkey_server: ValkeyServer, postgres_server: PostgresServer
) -> Iterator[Deployment]:
    """A deployment that the tests of a module share."""
    yield from on_valkey(tmp_path_factory.mktemp("deployment"), valkey_server, postgres_server)
