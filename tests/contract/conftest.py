"""Fixtures of the contract suites: one suite, every adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pikkuflow.ports import Leases
from tests.contract.lease_benches import LEASE_SERVICES, LeaseBench, lease_bench_of
from tests.contract.scene import Scene
from tests.contract.sql_stores import SqlBench
from tests.contract.stores import STORES, MemoryBench, StoreBench
from tests.servers.mariadb import MariaServer
from tests.servers.postgres import PostgresServer


@pytest.fixture(scope="session")
def sqlite_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlBench]:
    """A SQLite store, for the session."""
    folder: Path = tmp_path_factory.mktemp("store")
    yield from _bench(f"sqlite:///{folder / 'pikkuflow.db'}")


@pytest.fixture(scope="session")
def postgres_bench(postgres_server: PostgresServer) -> Iterator[SqlBench]:
    """A PostgreSQL store, for the session."""
    yield from _bench(postgres_server.url(postgres_server.create_database()))


@pytest.fixture(scope="session")
def mysql_bench(mariadb_server: MariaServer) -> Iterator[SqlBench]:
    """A MariaDB store, for the session."""
    yield from _bench(mariadb_server.url(mariadb_server.create_database()))


def _bench(url: str) -> Iterator[SqlBench]:
    bench = SqlBench(url)
    yield bench
    bench.close()


@pytest.fixture
def memory_bench() -> MemoryBench:
    """A memory store, for this test."""
    return MemoryBench()


@pytest.fixture(params=STORES)
def store_bench(request: pytest.FixtureRequest) -> StoreBench:
    """Each store in turn, empty."""
    bench: StoreBench = request.getfixturevalue(f"{request.param}_bench")
    empty: Callable[[], None] = getattr(bench, "empty", lambda: None)
    empty()
    return bench


@pytest.fixture
def scene(store_bench: StoreBench) -> Scene:
    """Short words over the store."""
    return Scene(store_bench)


@pytest.fixture(params=LEASE_SERVICES)
def lease_bench(request: pytest.FixtureRequest) -> Iterator[LeaseBench]:
    """Each lease service in turn, empty."""
    made = lease_bench_of(request.param, request)
    yield made
    made.close()


@pytest.fixture
def leases(lease_bench: LeaseBench) -> Leases:
    """A client of the service."""
    return lease_bench.leases
