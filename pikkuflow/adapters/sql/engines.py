"""SQLAlchemy engines as pikkuflow needs them: one for each kind of database, none of which surprises."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError

from pikkuflow.adapters.sql.columns import text_of_time
from pikkuflow.errors import SettingError

__all__ = ["IDLE_IN_TRANSACTION_SECONDS", "READ_ONLY", "Kind", "create", "kind_of", "normalised"]

READ_ONLY: Final = "pikkuflow_read_only"
"""The execution option of a transaction that only reads: SQLite then takes no write lock."""

IDLE_IN_TRANSACTION_SECONDS: Final = 10
"""How long a process may stand still between two statements of an act before the server rolls it back."""

_BUSY_MILLISECONDS: Final = 10_000
_CONNECT_SECONDS: Final = 5
_POOL_SECONDS: Final = 10


class Kind(StrEnum):
    """The databases that differ."""

    POSTGRESQL = "postgresql"
    SQLITE = "sqlite"
    MYSQL = "mysql"
    """MySQL and MariaDB."""


_DRIVERS: Final = {
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mysql+pymysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
    "mariadb+pymysql": "mysql+pymysql",
    "sqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
}


def normalised(url: str) -> URL:
    """The URL with the driver that pikkuflow uses.

    Raises:
        SettingError: It is no URL of a supported database, or an SQLite database in memory (each connection would see its own).
    """
    hint = "Use postgresql://user@host/name, mysql://user@host/name or sqlite:///path/to/file.db."
    try:
        parsed = make_url(url)
    except ArgumentError:
        # The text is not quoted: it may hold a password.
        raise SettingError("pikkuflow_database_url is no database URL.", hint=hint) from None
    driver = _DRIVERS.get(parsed.drivername)
    if driver is None:
        raise SettingError(
            f"pikkuflow_database_url names the driver {parsed.drivername!r}, which is not supported.", hint=hint
        )
    if driver == "sqlite" and parsed.database in {None, "", ":memory:"}:
        raise SettingError("An SQLite database in memory is not durable.", hint=hint)
    return parsed.set(drivername=driver)


def kind_of(url: URL) -> Kind:
    """Which of the databases a normalised URL names."""
    return Kind(url.get_backend_name())


def create(url: URL, *, pool_size: int) -> Engine:
    """A new engine with at most twice ``pool_size`` connections, made when they are needed."""
    kind = kind_of(url)
    options: dict[str, Any] = {
        "pool_size": pool_size,
        "max_overflow": pool_size,
        "pool_timeout": _POOL_SECONDS,
        "pool_use_lifo": True,
        # Parameters are users' payloads.
        "hide_parameters": True,
    }
    if kind is Kind.POSTGRESQL:
        return _postgresql(url, options)
    if kind is Kind.MYSQL:
        return _mysql(url, options)
    return _sqlite(url, options)


def _postgresql(url: URL, options: dict[str, Any]) -> Engine:
    # A host that vanished without a word is noticed within half a minute; psycopg ignores what a Unix socket does not have.
    connect = {
        "connect_timeout": _CONNECT_SECONDS,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
    }
    if "application_name" not in url.query:
        connect |= {"application_name": "pikkuflow"}  # type: ignore[dict-item]
    engine = create_engine(url, isolation_level="AUTOCOMMIT", connect_args=connect, **options)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        # The guards rest on READ COMMITTED: a statement that waited for a row sees the row as it then is.
        connection.autocommit = True
        # A process that is frozen in the middle of an act must not keep others waiting for its locks: the act is tried again later.
        connection.execute(
            "SET default_transaction_isolation = 'read committed'; SET timezone = 'UTC'; "
            f"SET idle_in_transaction_session_timeout = '{IDLE_IN_TRANSACTION_SECONDS}s'"
        )

    return engine


def _mysql(url: URL, options: dict[str, Any]) -> Engine:
    timeouts = {"connect_timeout": _CONNECT_SECONDS, "read_timeout": 30, "write_timeout": 30, "charset": "utf8mb4"}
    # MariaDB reads what is meant for it; MySQL has no such timeout.
    idle = f"/*M! , idle_transaction_timeout = {IDLE_IN_TRANSACTION_SECONDS} */"
    init = (
        "SET time_zone = '+00:00', innodb_lock_wait_timeout = 10, sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')"
        f"{idle}"
    )
    return create_engine(
        url, isolation_level="READ COMMITTED", connect_args=timeouts | {"init_command": init}, **options
    )


def _sqlite(url: URL, options: dict[str, Any]) -> Engine:
    Path(str(url.database)).expanduser().parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": _BUSY_MILLISECONDS / 1000}, **options)

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _record: Any) -> None:
        # The driver's own BEGIN comes too late for a transaction that reads before it writes.
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_MILLISECONDS}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.create_function("pikkuflow_now", 0, lambda: text_of_time(datetime.now(UTC)))

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        reads = connection.get_execution_options().get(READ_ONLY, False)
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    return engine
