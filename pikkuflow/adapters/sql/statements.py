"""Autocommit statements on PostgreSQL's own protocol: prepared once a connection, each one round trip and, if it writes, one commit.

psycopg's cursors cost several times what libpq does for statements as small as these, and a step in place is one of them. So they are
prepared and executed on the connection's ``pgconn``, while psycopg connects, reads rows, and names what goes wrong.
"""

from __future__ import annotations

import hashlib
import re
import select
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

__all__ = ["Statements"]

Row = Mapping[str, Any]

_PARAMETER: Final = re.compile(r"%\((\w+)\)s")
_IN_ARRAY: Final = str.maketrans({"\\": "\\\\", '"': '\\"'})

_ROWS, _DONE, _SYNCED = 2, 1, 10
"""``PGRES_TUPLES_OK``, ``PGRES_COMMAND_OK``, ``PGRES_PIPELINE_SYNC``."""
_BROKEN: Final = 1
"""``CONNECTION_BAD``."""


@cache
def _numbered(statement: str) -> tuple[bytes, tuple[str, ...]]:
    """The statement with ``$1`` for ``%(name)s``, and the parameters' names in the order of their numbers."""
    names: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return f"${names.setdefault(match[1], len(names) + 1)}"

    return _PARAMETER.sub(number, statement).replace("%%", "%").encode(), tuple(names)


@cache
def _name_of(statement: str) -> bytes:
    """By what it says: behind a pooler that lends a session from act to act, another process' statement must not be met under this name."""
    return b"pikkuflow_" + hashlib.sha256(statement.encode()).hexdigest()[:32].encode()


class Statements:
    """What one connection of the driver executes; for one thread at a time."""

    __slots__ = ("_columns", "_connection", "_names", "_psycopg", "_reader")

    def __init__(self, driver: Any) -> None:
        import psycopg  # noqa: PLC0415 - the driver is an extra

        self._psycopg = psycopg
        self._connection = driver.pgconn
        self._reader: Any = psycopg.adapt.Transformer(driver)
        self._names: dict[str, bytes] = {}
        self._columns: dict[str, tuple[str, ...]] = {}
        self.begin()

    def begin(self) -> None:
        """The connection is for these statements from now on. What was prepared on it stays prepared."""
        # All go by keys: planning each anew for its first parameters, as PostgreSQL does five times, costs more than executing it.
        self._checked(self._connection.exec_(b"SET plan_cache_mode = force_generic_plan"))

    def end(self) -> None:
        """The connection is for other statements from now on, which are planned for what they ask."""
        self._checked(self._connection.exec_(b"RESET plan_cache_mode"))

    @property
    def is_idle(self) -> bool:
        """The connection stands between statements."""
        return int(self._connection.transaction_status) == 0 and int(self._connection.pipeline_status) == 0

    def first(self, statement: str, parameters: Mapping[str, Any]) -> Row | None:
        """The first row of one statement, or None."""
        rows = self.all(statement, parameters)
        return rows[0] if rows else None

    def all(self, statement: str, parameters: Mapping[str, Any]) -> list[Row]:
        """Every row of one statement."""
        name = self._names.get(statement)
        if name is None:
            return self.together((statement,), parameters)[0]
        return self._rows(statement, self._connection.exec_prepared(name, _values(statement, parameters)))

    def pair(self, first: str, second: str, parameters: Mapping[str, Any]) -> tuple[Row | None, list[Row]]:
        """Two statements in one round trip, the second with a snapshot of its own, taken after the first has its locks."""
        one, other = self.together((first, second), parameters)
        return (one[0] if one else None), other

    def together(self, statements: Sequence[str], parameters: Mapping[str, Any]) -> list[list[Row]]:
        """Execute statements in one round trip and one transaction; those that the server does not know yet are prepared on the way."""
        connection = self._connection
        values = [_values(statement, parameters) for statement in statements]
        fresh = {statement: _name_of(statement) for statement in statements if statement not in self._names}
        names = self._names | fresh
        connection.enter_pipeline_mode()
        for statement, given in zip(statements, values, strict=True):
            if statement in fresh:
                connection.send_prepare(names[statement], _numbered(statement)[0])
            connection.send_query_prepared(names[statement], given)
        connection.pipeline_sync()
        results = iter(self._pipelined())
        connection.exit_pipeline_mode()
        answers = []
        for statement in statements:
            if statement in fresh:
                self._checked(next(results))
                # It stays prepared also when executing it fails.
                self._names[statement] = fresh[statement]
            answers.append(self._rows(statement, next(results)))
        return answers

    def _pipelined(self) -> list[Any]:
        """The results up to the end of the pipeline, waiting without the interpreter's lock."""
        connection = self._connection
        socket = select.poll()
        results: list[Any] = []
        is_flushed = False
        while True:
            is_flushed = is_flushed or connection.flush() == 0
            while connection.is_busy():
                socket.register(connection.socket, select.POLLIN | (0 if is_flushed else select.POLLOUT))
                socket.poll()
                connection.consume_input()
                is_flushed = is_flushed or connection.flush() == 0
            result = connection.get_result()
            if result is None:
                continue
            if int(result.status) == _SYNCED:
                return results
            results.append(result)

    def _rows(self, statement: str, result: Any) -> list[Row]:
        count = self._checked(result).ntuples
        if not count:
            return []
        columns = self._columns.get(statement)
        if columns is None:
            columns = tuple(result.fname(at).decode() for at in range(result.nfields))
            self._columns[statement] = columns
        self._reader.set_pgresult(result)
        return list(self._reader.load_rows(0, count, _maker(columns)))

    def _checked(self, result: Any) -> Any:
        if int(result.status) in {_ROWS, _DONE}:
            return result
        error = self._psycopg.errors.error_from_result(result, "utf-8")
        if error.sqlstate is None and int(self._connection.status) == _BROKEN:
            raise self._psycopg.OperationalError(str(error))
        raise error


@cache
def _maker(columns: tuple[str, ...]) -> Callable[[Sequence[Any]], Row]:
    def make(values: Sequence[Any]) -> Row:
        return dict(zip(columns, values, strict=True))

    return make


def _values(statement: str, parameters: Mapping[str, Any]) -> list[bytes | None]:
    return [_text(parameters[name]) for name in _numbered(statement)[1]]


def _text(value: Any) -> bytes | None:
    """A parameter as PostgreSQL reads it; the server infers its type from where it stands."""
    if value is None:
        return None
    if isinstance(value, str):
        if "\0" in value:
            # libpq would cut it there.
            raise ValueError("PostgreSQL stores no NUL character.")
        return str.encode(value)
    if isinstance(value, list):
        return b"{" + b",".join(map(_member, value)) + b"}"
    return repr(value).encode()


def _member(value: Any) -> bytes:
    text = _text(value) or b""
    return f'"{text.decode().translate(_IN_ARRAY)}"'.encode() if isinstance(value, str) else text
