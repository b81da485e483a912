"""The bench of a SQL store: one database for the session, emptied for each test, whose times can be shifted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import Column, Engine, Table, create_engine, event, text
from sqlalchemy.engine import make_url

from pikkuflow.adapters.sql import SqlRunStore
from pikkuflow.adapters.sql.columns import Utc, text_of_time, time_of_text
from pikkuflow.adapters.sql.tables import metadata
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import RunStatus

__all__ = ["SqlBench"]

_SHIFTED = {
    "postgresql": "{column} - make_interval(secs => :seconds)",
    "mysql": "DATE_SUB({column}, INTERVAL ROUND(:seconds * 1000000) MICROSECOND)",
    "mariadb": "DATE_SUB({column}, INTERVAL ROUND(:seconds * 1000000) MICROSECOND)",
    "sqlite": "shifted({column}, :seconds)",
}


class SqlBench:
    """A SQL store on a database that is there and empty."""

    def __init__(self, url: str) -> None:
        # Another test of this process may have restarted the server meanwhile.
        self._engine = create_engine(make_url(url), pool_pre_ping=True)
        if self._engine.dialect.name == "sqlite":
            _teach_shifting(self._engine)
        metadata.create_all(self._engine)
        self.store = SqlRunStore(url, patience_seconds=10.0)

    def empty(self) -> None:
        """Remove every row."""
        with self._engine.begin() as connection:
            for table in metadata.sorted_tables:
                connection.execute(table.delete())

    def close(self) -> None:
        """Give back every connection."""
        self.store.close()
        self._engine.dispose()

    def advance(self, seconds: float) -> None:
        """Shift every stored time into the past."""
        with self._engine.begin() as connection:
            for table in metadata.sorted_tables:
                statement = self._shift(table)
                if statement:
                    connection.execute(text(statement), {"seconds": seconds})

    def set_status(self, run_id: RunId, status: RunStatus) -> None:
        """Write into the row."""
        run = metadata.tables["pikkuflow_run"]
        with self._engine.begin() as connection:
            connection.execute(run.update().where(run.c.id == run_id).values(status=status))

    def _shift(self, table: Table) -> str:
        quote = self._engine.dialect.identifier_preparer.quote
        times: list[Column[Any]] = [column for column in table.columns if isinstance(column.type, Utc)]
        shifted = _SHIFTED[self._engine.dialect.name]
        assignments = (f"{quote(column.name)} = {shifted.format(column=quote(column.name))}" for column in times)
        return f"UPDATE {quote(table.name)} SET {', '.join(assignments)}" if times else ""  # noqa: S608 - our own names


def _teach_shifting(engine: Engine) -> None:
    def shifted(moment: str | None, seconds: float) -> str | None:
        return None if moment is None else text_of_time(time_of_text(moment) - timedelta(seconds=seconds))

    @event.listens_for(engine, "connect")
    def teach(connection: Any, _record: Any) -> None:
        connection.create_function("shifted", 2, shifted)
        connection.execute("PRAGMA busy_timeout = 10000")
