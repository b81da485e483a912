"""A scene on each database, and a way to see what PostgreSQL was asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from pikkuflow.adapters.sql import SqlRunStore
from tests.contract.scene import Scene
from tests.contract.sql_stores import SqlBench
from tests.servers.postgres import PostgresServer

_EXECUTED = re.compile(r"LOG:  (?:execute [^:]*|statement): *")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What something cost on the server."""

    statements: int
    commits: int
    wal_syncs: int


class Meter:
    """Counts what one store with one connection asks of a PostgreSQL server with fsync on."""

    def __init__(self, server: PostgresServer, database: str) -> None:
        self._server = server
        self._dsn = server.dsn(database)
        with psycopg.connect(self._dsn, autocommit=True) as admin:
            admin.execute(f"ALTER DATABASE \"{database}\" SET log_statement = 'all'")
            # A vacuum's commits would be counted as ours.
            admin.execute("ALTER SYSTEM SET autovacuum = off")
            admin.execute("SELECT pg_reload_conf()")
        self._bench = SqlBench(server.url(database))
        self._bench.store.close()
        self._bench.store = SqlRunStore(server.url(database), pool_size=1)
        self.scene = Scene(self._bench)

    @property
    def store(self) -> SqlRunStore:
        """The store that is watched."""
        return self._bench.store

    def close(self) -> None:
        """Give back connections."""
        self._bench.close()

    def cost(self, work: Callable[[], Any]) -> Cost:
        """What the work cost."""
        before, begin = self._counters(), self._server.program.log_path.stat().st_size
        work()
        text = self._server.program.log_path.read_bytes()[begin:].decode()
        after = self._counters()
        asked = [entry for entry in _EXECUTED.split(text)[1:] if "pg_stat" not in entry]
        # The question that flushes the counters is a transaction of its own.
        return Cost(statements=len(asked), commits=after[0] - before[0] - 1, wal_syncs=after[1] - before[1])

    def _counters(self) -> tuple[int, int]:
        # Counters of transactions leave their process only together with those of a table.
        flush = "SELECT pg_stat_force_next_flush(), count(*) FROM pikkuflow_run"
        self.store.database.autocommit(lambda db: db.first(flush, {}))
        with psycopg.connect(
            self._dsn.replace("dbname=", "dbname=postgres application_name="), autocommit=True
        ) as other:
            commits = other.execute(
                "SELECT xact_commit FROM pg_stat_database WHERE datname = %s", [self.store.database.url.database]
            ).fetchone()
            syncs = other.execute(
                "SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal' AND backend_type = 'client backend'"
            ).fetchone()
        assert commits is not None
        assert syncs is not None
        return int(commits[0]), int(syncs[0] or 0)


@pytest.fixture
def meter(durable_postgres_server: PostgresServer) -> Iterator[Meter]:
    """A watched store on a fresh database, with fsync on."""
    name = durable_postgres_server.create_database()
    meter = Meter(durable_postgres_server, name)
    yield meter
    meter.close()
    durable_postgres_server.drop_database(name)


@pytest.fixture(params=["sqlite", "postgres", "mysql"])
def sql_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database, of each kind in turn."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def postgres_scene(postgres_url: str) -> Iterator[Scene]:
    """A scene on a fresh PostgreSQL database."""
    bench = SqlBench(postgres_url)
    yield Scene(bench)
    bench.close()
