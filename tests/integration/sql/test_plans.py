"""Every sweep, listing and look-up is a range of an index (design 6), as PostgreSQL's planner sees it over many rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from sqlalchemy import event

from pikkuflow.adapters.sql import SqlRunStore
from pikkuflow.adapters.sql import postgres_claims as claims
from pikkuflow.adapters.sql import postgres_closing as closing
from pikkuflow.adapters.sql import postgres_passes as passes
from pikkuflow.adapters.sql import postgres_together as together
from pikkuflow.domain.act import SweepRequest
from pikkuflow.domain.ids import Holder, RunId
from pikkuflow.domain.run import RunFilter, RunKey
from pikkuflow.domain.status import RunStatus
from tests.contract.sql_stores import SqlBench
from tests.servers.postgres import PostgresServer

_FILL = """
INSERT INTO pikkuflow_run (id, workflow, version, status, inline, input, owner, wire, deterministic, news, seen, lost, passes_lost,
  send_count, created_at, updated_at, finished_at, news_at, pass_until, due_at, pass_id, pass_holder, code)
SELECT 'r' || n, 'w' || n % 50, 'v', CASE WHEN n % 40 = 0 THEN 'running' ELSE 'completed' END, false, '{}', 'u' || n % 500, '{}', false,
  2, 1, false, 0, 0, now() - n * interval '1 s', now() - n * interval '1 s', now(),
  CASE WHEN n % 400 = 0 THEN now() - n * interval '1 s' END, CASE WHEN n % 400 = 40 THEN now() - n * interval '1 s' END,
  CASE WHEN n % 400 = 80 THEN now() - n * interval '1 s' END, CASE WHEN n % 400 = 40 THEN 'p' || n END,
  CASE WHEN n % 400 = 40 THEN 'node-' || n || ':1' END, CASE WHEN n % 400 = 120 THEN 'TASK_NOT_FOUND' END
FROM generate_series(1, 20000) AS n;
INSERT INTO pikkuflow_step (run_id, name, seq, kind, task, status, attempt, retries, retry_delay, place, options, lease_seconds,
  send_count, created_at, waiting_since, lease_until, due_at, claim_holder)
SELECT 'r' || n, 's' || m, m, 'task', 't', CASE WHEN n % 40 = 0 THEN 'pending' ELSE 'succeeded' END, 1, 5, '1', 'worker:', '{}', 60,
  0, now(), CASE WHEN n % 400 = 0 AND m = 1 THEN now() - n * interval '1 s' END,
  CASE WHEN n % 400 = 0 AND m = 2 THEN now() - n * interval '1 s' END,
  CASE WHEN n % 400 = 0 AND m = 3 THEN now() - n * interval '1 s' END,
  CASE WHEN n % 400 = 0 AND m = 2 THEN 'node-' || n || ':1' END
