"""Alembic's environment: migrations run on the connection that ``pikkuflow.adapters.sql.migrations`` hands over."""

from __future__ import annotations

from alembic import context

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    version_table="pikkuflow_alembic_version",
    # SQLite can do DDL in a transaction once BEGIN is ours; MySQL cannot.
    transactional_ddl=connection.dialect.name != "mysql",
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
