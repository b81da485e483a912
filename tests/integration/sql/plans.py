"""What PostgreSQL's planner makes of the statements of a store: which indexes they go by, and whether they scan runs or steps."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

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

_MIDDLE = RunKey(created_at=datetime(2020, 1, 1, tzinfo=UTC), id=RunId("r1"))
_SWEEP = SweepRequest(older_than_seconds=30.0, limit=1000)

ACTS: dict[str, tuple[Callable[[SqlRunStore], Any], set[str]]] = {
    "sweep stalled": (lambda store: store.sweep_stalled(_SWEEP), {"run_pass", "run_news", "run_idle"}),
    "sweep undispatched": (lambda store: store.sweep_undispatched(_SWEEP), {"step_lease", "step_waiting"}),
    "sweep scheduled": (lambda store: store.sweep_scheduled(_SWEEP), {"run_due", "step_due"}),
    "overdue runs": (lambda store: store.overdue_runs(100), {"run_deadline"}),
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
"""Acts of the store, and the indexes that were made for each."""

HOT = {
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
"""Statements of the hot path, which the store executes on the driver."""


def plans_of(store: SqlRunStore, act: Callable[[SqlRunStore], Any]) -> list[Any]:
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


def nodes_of(plan: Any) -> Iterator[Any]:
    """Every node of a plan."""
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes_of(child)


def indexes_of(plans: list[Any]) -> set[str]:
    """The indexes of ours that plans go by. Fails on a plan that scans runs or steps from one end to the other."""
    nodes = [node for plan in plans for node in nodes_of(plan)]
    scanned = [node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan"]
    assert [name for name in scanned if name in {"pikkuflow_run", "pikkuflow_step"}] == [], json.dumps(plans, indent=1)
    return {node["Index Name"].removeprefix("ix_pikkuflow_") for node in nodes if "Index Name" in node}


def hot_plan(store: SqlRunStore, name: str) -> Any:
    """The plan of a statement of the hot path for any parameters, which is how the store has it planned."""
    numbers: dict[str, str] = {}
    statement = re.sub(r"%\((\w+)\)s", lambda found: numbers.setdefault(found[1], f"${len(numbers) + 1}"), HOT[name])
    with store.database.engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        row = driver.execute(f"EXPLAIN (FORMAT JSON, GENERIC_PLAN) {statement.replace('%%', '%')}").fetchone()
    return row[0][0]["Plan"]
