"""Bringing a database's schema up, and telling whether it is this code's (design 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, column, select, table, text

from pikkuflow.adapters.sql.database import UPGRADE_HINT, Database, Transaction
from pikkuflow.adapters.sql.engines import Kind
from pikkuflow.adapters.sql.tables import SCHEMA_REVISION, VERSION_TABLE
from pikkuflow.errors import SchemaOutdated

__all__ = ["check", "check_schema", "current", "downgrade", "find_migrations", "newest", "upgrade"]

_LOCK_NUMBER: Final = 0x70696B6B75
"""``pikku`` in ASCII: the advisory lock that migrations take."""

_LOCK_NAME: Final = "pikkuflow_migrations"
_LOCK_SECONDS: Final = 300


def find_migrations() -> Path:
    """The folder of the migrations: inside the installed package, or beside it in a checkout.

    Raises:
        SchemaOutdated: There is neither; the installation is broken.
    """
    package = Path(__file__).resolve().parents[2]
    for folder in (package / "migrations", package.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise SchemaOutdated("The migrations are missing from this installation of pikkuflow.", hint="Install it again.")


def newest() -> str:
    """The newest revision that the migrations' folder has."""
    return ScriptDirectory.from_config(_config()).get_current_head() or ""


def current(url: str) -> str | None:
    """The revision that the database is at; None when it has no tables of pikkuflow.

    Raises:
        StoreUnavailable: The database does not answer.
    """
    database = Database(url, pool_size=1, patience_seconds=5.0)
    try:
        return _revision(database)
    finally:
        database.close()


def upgrade(url: str, revision: str = "head") -> str | None:
    """Bring the database up and return the revision it is at then. Several processes may do so at once: one works, the others wait.

    Raises:
        StoreUnavailable: The database does not answer.
    """
    return _migrate(url, lambda config: command.upgrade(config, revision))


def downgrade(url: str, revision: str) -> str | None:
    """Take the database back to an older revision, or to ``base``, which drops every table, and return the revision it is at then.

    Raises:
        StoreUnavailable: The database does not answer.
    """
    return _migrate(url, lambda config: command.downgrade(config, revision))


def _migrate(url: str, work: Callable[[Config], None]) -> str | None:
    database = Database(url, pool_size=1, patience_seconds=30.0)
    try:
        # The first connection waits out a database that is just starting.
        database.read(Transaction.now)
        with database.engine.connect() as connection, _alone(connection, database.kind):
            work(_config(connection))
        return _revision(database)
    finally:
        database.close()


def check(url: str) -> None:
    """As ``check_schema`` for a URL.

    Raises:
        SchemaOutdated: The database must be migrated first.
        StoreUnavailable: The database does not answer.
    """
    database = Database(url, pool_size=1, patience_seconds=5.0)
    try:
        check_schema(database)
    finally:
        database.close()


def check_schema(database: Database) -> None:
    """Raise ``SchemaOutdated`` unless the database is at this code's revision or a newer one (migrate first, then deploy)."""
    found = _revision(database)
    if found is None or found < SCHEMA_REVISION:
        state = "has no tables of pikkuflow" if found is None else f"is at revision {found}"
        raise SchemaOutdated(
            f"The database {database.url.render_as_string()} {state}; this code needs revision {SCHEMA_REVISION}.",
            hint=UPGRADE_HINT,
        )


def _revision(database: Database) -> str | None:
    versions = table(VERSION_TABLE, column("version_num"))
    try:
        row = database.read(lambda tx: tx.first(select(versions)))
    except SchemaOutdated:
        return None
    return None if row is None else str(row["version_num"])


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    # A percent sign in a path would be read as an interpolation.
    config.set_main_option("script_location", str(find_migrations()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


@contextmanager
def _alone(connection: Connection, kind: Kind) -> Iterator[None]:
    """One migrating process at a time. SQLite needs no lock of its own: the transaction is begun IMMEDIATE."""
    if kind is Kind.POSTGRESQL:
        # The engine commits by itself; a migration is one transaction. The lock belongs to the session and outlives this commit.
        connection.execution_options(isolation_level="READ COMMITTED")
        connection.execute(text("SELECT pg_advisory_lock(:number)"), {"number": _LOCK_NUMBER})
        connection.commit()
        try:
            yield
        finally:
            connection.rollback()
            connection.execute(text("SELECT pg_advisory_unlock(:number)"), {"number": _LOCK_NUMBER})
            connection.commit()
    elif kind is Kind.MYSQL:
        connection.execute(text("SELECT GET_LOCK(:name, :seconds)"), {"name": _LOCK_NAME, "seconds": _LOCK_SECONDS})
        connection.commit()
        try:
            yield
        finally:
            connection.rollback()
            connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": _LOCK_NAME})
            connection.commit()
    else:
        yield
