"""What a failed statement means: the database is away, two transactions met, the schema is missing, or a fault of ours.

Only the first two are tried again. The lists are by code, because the drivers' classes mix outages with mistakes (PyMySQL reports an
unknown column as OperationalError).
"""

from __future__ import annotations

import re
import sqlite3
from enum import Enum, auto
from typing import Any, Final

from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

__all__ = ["Trouble", "scrubbed", "trouble_of"]


class Trouble(Enum):
    """What can be done about a failed act."""

    AWAY = auto()
    """The database does not answer, or not now: wait and try again."""
    CONFLICT = auto()
    """Deadlock, lock timeout, serialisation: nothing was written, try again at once."""
    SCHEMA = auto()
    """A table or column is missing: migrate."""


# Connection exceptions, resources, operator intervention, system errors, a primary that became a replica, a transaction that stood still.
_POSTGRES_AWAY: Final = ("08", "53", "57", "58", "25006", "25P03")
_POSTGRES_CONFLICT: Final = ("40", "55P03")
_POSTGRES_SCHEMA: Final = ("42P01", "42703")

_MYSQL_AWAY: Final = frozenset(
    {0, 1021, 1040, 1047, 1053, 1081, 1129, 1152, 1203, 1290, 1836, 1927, 2002, 2003, 2006, 2013, 2014, 2055}
)
_MYSQL_CONFLICT: Final = frozenset({1205, 1213, 3572})
_MYSQL_SCHEMA: Final = frozenset({1054, 1146})

_SQLITE_AWAY: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    }
)
_SQLITE_MISSING: Final = re.compile(r"no such (table|column)|has no column named")


def trouble_of(error: BaseException) -> Trouble | None:
    """What a statement's exception means; None: it is no trouble of the database's."""
    if isinstance(error, PoolTimeout):
        return Trouble.AWAY
    if isinstance(error, DBAPIError):
        if error.connection_invalidated:
            return Trouble.AWAY
        return trouble_of(error.orig) if error.orig is not None else None
    if isinstance(error, sqlite3.Error):
        return _of_sqlite(error)
    family = type(error).__module__.partition(".")[0]
    if family == "psycopg":
        return _of_postgres(error)
    return _of_mysql(error) if family == "pymysql" else None


def _of_sqlite(error: sqlite3.Error) -> Trouble | None:
    if _SQLITE_MISSING.search(str(error)):
        return Trouble.SCHEMA
    # The low byte is the primary code; the rest says more about it.
    code = getattr(error, "sqlite_errorcode", None)
    return Trouble.AWAY if code is not None and code & 0xFF in _SQLITE_AWAY else None


def _of_postgres(error: Any) -> Trouble | None:
    state = getattr(error, "sqlstate", None)
    if state is None:
        # Without a state the server did not speak: refused, reset, name not found.
        names = {kind.__name__ for kind in type(error).__mro__}
        return Trouble.AWAY if names & {"OperationalError", "InterfaceError"} else None
    for trouble, prefixes in (
        (Trouble.CONFLICT, _POSTGRES_CONFLICT),
        (Trouble.SCHEMA, _POSTGRES_SCHEMA),
        (Trouble.AWAY, _POSTGRES_AWAY),
    ):
        if state.startswith(prefixes):
            return trouble
    return None


def _of_mysql(error: Any) -> Trouble | None:
    code = error.args[0] if error.args and isinstance(error.args[0], int) else None
    if code in _MYSQL_CONFLICT:
        return Trouble.CONFLICT
    if code in _MYSQL_SCHEMA:
        return Trouble.SCHEMA
    return Trouble.AWAY if code in _MYSQL_AWAY else None


def scrubbed(text: str, url: URL) -> str:
    """The text without the URL's password, also where a driver quotes it."""
    secret = None if url.password is None else str(url.password)
    return text.replace(secret, "***") if secret else text
