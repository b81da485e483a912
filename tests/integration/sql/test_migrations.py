"""Migrations: what they make is what the code expects, and several processes may bring a database up at once."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from alembic.migration import MigrationContext
from sqlalchemy import Engine, inspect

from pikkuflow.adapters.sql import SqlRunStore, migrations
from pikkuflow.adapters.sql.database import Database
from pikkuflow.adapters.sql.tables import SCHEMA_REVISION, VERSION_TABLE, metadata
from pikkuflow.domain.ids import RunId
from pikkuflow.errors import SchemaOutdated
from tests.contract.scene import new_run

_UPGRADE = "import sys; from pikkuflow.adapters.sql import migrations; print(migrations.upgrade(sys.argv[1]))"


def _engine(url: str) -> Engine:
    return Database(url, pool_size=1).engine


def _words(options: Any) -> dict[str, str]:
    """Dialect options without objects that compare by identity."""
    return {name: str(value) for name, value in (options or {}).items()}


def _schema(engine: Engine) -> dict[str, Any]:
    """Everything that a catalogue says about our tables, comparable between two databases."""
    inspector = inspect(engine)
    return {
        table: {
            "columns": {
                column["name"]: (str(column["type"]), column["nullable"]) for column in inspector.get_columns(table)
            },
            "key": inspector.get_pk_constraint(table)["constrained_columns"],
            "indexes": {
                index["name"]: (index["column_names"], _words(index.get("dialect_options")))
                for index in inspector.get_indexes(table)
            },
        }
        for table in sorted(inspector.get_table_names())
        if table != VERSION_TABLE
    }


def test_the_code_names_the_newest_migration() -> None:
    """A worker compares with a constant; it must be the head of the migrations' folder."""
    assert migrations.newest() == SCHEMA_REVISION


def test_migrating_from_empty_gives_the_tables_of_the_code(sql_url: str) -> None:
    """Issue 2: the metadata and the migrations describe one schema."""
    engine = _engine(sql_url)
    metadata.create_all(engine)
    expected = _schema(engine)
    metadata.drop_all(engine)

    assert migrations.upgrade(sql_url) == SCHEMA_REVISION

    assert _schema(engine) == expected
    engine.dispose()


def test_autogenerate_has_nothing_to_add(postgres_url: str) -> None:
    """Alembic, which compares in its own way, agrees."""
    from alembic.autogenerate import compare_metadata  # noqa: PLC0415 - only here

    migrations.upgrade(postgres_url)
    engine = _engine(postgres_url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_four_processes_bring_one_database_up(sql_url: str) -> None:
    """Issue 2: one works, the others wait; all of them succeed."""
    command = [sys.executable, "-c", _UPGRADE, sql_url]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    answers = [process.communicate(timeout=120) for process in processes]
    assert [out.strip() for out, _ in answers] == [SCHEMA_REVISION] * 4, answers


def test_upgrading_twice_changes_nothing(sql_url: str) -> None:
    """``flow db upgrade`` may be in every deployment."""
    migrations.upgrade(sql_url)
    store = SqlRunStore(sql_url)
    store.insert_runs([new_run()])
    assert migrations.upgrade(sql_url) == SCHEMA_REVISION
    assert store.get_run(RunId("r1")) is not None
    store.close()


def test_an_older_schema_is_refused_with_the_command_to_run(sql_url: str) -> None:
    """Issue 2: a worker that meets an older schema refuses; so does any act."""
    store = SqlRunStore(sql_url, patience_seconds=5.0)
    assert migrations.current(sql_url) is None
    with pytest.raises(SchemaOutdated, match="celery -A proj flow db upgrade"):
        store.check_schema()
    with pytest.raises(SchemaOutdated, match="celery -A proj flow db upgrade"):
        store.get_run(RunId("r1"))
    with pytest.raises(SchemaOutdated, match="celery -A proj flow db upgrade"):
        store.insert_runs([new_run()])

    migrations.upgrade(sql_url)

    store.check_schema()
    assert migrations.current(sql_url) == SCHEMA_REVISION
    store.close()


def test_a_newer_schema_is_accepted(postgres_url: str) -> None:
    """Migrate first, deploy afterwards: the workers of yesterday go on meanwhile."""
    migrations.upgrade(postgres_url)
    engine = _engine(postgres_url)
    with engine.connect() as connection:
        connection.exec_driver_sql("UPDATE pikkuflow_alembic_version SET version_num = '9999'")
    engine.dispose()
    migrations.check(postgres_url)


def test_migrations_go_down_again(sql_url: str) -> None:
    """A revision that can be tried can be taken back."""
    migrations.upgrade(sql_url)
    migrations.downgrade(sql_url, "base")
    engine = _engine(sql_url)
    assert _schema(engine) == {}
    engine.dispose()
