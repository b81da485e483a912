"""Claims and starts on PostgreSQL, one statement each; the rules of ``postgres_passes`` hold here too.

Only what goes well is done here. Whatever is left over is answered by the portable form (``claims``, ``runs``), which finds its own author
and tells the reasons apart.

Rows are named by parameters, also where another part of the statement has the same id: so their keys are the cheapest way to them whatever
PostgreSQL believes of the tables, which it may believe empty when it makes the one plan that a connection keeps.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from pikkuflow.adapters.sql.rows import RUN_COLUMNS, STEP_COLUMNS, run_of, step_of, text_of
from pikkuflow.adapters.sql.statements import Statements
from pikkuflow.domain.act import ClaimRequest, Claims, Settlement, StepOutcome
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.run import InsertedRun, NewRun
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.domain.step import Place

__all__ = ["claim_steps", "insert_runs", "settle_step"]

_NOW: Final = "clock_timestamp()"
_SETTLED: Final = "('completed', 'failed', 'cancelled', 'compensated', 'compensation_failed')"


# --- starting -----------------------------------------------------------------------------------------------------------

_INSERT_RUNS: Final = f"""
-- Insert each run unless its id is there, in the order of their ids.
INSERT INTO pikkuflow_run (
  id, workflow, version, status, inline, input, owner, wire, planned_steps, deterministic, news, seen, news_at, lost,
  passes_lost, starts_at, due_at, send_count, author, parent_run_id, parent_step, handover, timeout_seconds,
  deadline_at, created_at, updated_at)
SELECT
  n.id, n.workflow, n.version, 'running', n.inline, n.input, n.owner, n.wire, n.planned_steps, n.deterministic, 1, 0,
  {_NOW} + coalesce(n.delay_seconds, 0) * interval '1 second', false, 0,
  {_NOW} + n.delay_seconds * interval '1 second', {_NOW} + n.delay_seconds * interval '1 second',
  0, %(author)s, n.parent_run_id, n.parent_step, n.handover, n.timeout_seconds,
  {_NOW} + (coalesce(n.delay_seconds, 0) + n.timeout_seconds) * interval '1 second', {_NOW}, {_NOW}
FROM json_to_recordset(%(rows)s::json) AS n(
  id text, workflow text, version text, inline bool, input text, owner text, wire text, planned_steps text,
  deterministic bool, delay_seconds float8, parent_run_id text, parent_step text, handover text,
  timeout_seconds float8)
