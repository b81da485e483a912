"""One database for one process at a time: transactions, autocommit statements, and the patience with outages.

An engine is made lazily in each process and never used in another: a connection shared over a fork mixes two processes' answers. No
connection is held between acts.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, CursorResult, Executable, Select, Table, literal_column, select
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Engine
from sqlalchemy.pool import PoolProxiedConnection
from sqlalchemy.sql import ColumnElement

from pikkuflow.adapters.sql.columns import Utc
from pikkuflow.adapters.sql.engines import READ_ONLY, Kind, create, kind_of, normalised
from pikkuflow.adapters.sql.statements import Statements
from pikkuflow.adapters.sql.tables import run
from pikkuflow.adapters.sql.troubles import Trouble, scrubbed, trouble_of
from pikkuflow.errors import SchemaOutdated, StoreUnavailable

__all__ = ["UPGRADE_HINT", "Database", "Transaction"]

T = TypeVar("T")

UPGRADE_HINT: Final = "Run: celery -A proj flow db upgrade"

_FIRST_SECONDS: Final = 0.05
_LONGEST_SECONDS: Final = 5.0

_CLOCKS: Final[Mapping[Kind, ColumnElement[datetime]]] = {
    # Not now(): that stands still in a transaction that waited for a lock.
    Kind.POSTGRESQL: literal_column("clock_timestamp()", Utc()),
    Kind.MYSQL: literal_column("SYSDATE(6)", Utc()),
    Kind.SQLITE: literal_column("pikkuflow_now()", Utc()),
}

_STATEMENTS: Final = "pikkuflow_statements"
"""Where a pooled connection keeps what is prepared on it, for as long as it lives."""

_log: Final = logging.getLogger("pikkuflow.store")


class Transaction:
    """One transaction of an act."""

    __slots__ = ("_now", "connection", "kind")

    def __init__(self, connection: Connection, kind: Kind) -> None:
        self.connection = connection
        self.kind = kind
        self._now: datetime | None = None

    def now(self) -> datetime:
        """The database's clock, read once and after the first lock was waited for: acts lock before they ask."""
        if self._now is None:
            self._now = self.connection.execute(select(_CLOCKS[self.kind])).scalar_one()
        return self._now

    @property
    def clock(self) -> ColumnElement[datetime]:
        """The database's clock as a column, for what reads and asks for nothing else."""
        return _CLOCKS[self.kind]

    def do(self, statement: Executable) -> CursorResult[Any]:
        """Execute a statement that writes; its ``rowcount`` is the rows it matched."""
        return self.connection.execute(statement)

    def add(self, table: Table, row: Mapping[str, Any]) -> None:
        """Insert a row unless its key is there; another transaction that is inserting it is waited for."""
        if self.kind is Kind.POSTGRESQL:
            self.do(postgresql.insert(table).values(row).on_conflict_do_nothing())
        elif self.kind is Kind.SQLITE:
            self.do(sqlite.insert(table).values(row).on_conflict_do_nothing())
        else:
            # Not INSERT IGNORE, which would also cut a text that is too long.
            key = {column.name: column for column in table.primary_key}
            self.do(mysql.insert(table).values(row).on_duplicate_key_update(key))

    def all(self, statement: Executable) -> list[dict[str, Any]]:
        """Every row."""
        result = self.connection.execute(statement)
        names = tuple(result.keys())
        return [dict(zip(names, row, strict=True)) for row in result]

    def first(self, statement: Executable) -> dict[str, Any] | None:
        """The first row, or None."""
        return next(iter(self.all(statement)), None)

    def locked(self, statement: Select[Any]) -> list[dict[str, Any]]:
        """Every row, locked against other writers (on SQLite the whole database is locked already)."""
        return self.all(statement.with_for_update(key_share=True))

    def lock_run(self, run_id: str) -> dict[str, Any] | None:
        """The run's row, locked: what every guard of a pass rests on (design 3.3)."""
        rows = self.locked(select(run).where(run.c.id == run_id))
        return rows[0] if rows else None


