"""Connections of a process with many threads: none is made and thrown away again for an act."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from sqlalchemy import event

from pikkuflow.adapters.sql import SqlRunStore, migrations
from pikkuflow.adapters.sql.statements import Statements
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.run import RunFilter
from tests.contract.scene import new_run, race

KEPT = 3


@pytest.fixture
def store(postgres_url: str) -> Iterator[SqlRunStore]:
    """A store with a run in it."""
    migrations.upgrade(postgres_url)
    made = SqlRunStore(postgres_url, pool_size=KEPT, patience_seconds=20.0)
    made.insert_runs([new_run()])
    yield made
    made.close()


def test_threads_beyond_those_kept_for_make_no_connection_for_each_act(store: SqlRunStore) -> None:
    """Twice as many threads as connections are kept for, in autocommit statements and in transactions alike."""
    made: list[float] = []
    event.listen(store.database.engine, "connect", lambda *_: made.append(time.monotonic()))

    def ask() -> None:
        for _ in range(100):
            assert store.get_run(RunId("r1")) is not None
            assert len(store.list_runs(RunFilter(), limit=1)) == 1

    race(*[ask] * (2 * KEPT))

    assert len(made) < 2 * KEPT


def test_a_connection_that_was_lent_elsewhere_knows_its_statements_and_plans_as_others_do(store: SqlRunStore) -> None:
    """Generic plans are for acts that go by keys; sweeps are planned for what they ask."""
    database = store.database
    borrowed = [database._borrowed(database.engine, database._kept[0]) for _ in range(2)]
    for loan in borrowed:
        assert isinstance(loan.statements, Statements)
        assert loan.statements.first("SELECT 1 AS one", {}) == {"one": 1}
        loan.give_back()

    with database.engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW plan_cache_mode").scalar_one() == "auto"
    again = database._borrowed(database.engine, database._kept[0])
    assert again.statements in [loan.statements for loan in borrowed]
    assert again.statements.first("SELECT 1 AS one", {}) == {"one": 1}
    shown = again.statements.first("SELECT current_setting('plan_cache_mode') AS mode", {})
    assert shown == {"mode": "force_generic_plan"}
    again.drop()