ORDER BY n.id
ON CONFLICT (id) DO NOTHING
RETURNING id
"""


def insert_runs(db: Statements, runs: Sequence[NewRun], author: str) -> tuple[InsertedRun, ...] | None:
    """Insert runs. None: not every one was new."""
    rows = json.dumps([_run_values(new) for new in runs])
    inserted = db.all(_INSERT_RUNS, {"rows": rows, "author": author})
    if len(inserted) < len(runs):
        return None
    return tuple(
        InsertedRun(id=new.id, created=True, workflow=new.workflow, input=new.input, status=RunStatus.RUNNING)
        for new in runs
    )


_RUN_VALUES: Final = (
    *("id", "workflow", "version", "inline", "input", "owner", "wire", "planned_steps", "deterministic"),
    *("handover", "timeout_seconds"),
)


def _run_values(new: NewRun) -> dict[str, Any]:
    values = {name: getattr(new, name) for name in _RUN_VALUES}
    parent = {} if new.parent is None else {"parent_run_id": new.parent.run_id, "parent_step": new.parent.step}
    return values | parent | {"delay_seconds": new.delay_seconds or None}


# --- claiming -----------------------------------------------------------------------------------------------------------


def _aliased(columns: Sequence[str], table: str, prefix: str) -> str:
    return ", ".join(f'{table}."{name}" AS "{prefix}{name}"' for name in columns)


_CLAIM: Final = f"""
-- The run is running, or for a compensation unwinds, and stays so until this commits; many claims may share it.
WITH r AS (SELECT * FROM pikkuflow_run WHERE id = %(run_id)s AND status IN ('running', 'compensating') FOR SHARE)
-- Every waiting row of the message that is due, at its attempt, is claimed; none if a row is another task's.
, claimed AS (
  UPDATE pikkuflow_step s SET
    status = 'running', claim_id = %(claim_id)s, claim_holder = %(holder)s, author = %(claim_id)s, place = %(place)s,
    lease_until = {_NOW} + s.lease_seconds * interval '1 second', running_at = {_NOW},
    due_at = {_NOW} + least(s.timeout_seconds, s.heartbeat_seconds) * interval '1 second',
    waiting_since = NULL, send_count = 0, next_send_at = NULL
  FROM r, unnest(%(names)s::text[], %(attempts)s::int[]) AS m(name, attempt)
  WHERE s.run_id = %(run_id)s AND s.name = ANY(%(names)s::text[]) AND s.name = m.name AND s.attempt = m.attempt
    AND (s.kind = 'compensation') = (r.status = 'compensating')
    AND s.status IN ('pending', 'scheduled') AND s.place LIKE 'worker:%%' AND s.task = %(task)s
    AND (s.due_at IS NULL OR s.due_at <= {_NOW}) AND (s.expires_at IS NULL OR s.expires_at > {_NOW})
    AND NOT EXISTS (
      SELECT FROM pikkuflow_step o
      WHERE o.run_id = %(run_id)s AND o.name = ANY(%(names)s::text[]) AND o.task IS DISTINCT FROM %(task)s)
  RETURNING s.*
)
SELECT {_aliased(RUN_COLUMNS, "r", "run_")}, {_aliased(STEP_COLUMNS, "claimed", "step_")}, {_NOW} AS read_at
FROM r JOIN claimed ON true
"""


def claim_steps(db: Statements, request: ClaimRequest) -> Claims | None:
    """Claim every step of the message. None: not every one could be claimed (those that could, are)."""
    names = [name for name, _ in request.steps]
    rows = db.all(
        _CLAIM,
        {
            "run_id": request.run_id,
            "names": names,
            "attempts": [attempt for _, attempt in request.steps],
            "task": request.task,
            "claim_id": request.claim_id,
            "holder": request.holder,
            "place": Place.worker(request.holder),
        },
    )
    if not rows or len(rows) < len(names):
        return None
    steps = {
        row["step_name"]: step_of({name: row[f"step_{name}"] for name in STEP_COLUMNS}, row["read_at"]) for row in rows
    }
    run = run_of({name: rows[0][f"run_{name}"] for name in RUN_COLUMNS})
    return Claims(run=run, claimed=tuple(steps[name] for name in names))


# --- settling -----------------------------------------------------------------------------------------------------------

_LOCKED: Final = """
WITH r AS (SELECT id, news FROM pikkuflow_run WHERE id = %(run_id)s FOR NO KEY UPDATE)"""

_MINE: Final = """
  WHERE s.run_id = %(run_id)s AND s.name = %(name)s AND s.attempt = %(attempt)s AND s.claim_id = %(claim_id)s AND s.status = 'running'"""

_SETTLE: Final = f"""{_LOCKED}
-- The outcome, if the attempt is still this claim's.
, settled AS (
  UPDATE pikkuflow_step s SET
    status = %(status)s, result = %(result)s, error = %(error)s, override = %(override)s, author = %(claim_id)s, settled_at = {_NOW},
    settled_no = (r.news + 1) * 4294967296, lease_until = NULL, due_at = NULL, waiting_since = NULL
  FROM r {_MINE}
  RETURNING s.run_id, s.fan_id
)
-- One member less of its fan.
, counted AS (
  UPDATE pikkuflow_fan f SET open = f.open - 1 FROM settled WHERE f.run_id = settled.run_id AND f.fan_id = settled.fan_id
  RETURNING f.open
)
-- News, unless the fan has open members; an outcome ends a row of lost passes.
, told AS (
  UPDATE pikkuflow_run u SET
    news = u.news + 1, news_at = coalesce(u.news_at, {_NOW}), passes_lost = 0, updated_at = {_NOW}
  FROM settled LEFT JOIN counted ON true
  WHERE u.id = settled.run_id AND u.status NOT IN {_SETTLED} AND (counted.open IS NULL OR counted.open <= 0)
  RETURNING u.news - 1 = u.seen AND (u.pass_until IS NULL OR u.pass_until <= {_NOW}) AS wake
)
SELECT coalesce(told.wake, false) AS wake FROM settled LEFT JOIN told ON true
"""

_TRY_AGAIN: Final = f"""
WITH r AS (SELECT id FROM pikkuflow_run WHERE id = %(run_id)s AND status NOT IN {_SETTLED} FOR NO KEY UPDATE)
-- The next attempt on the row; what it showed before comes back with it.
, moved AS (
  UPDATE pikkuflow_step s SET
    status = 'pending', attempt = s.attempt + 1, created_at = {_NOW}, place = '{Place.QUEUE}',
    due_at = {_NOW} + %(delay_seconds)s::float8 * interval '1 second',
    waiting_since = {_NOW} + %(delay_seconds)s::float8 * interval '1 second',
    override = %(override)s, author = %(claim_id)s,
    result = NULL, error = NULL, claim_id = NULL, claim_holder = NULL, lease_until = NULL,
    running_at = NULL, scheduled_at = NULL, sent_at = NULL, settled_at = NULL, send_count = 0, next_send_at = NULL
  FROM r, pikkuflow_step o {_MINE} AND o.run_id = %(run_id)s AND o.name = %(name)s
  RETURNING o.run_id, o.name, o.attempt, o.place, o.created_at, o.running_at, o.scheduled_at
)
-- The attempt that failed.
, kept AS (
  INSERT INTO pikkuflow_attempt (
    run_id, step, attempt, status, error, result, place, author, created_at, running_at, scheduled_at, settled_at)
  SELECT run_id, name, attempt, 'failed', %(error)s, NULL, place, %(claim_id)s, created_at, running_at, scheduled_at, {_NOW}
  FROM moved
  ON CONFLICT DO NOTHING
)
SELECT false AS wake FROM moved
"""


def settle_step(db: Statements, run_id: RunId, outcome: StepOutcome) -> Settlement | None:
    """Store one outcome. None: it did not land, had landed before, or is a further attempt for a run that has settled."""
    statement = _TRY_AGAIN if outcome.status is StepStatus.PENDING else _SETTLE
    row = db.first(
        statement,
        {
            "run_id": run_id,
            "name": outcome.name,
            "attempt": outcome.attempt,
            "claim_id": outcome.claim_id,
            "status": outcome.status.value,
            "result": outcome.result,
            "error": text_of(outcome.error),
            "delay_seconds": outcome.delay_seconds or 0.0,
            "override": outcome.override,
        },
    )
    return None if row is None else Settlement(accepted=(True,), wake=row["wake"])
