"""Prepared statements on PostgreSQL's own protocol: what a kept connection remembers of them."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from pikkuflow.adapters.sql.statements import Statements

_DIVIDE = "SELECT 6 / %(by)s::int AS value"
_DOUBLE = "SELECT 2 * %(by)s::int AS value"


@pytest.fixture
def connections(postgres_url: str) -> Iterator[list[psycopg.Connection]]:
    """Two sessions."""
    url = postgres_url.replace("postgresql+psycopg://", "postgresql://")
    made = [psycopg.connect(url, autocommit=True) for _ in range(2)]
    yield made
    for connection in made:
        connection.close()


def test_a_statement_whose_first_execution_fails_can_be_executed_again(connections: list[psycopg.Connection]) -> None:
    """A deadlock or a lock timeout is tried again on the same connection, where the statement is prepared by now."""
    statements = Statements(connections[0])

    with pytest.raises(psycopg.errors.DivisionByZero):
        statements.first(_DIVIDE, {"by": 0})
    assert statements.is_idle

    assert statements.first(_DIVIDE, {"by": 2}) == {"value": 3}
    assert statements.pair(_DIVIDE, _DOUBLE, {"by": 3}) == ({"value": 2}, [{"value": 6}])


def test_the_second_of_a_pair_that_failed_is_prepared_later(connections: list[psycopg.Connection]) -> None:
    """The server skips what follows a failure, so nothing is remembered of it."""
    statements = Statements(connections[0])

    with pytest.raises(psycopg.errors.DivisionByZero):
        statements.pair(_DIVIDE, _DOUBLE, {"by": 0})

    assert statements.pair(_DIVIDE, _DOUBLE, {"by": 3}) == ({"value": 2}, [{"value": 6}])


def test_a_name_means_the_same_statement_in_every_session(connections: list[psycopg.Connection]) -> None:
    """A pooler may lend one session to two processes, which prepared in different orders."""
    orders = ((_DIVIDE, _DOUBLE), (_DOUBLE, _DIVIDE))
    found = []
    for connection, order in zip(connections, orders, strict=True):
        statements = Statements(connection)
        for statement in order:
            statements.first(statement, {"by": 1})
        found.append(set(connection.execute("SELECT name, statement FROM pg_prepared_statements").fetchall()))

    assert found[0] == found[1]
    assert len(found[0]) == 2