FROM generate_series(1, 20000) AS n, generate_series(1, 3) AS m;
ANALYZE;
"""

_MIDDLE = RunKey(created_at=datetime(2020, 1, 1, tzinfo=UTC), id=RunId("r1"))
_SWEEP = SweepRequest(older_than_seconds=30.0, limit=1000)

_ACTS: dict[str, tuple[Callable[[SqlRunStore], Any], set[str]]] = {
    "sweep stalled": (lambda store: store.sweep_stalled(_SWEEP), {"run_pass", "run_news", "run_idle"}),
    "sweep undispatched": (lambda store: store.sweep_undispatched(_SWEEP), {"step_lease", "step_waiting"}),
    "sweep scheduled": (lambda store: store.sweep_scheduled(_SWEEP), {"run_due", "step_due"}),
    "upcoming": (lambda store: store.upcoming(3600.0, 100), {"run_due", "step_due"}),
    "find runs": (lambda store: store.find_runs([RunId("r40"), RunId("r80")]), set()),
    "list all": (lambda store: store.list_runs(RunFilter(), limit=50), {"run_created"}),
    "list a later page": (lambda store: store.list_runs(RunFilter(), limit=50, after=_MIDDLE), {"run_created"}),
    "list a workflow": (lambda store: store.list_runs(RunFilter(workflow="w7"), limit=50), {"run_workflow"}),
    "list a status": (lambda store: store.list_runs(RunFilter(status=RunStatus.RUNNING), limit=50), {"run_status"}),
    "list an owner": (lambda store: store.list_runs(RunFilter(owner="u7"), limit=50), {"run_owner"}),
    "list a code": (lambda store: store.list_runs(RunFilter(code="TASK_NOT_FOUND"), limit=50), {"run_code"}),
    "count open runs": (lambda store: store.count_open_runs("w7"), {"run_workflow"}),
    "undelivered": (lambda store: store.undelivered_runs(50), {"run_handover"}),
    "list approvals": (lambda store: store.list_approvals(limit=50), {"step_gate"}),
    "expire a process": (lambda store: store.expire_holder(Holder("node-440:1")), {"run_holder", "step_holder"}),
    "expire a node": (lambda store: store.expire_node("node-440"), {"run_holder", "step_holder"}),
    "renew": (lambda store: store.renew_holders([Holder("node-440:1")], 30.0), {"run_holder", "step_holder"}),
    "one run's steps": (lambda store: store.list_steps(RunId("r40")), set()),
    "one run's end": (lambda store: store.delete_run(RunId("r41")), set()),
}


@pytest.fixture(scope="module")
def filled(postgres_server: PostgresServer) -> Iterator[SqlRunStore]:
    """A store with 20,000 runs and 60,000 steps, most of them settled."""
    name = postgres_server.create_database()
    bench = SqlBench(postgres_server.url(name))
    with psycopg.connect(postgres_server.dsn(name), autocommit=True) as connection:
        connection.execute(_FILL)
    yield bench.store
    bench.close()
    postgres_server.drop_database(name)


def _plans(store: SqlRunStore, act: Callable[[SqlRunStore], Any]) -> list[Any]:
    """The plan of each statement of an act, taken just before the statement runs."""
    plans: list[Any] = []

    @event.listens_for(store.database.engine, "before_cursor_execute")
    def explain(_: Any, cursor: Any, statement: str, parameters: Any, __: Any, ___: Any) -> None:
        if "pikkuflow_" in statement and not statement.startswith("INSERT"):
            one = parameters[0] if isinstance(parameters, list) and parameters else parameters
            cursor.execute(f"EXPLAIN (FORMAT JSON) {statement}", one)
            plans.append(cursor.fetchone()[0][0]["Plan"])

    try:
        act(store)
    finally:
        event.remove(store.database.engine, "before_cursor_execute", explain)
    return plans


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _indexes(plans: list[Any]) -> set[str]:
    nodes = [node for plan in plans for node in _nodes(plan)]
    scanned = [node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan"]
    assert [name for name in scanned if name in {"pikkuflow_run", "pikkuflow_step"}] == [], json.dumps(plans, indent=1)
    return {node["Index Name"].removeprefix("ix_pikkuflow_") for node in nodes if "Index Name" in node}


@pytest.mark.parametrize("act", _ACTS)
def test_an_act_reads_by_its_index(filled: SqlRunStore, act: str) -> None:
    """Design 6, T17.13: no sequential scan over runs or steps, and the index that was made for it."""
    work, expected = _ACTS[act]
    assert _indexes(_plans(filled, work)) >= expected


@pytest.mark.parametrize("act", ["list all", "list a later page", "list a workflow", "list a status"])
def test_the_index_gives_the_order(filled: SqlRunStore, act: str) -> None:
    """D12: a page is the beginning of a range; nothing is sorted to find it."""
    work, _ = _ACTS[act]
    nodes = [node["Node Type"] for plan in _plans(filled, work) for node in _nodes(plan)]
    assert "Sort" not in nodes


_TEXTS = ("pass_id", "holder", "name", "claim_id", "result", "error", "place", "task", "override", "output")
_VALUES = dict.fromkeys(_TEXTS, "x") | {
    "run_id": "r40",
    "lease_seconds": 30.0,
    "passes_lost_limit": 10,
    "attempt": 1,
    "raised": 0,
    "broke_off": 0,
    "due_seconds": None,
    "sent": ["s1"],
    "names": ["s1"],
    "statuses": ["succeeded"],
    "attempts": [1],
    "status": "failed",
    "code": None,
    "delay_seconds": 1.0,
    "rows": '[{"run_id": "r40"}]',
    "run_ids": ["r40", "r80"],
    "outcomes": 1,
}


_HOT = {
    "take": passes._TAKE,
    "read": passes._READ_STEPS,
    "close": closing._CLOSE,
    "park": closing._PARK,
    "end": closing._END,
    "end after outcomes": closing._END_AFTER_OUTCOMES,
    "end waiting": closing._END_WAITING,
    "outcomes together": together._statement(state=True, counts=True),
    "claim": claims._CLAIM,
    "settle": claims._SETTLE,
    "try again": claims._TRY_AGAIN,
}


@pytest.mark.parametrize("name", _HOT)
def test_a_statement_of_the_hot_path_goes_by_keys(filled: SqlRunStore, name: str) -> None:
    """Design 2: what a step costs does not grow with the number of runs."""
    row = filled.database.autocommit(lambda db: db.first(f"EXPLAIN (FORMAT JSON) {_HOT[name]}", _VALUES))
    assert row is not None
    _indexes([row["QUERY PLAN"][0]["Plan"]])
