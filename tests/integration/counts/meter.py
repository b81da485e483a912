"""Counts what pikkuflow asks of PostgreSQL and Valkey while its messages are worked here, one by one, as a pool's child works them.

The servers count: PostgreSQL by its statement log, its commits and its WAL syncs, Valkey by its command statistics.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from typing import Any

import psycopg
from redis import Redis
from sqlalchemy import text

from pikkuflow import PikkuFlow
from pikkuflow.adapters.celery.names import ORCHESTRATE_TASK
from pikkuflow.adapters.sql import SqlRunStore
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.engine.execute_step import execute_step
from pikkuflow.engine.orchestrate import orchestrate
from pikkuflow.engine.runtime import Runtime
from tests.servers.postgres import PostgresServer
from tests.servers.valkey import ValkeyServer

_EXECUTED = re.compile(r"LOG:  (?:execute [^:]*|statement): *")
_CLIENT_COMMANDS = frozenset({"evalsha", "eval", "publish", "subscribe", "unsubscribe", "ping", "multi", "exec"})
"""What leases and hints send; the rest is messages, and what scripts call inside the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What something cost. ``redis`` counts leases and hints, ``messages`` what was put on queues."""

    statements: float = 0
    commits: float = 0
    wal_syncs: float = 0
    messages: float = 0
    redis: float = 0

    def __sub__(self, other: Cost) -> Cost:
        """The difference, figure by figure."""
        return Cost(**{name: getattr(self, name) - getattr(other, name) for name in _FIGURES})

    def __truediv__(self, count: int) -> Cost:
        """The share of one of so many."""
        return Cost(**{name: getattr(self, name) / count for name in _FIGURES})

    def is_within(self, limit: Cost) -> bool:
        """No figure is larger."""
        return all(mine <= allowed for mine, allowed in zip(astuple(self), astuple(limit), strict=True))


_FIGURES = tuple(Cost.__dataclass_fields__)


class Meter:
    """Counts for one app on servers of its own database and an emptied Valkey."""

    def __init__(self, postgres: PostgresServer, database: str, valkey: ValkeyServer, pikku: PikkuFlow) -> None:
        self.postgres, self.database, self.pikku = postgres, database, pikku
        self.redis: Redis = Redis.from_url(valkey.url(0), decode_responses=True)
        with psycopg.connect(postgres.dsn(database), autocommit=True) as admin:
            admin.execute(f"ALTER DATABASE \"{database}\" SET log_statement = 'all'")
            # A vacuum's commits would be counted as ours.
            admin.execute("ALTER SYSTEM SET autovacuum = off")
            admin.execute("SELECT pg_reload_conf()")
        self._queue = str(pikku.app.conf.task_default_queue)
        self._popped = 0

    @property
    def runtime(self) -> Runtime:
        """The app's surroundings as a worker of its queue has them."""
        return replace(self.pikku.runtime, consumes=lambda _workflow: True)

    @property
    def store(self) -> SqlRunStore:
        """The store that is watched."""
        store = self.pikku.runtime.store
        assert isinstance(store, SqlRunStore)
        return store

    def work(self) -> None:
        """Work the messages of the queue until none is left."""
        while (message := self._next()) is not None:
            task, args = message
            if task == ORCHESTRATE_TASK:
                orchestrate(self.runtime, [RunId(run_id) for run_id in args[0]])
            else:
                named = [(StepName(name), attempt) for name, attempt in args[1]]
                execute_step(self.runtime, RunId(args[0]), named, args[2], may_continue=True)

    def started(self, act: Callable[[], Any]) -> Cost:
        """What an act costs its caller, and the messages that it leaves on the queue."""
        found = self.cost(act, works=False)
        waiting = int(self.redis.llen(self._queue))
        self.work()
        return replace(found, messages=waiting)

    def cost(self, act: Callable[[], Any], *, works: bool = True) -> Cost:
        """What an act and the messages that follow from it cost."""
        before, begin = self._counted(), self.postgres.program.log_path.stat().st_size
        act()
        if works:
            self.work()
        asked = _EXECUTED.split(self.postgres.program.log_path.read_bytes()[begin:].decode())[1:]
        counted = self._counted() - before
        # The questions that flush the counters are transactions of their own.
        return replace(counted, statements=len(asked), commits=counted.commits - 2)

    def _next(self) -> tuple[str, list[Any]] | None:
        found: Any = self.redis.rpop(self._queue)
        if found is None:
            return None
        self._popped += 1
        message = json.loads(found)
        return message["headers"]["task"], json.loads(base64.b64decode(message["body"]))[0]

    def _counted(self) -> Cost:
        # Counters of transactions leave their process only together with those of a table.
        flush = "SELECT pg_stat_force_next_flush(), count(*) AS runs FROM pikkuflow_run"
        self.store.database.autocommit(lambda db: db.first(flush, {}))
        # The connection that serves transactions is another one.
        self.store.database.read(lambda tx: tx.all(text(flush)))
        with psycopg.connect(self.postgres.dsn(), autocommit=True) as other:
            commits = _number(other, "SELECT xact_commit FROM pg_stat_database WHERE datname = %s", self.database)
            syncs = "SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal' AND backend_type = 'client backend'"
            wal_syncs = _number(other, syncs)
        commands: Any = self.redis.info("commandstats")
        calls = {name.removeprefix("cmdstat_"): entry["calls"] for name, entry in commands.items()}
        asked = sum(count for name, count in calls.items() if name in _CLIENT_COMMANDS)
        return Cost(commits=commits, wal_syncs=wal_syncs, messages=self._popped, redis=asked)


def _number(connection: psycopg.Connection, query: str, *parameters: str) -> int:
    row = connection.execute(query.encode(), parameters).fetchone()
    return 0 if row is None or row[0] is None else int(row[0])