@dataclass(frozen=True, slots=True)
class _Loan:
    """A connection out of the engine's pool that stays out between acts: lending it costs more than some statements do."""

    pooled: PoolProxiedConnection
    statements: Statements

    @classmethod
    def of(cls, engine: Engine) -> _Loan:
        """One more, with the statements that its connection knows from an earlier loan."""
        pooled = engine.raw_connection()
        try:
            statements = pooled.info.get(_STATEMENTS)
            if statements is None:
                statements = pooled.info[_STATEMENTS] = Statements(pooled.driver_connection)
            else:
                statements.begin()
        except BaseException as error:
            pooled.invalidate()
            pooled.close()
            if trouble_of(error) is Trouble.AWAY:
                # Whatever else is pooled was connected to the same server.
                engine.dispose()
            raise
        return cls(pooled, statements)

    def give_back(self) -> None:
        """Return it to the pool, where transactions find it too."""
        try:
            self.statements.end()
        except BaseException:
            self.drop()
            raise
        self.pooled.close()

    def drop(self) -> None:
        """Close it; the pool makes a new one when it is asked."""
        self.pooled.invalidate()
        self.pooled.close()


class Database:
    """Runs acts.

    Parameters
    ----------
    url:
        ``postgresql://``, ``mysql://`` or ``sqlite:///`` (see ``engines.normalised``).
    pool_size:
        Connections kept; twice as many at most.
    patience_seconds:
        How long an act waits for a database that is away; None: for ever, unless ``is_stopping`` says that the process is to end.
    """

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 5,
        patience_seconds: float | None = None,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self.url = normalised(url)
        self.kind = kind_of(self.url)
        self._pool_size = pool_size
        self._patience_seconds = patience_seconds
        self._is_stopping = is_stopping
        self._engines: dict[int, Engine] = {}
        self._inherited: list[Engine] = []
        # By process. What was inherited over a fork is never touched, and never collected either.
        self._kept: dict[int, deque[_Loan]] = defaultdict(deque)

    @property
    def engine(self) -> Engine:
        """This process's engine; one inherited over a fork is never touched."""
        pid = os.getpid()
        engine = self._engines.get(pid)
        if engine is None:
            # Kept, not dropped: collecting a connection would say goodbye to the server on the other process's behalf.
            self._inherited += [self._engines.pop(other) for other in list(self._engines) if other != pid]
            # Two threads may both come here; setdefault lets one engine win, and the other never connects.
            engine = self._engines.setdefault(pid, create(self.url, pool_size=self._pool_size))
        return engine

    def close(self) -> None:
        """Give back this process's connections; the next act makes new ones."""
        engine = self._engines.pop(os.getpid(), None)
        _drop_all(self._kept[os.getpid()])
        if engine is not None:
            engine.dispose()

    def write(self, act: Callable[[Transaction], T], *, patience_seconds: float | None = -1) -> T:
        """Run an act in one transaction. It may run several times, so it must be idempotent (design 3.4).

        Raises:
            StoreUnavailable: The database did not answer within the patience.
            SchemaOutdated: A table or column is missing.
        """
        return self._persist(lambda: self._once(act, read_only=False), patience_seconds)

    def read(self, act: Callable[[Transaction], T], *, patience_seconds: float | None = -1) -> T:
        """As ``write``, for an act that writes nothing."""
        return self._persist(lambda: self._once(act, read_only=True), patience_seconds)

    def autocommit(self, act: Callable[[Statements], T]) -> T:
        """As ``write``, without BEGIN and COMMIT; PostgreSQL only."""
        return self._persist(lambda: self._raw(act), -1)

    def _once(self, act: Callable[[Transaction], T], *, read_only: bool) -> T:
        with self.engine.connect() as connection:
            if self.kind is Kind.POSTGRESQL:
                # One statement that reads needs no transaction.
                level = "AUTOCOMMIT" if read_only else "READ COMMITTED"
                connection = connection.execution_options(isolation_level=level)  # noqa: PLW2901 - the same one
            connection = connection.execution_options(**{READ_ONLY: read_only})  # noqa: PLW2901
            with connection.begin():
                return act(Transaction(connection, self.kind))

    def _raw(self, act: Callable[[Statements], T]) -> T:
        engine = self.engine
        kept = self._kept[os.getpid()]
        loan = self._borrowed(engine, kept)
        try:
            answer = act(loan.statements)
        except BaseException as error:
            if trouble_of(error) is Trouble.AWAY:
                # Whatever else is pooled was connected to the same server.
                loan.drop()
                _drop_all(kept)
                engine.dispose()
            elif not loan.statements.is_idle or type(error).__module__.partition(".")[0] != "psycopg":
                # Interrupted, perhaps between a question and its answer.
                loan.drop()
            else:
                self._keep(kept, loan)
            raise
        self._keep(kept, loan)
        return answer

    def _keep(self, kept: deque[_Loan], loan: _Loan) -> None:
        # The other half of the pool serves transactions, and threads beyond those that it was made for: a worker's is made for every step
        # that it works at a time, but a caller may have any number of threads.
        if len(kept) < self._pool_size:
            kept.append(loan)
            return
        try:
            loan.give_back()
        except Exception as error:
            # The act is done; a server that went away since is the next one's to find.
            if trouble_of(error) is None:
                raise

    @staticmethod
    def _borrowed(engine: Engine, kept: deque[_Loan]) -> _Loan:
        try:
            return kept.pop()
        except IndexError:
            return _Loan.of(engine)

    def _persist(self, attempt: Callable[[], T], patience_seconds: float | None) -> T:
        patience = self._patience_seconds if patience_seconds == -1 else patience_seconds
        started = time.monotonic()
        failures = 0
        while True:
            try:
                return attempt()
            except Exception as error:
                trouble = trouble_of(error)
                if trouble is None:
                    raise
                if trouble is Trouble.SCHEMA:
                    raise SchemaOutdated(
                        f"The database lacks tables or columns: {self._story(error)}", hint=UPGRADE_HINT
                    ) from None
                failures += 1
                self._bear(
                    error, trouble, failures, left=None if patience is None else started + patience - time.monotonic()
                )

    def _bear(self, error: Exception, trouble: Trouble, failures: int, *, left: float | None) -> None:
        """Wait before the next attempt, or give up."""
        delay = self._delay(trouble, failures)
        is_over = self._is_stopping() or (left is not None and left <= delay)
        if is_over and failures > 1:
            # The driver's exception is left out: its text and statement may hold a password or a payload.
            raise StoreUnavailable(
                f"The database {self.url.render_as_string()} does not answer: {self._story(error)}",
                hint="Nothing is known to be lost; what was asked for can be asked for again.",
            ) from None
        if failures == 2 and trouble is Trouble.AWAY:  # noqa: PLR2004 - the first is often a pooled connection that went stale
            _log.warning(
                "The database %s does not answer, waiting for it: %s", self.url.render_as_string(), self._story(error)
            )
        time.sleep(delay)

    @staticmethod
    def _delay(trouble: Trouble, failures: int) -> float:
        if failures == 1 and trouble is Trouble.AWAY:
            return 0.0
        longest = _LONGEST_SECONDS if trouble is Trouble.AWAY else _FIRST_SECONDS * 4
        return min(_FIRST_SECONDS * 2.0 ** min(failures - 1, 10), longest) * random.uniform(0.5, 1.5)  # noqa: S311 - jitter

    def _story(self, error: Exception) -> str:
        cause = getattr(error, "orig", None) or error
        text = " ".join(str(cause).split())
        return scrubbed(f"{type(cause).__name__}: {text}", self.url)


def _drop_all(kept: deque[_Loan]) -> None:
    while True:
        try:
            kept.pop().drop()
        except IndexError:
            return
