"""Every sweep, listing and look-up is a range of an index (design 6), as PostgreSQL's planner sees it over many rows.

``make growth`` asks the same of a million.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from pikkuflow.adapters.sql import SqlRunStore
from tests.contract.sql_stores import SqlBench
from tests.integration.sql.plans import ACTS, HOT, hot_plan, indexes_of, nodes_of, plans_of
from tests.servers.postgres import PostgresServer

_FILL = """
INSERT INTO pikkuflow_run (id, workflow, version, status, inline, input, owner, wire, deterministic, news, seen, lost, passes_lost,
  send_count, created_at, updated_at, finished_at, news_at, pass_until, due_at, pass_id, pass_holder, code, deadline_at)
SELECT 'r' || n, 'w' || n % 50, 'v', CASE WHEN n % 40 = 0 THEN 'running' ELSE 'completed' END, false, '{}', 'u' || n % 500, '{}', false,
  2, 1, false, 0, 0, now() - n * interval '1 s', now() - n * interval '1 s', now(),
  CASE WHEN n % 400 = 0 THEN now() - n * interval '1 s' END, CASE WHEN n % 400 = 40 THEN now() - n * interval '1 s' END,
  CASE WHEN n % 400 = 80 THEN now() - n * interval '1 s' END, CASE WHEN n % 400 = 40 THEN 'p' || n END,
  CASE WHEN n % 400 = 40 THEN 'node-' || n || ':1' END, CASE WHEN n % 400 = 120 THEN 'TASK_NOT_FOUND' END,
  CASE WHEN n % 20 = 0 THEN now() - n * interval '1 s' END
FROM generate_series(1, 100000) AS n;
INSERT INTO pikkuflow_step (run_id, name, seq, kind, task, status, attempt, retries, retry_delay, place, options, lease_seconds,
  send_count, created_at, waiting_since, lease_until, due_at, claim_holder)
SELECT 'r' || n, 's' || m, m, 'task', 't', CASE WHEN n % 40 = 0 THEN 'pending' ELSE 'succeeded' END, 1, 5, '1', 'worker:', '{}', 60,
  0, now(), CASE WHEN n % 400 = 0 AND m = 1 THEN now() - n * interval '1 s' END,
  CASE WHEN n % 400 = 0 AND m = 2 THEN now() - n * interval '1 s' END,
  CASE WHEN n % 400 = 0 AND m = 3 THEN now() - n * interval '1 s' END,
  CASE WHEN n % 400 = 0 AND m = 2 THEN 'node-' || n || ':1' END
FROM generate_series(1, 100000) AS n, generate_series(1, 3) AS m WHERE m = 1 OR n % 40 = 0;
ANALYZE;
"""


@pytest.fixture(scope="module")
def filled(postgres_server: PostgresServer) -> Iterator[SqlRunStore]:
    """A store with 100,000 runs and as many steps, most of them settled, some waiting, due or worked."""
    name = postgres_server.create_database()
    bench = SqlBench(postgres_server.url(name))
    with psycopg.connect(postgres_server.dsn(name), autocommit=True) as connection:
        connection.execute(_FILL)
    yield bench.store
    bench.close()
    postgres_server.drop_database(name)


@pytest.mark.parametrize("act", ACTS)
def test_an_act_reads_by_its_index(filled: SqlRunStore, act: str) -> None:
    """Design 6, T17.13: no sequential scan over runs or steps, and the index that was made for it."""
    work, expected = ACTS[act]
    assert indexes_of(plans_of(filled, work)) >= expected


@pytest.mark.parametrize("act", ["list all", "list a later page", "list a workflow", "list a status"])
def test_the_index_gives_the_order(filled: SqlRunStore, act: str) -> None:
    """D12: a page is the beginning of a range; nothing is sorted to find it."""
    work, _ = ACTS[act]
    nodes = [node["Node Type"] for plan in plans_of(filled, work) for node in nodes_of(plan)]
    assert "Sort" not in nodes


@pytest.mark.parametrize("name", HOT)
def test_a_statement_of_the_hot_path_goes_by_keys(filled: SqlRunStore, name: str) -> None:
    """Design 2: what a step costs does not grow with the number of runs."""
    assert {index.rpartition("_")[2] for index in indexes_of([hot_plan(filled, name)])} == {"pkey"}


@pytest.mark.parametrize("name", ["claim", "settle", "try again"])
def test_a_plan_made_before_there_is_a_row_goes_by_the_whole_key(postgres_server: PostgresServer, name: str) -> None:
    """Design 2: a connection keeps the first plan, and a new deployment's first steps would else be looked for among all of them."""
    database = postgres_server.create_database()
    bench = SqlBench(postgres_server.url(database))
    nodes = [node for node in nodes_of(hot_plan(bench.store, name)) if node.get("Relation Name") == "pikkuflow_step"]
    bench.close()
    postgres_server.drop_database(database)
    conditions = [node.get("Index Cond", "") for node in nodes if node["Node Type"] != "ModifyTable"]
    assert conditions
    assert all("run_id" in one and "name" in one for one in conditions)
