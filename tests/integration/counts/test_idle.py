"""What a worker asks of its servers while there is nothing to do (issue C, Build 5)."""

from __future__ import annotations

import re
import time
from typing import Any

import psycopg
import pytest
from redis import Redis

from pikkuflow.adapters.sql import migrations
from tests.servers.postgres import PostgresServer
from tests.servers.processes import CeleryProcesses
from tests.servers.valkey import ValkeyServer

pytestmark = [pytest.mark.postgres, pytest.mark.redis, pytest.mark.celery, pytest.mark.slow]

_SETTLE_SECONDS, _WATCHED_SECONDS = 10, 20
_INSIDE_SCRIPTS = frozenset({"get", "set", "del", "incr", "pexpire", "time", "zadd", "zrem", "zscore", "zrangebyscore"})
_EXECUTED = re.compile(rb"LOG:  (?:execute [^:]*|statement): *")


def test_an_idle_worker_asks_little(
    durable_postgres_server: PostgresServer, own_valkey: ValkeyServer, celery_processes: CeleryProcesses
) -> None:
    """Issue C, Build 5: at most 10 Redis commands and 0.2 database statements a second, Celery's own commands included."""
    database = durable_postgres_server.create_database()
    migrations.upgrade(durable_postgres_server.url(database))
    with psycopg.connect(durable_postgres_server.dsn(database), autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE \"{database}\" SET log_statement = 'all'")
    environment = {
        "CELERY_BROKER_URL": own_valkey.broker_url,
        "PIKKUFLOW_DATABASE_URL": durable_postgres_server.url(database),
    }
    celery_processes.worker("tests.integration.counts.idle_app", env=environment)
    time.sleep(_SETTLE_SECONDS)
    with psycopg.connect(durable_postgres_server.dsn(database), autocommit=True) as admin:
        # As if beat swept from now on: a worker sweeps only when it finds that nobody did.
        admin.execute("UPDATE pikkuflow_sweep SET last_at = now() + interval '1 hour'")
    with Redis.from_url(own_valkey.url(0)) as redis:
        log = durable_postgres_server.program.log_path
        commands, begin = _commands(redis), log.stat().st_size
        time.sleep(_WATCHED_SECONDS)
        commands_a_second = (_commands(redis) - commands) / _WATCHED_SECONDS
    statements = len(_EXECUTED.findall(log.read_bytes()[begin:]))
    assert commands_a_second <= 10
    assert statements / _WATCHED_SECONDS <= 0.2


def _commands(redis: Redis) -> int:
    """What clients sent; what scripts call inside the server is no command of theirs."""
    statistics: Any = redis.info("commandstats")
    calls = {name.removeprefix("cmdstat_"): int(entry["calls"]) for name, entry in statistics.items()}
    return sum(count for name, count in calls.items() if name not in _INSIDE_SCRIPTS)
