"""The truth in SQL: run store, leases and hints on PostgreSQL, MySQL, MariaDB and SQLite."""

from pikkuflow.adapters.sql.hints import DueColumnHints
from pikkuflow.adapters.sql.leases import SqlLeases
from pikkuflow.adapters.sql.run_store import SqlRunStore

__all__ = ["DueColumnHints", "SqlLeases", "SqlRunStore"]
