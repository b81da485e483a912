"""Outcomes of one run or of several on PostgreSQL: one statement and one commit, whatever their number.

What ``postgres_passes`` says of its statements holds here too. The runs' rows are locked by id alone and in the order of their ids; whose
they are is judged afterwards, on the rows as they are once they are locked.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from pikkuflow.adapters.sql.postgres_passes import MOVED, may_begin
from pikkuflow.adapters.sql.rows import text_of
from pikkuflow.adapters.sql.statements import Statements
from pikkuflow.domain.act import PassNews, PassRef, StepWrite
from pikkuflow.domain.status import SETTLED_STEP, RunStatus, StepStatus

__all__ = ["parameters_of", "record_all", "statement_of"]

Writes = Sequence[tuple[PassRef, StepWrite]]

_NOW: Final = "clock_timestamp()"
_OPEN: Final = "('running', 'suspended')"
_FINAL: Final = "('succeeded', 'failed', 'cancelled')"

_HELD: Final = """
WITH given AS MATERIALIZED (
  SELECT * FROM json_to_recordset(%(rows)s::json) AS n(
    at int, run_id text, pass_id text, name text, seq int, kind text, task text, args text, status text, result text, error text,
    attempt int, retries int, retry_delay text, place text, queue text, options text, lease_seconds float8, due_seconds float8,
    expires_seconds float8, override text, child_run_id text, fan_id text, from_step text, "group" text, running_ago float8,
    state_key text, state_value text, undo_task text, begun_no int8, settled_no int8)
)
, locked AS (
  SELECT id, pass_id, news, status, lost, passes_lost FROM pikkuflow_run
  WHERE id = ANY(%(run_ids)s::text[]) ORDER BY id FOR NO KEY UPDATE
)
-- Each write with its run, if the run is still its pass's.
, held AS (
  SELECT given.*, locked.news, locked.status AS run_status
  FROM locked JOIN given ON given.run_id = locked.id AND given.pass_id = locked.pass_id
)"""

_WRITTEN: Final = f"""
, written AS (
  INSERT INTO pikkuflow_step AS s (
    run_id, name, seq, kind, task, args, status, result, error, attempt, retries, retry_delay, place, queue, options,
    lease_seconds, due_at, expires_at, send_count, override, child_run_id, fan_id, from_step, "group", author,
    undo_task, begun_no, settled_no, created_at, running_at, settled_at)
  SELECT
    run_id, name, seq, kind, task, args, status, result, error, attempt, retries, retry_delay, place, queue, options,
    lease_seconds,
    {_NOW} + due_seconds * interval '1 second',
    {_NOW} + expires_seconds * interval '1 second',
    0, override, child_run_id, fan_id, from_step, "group", pass_id,
    undo_task, begun_no, settled_no, {_NOW}, {_NOW} - running_ago * interval '1 second',
    CASE WHEN status IN {_FINAL} THEN {_NOW} END
  FROM held WHERE status <> 'running'
    OR CASE WHEN kind = 'compensation' THEN run_status = 'compensating' ELSE run_status IN {_OPEN} END
  ORDER BY at
  {MOVED}
  RETURNING s.run_id, s.name
)"""

_REMEMBERED: Final = """
-- Set keys of the runs' state; of several sets of one key the last counts.
, remembered AS (
  INSERT INTO pikkuflow_state (run_id, key, value)
  SELECT DISTINCT ON (run_id, state_key) run_id, state_key, state_value
  FROM held JOIN written USING (run_id, name) WHERE state_key IS NOT NULL
  ORDER BY run_id, state_key, at DESC
  ON CONFLICT (run_id, key) DO UPDATE SET value = excluded.value
)"""

_COUNTED: Final = f"""
-- Their fans have that many members less.
, counted AS (
  UPDATE pikkuflow_fan f SET open = f.open - n.settled FROM (
    SELECT run_id, fan_id, count(*) AS settled FROM held JOIN written USING (run_id, name)
    WHERE fan_id IS NOT NULL AND status IN {_FINAL} GROUP BY run_id, fan_id) n
  WHERE f.run_id = n.run_id AND f.fan_id = n.fan_id
)"""

_CLEARED: Final = """
-- An outcome in place clears the mark of a lost pass.
, cleared AS (
  UPDATE pikkuflow_run r SET lost = false, passes_lost = 0 FROM locked JOIN (
    SELECT DISTINCT run_id FROM held JOIN written USING (run_id, name) WHERE status <> 'running') o ON o.run_id = locked.id
  WHERE r.id = locked.id AND (locked.lost OR locked.passes_lost > 0)
)"""

_ANSWER: Final = """
SELECT held.at, held.news, held.run_status AS status, written.name IS NOT NULL AS written
FROM held LEFT JOIN written USING (run_id, name)
"""


@cache
def _statement(*, state: bool, counts: bool) -> str:
    return "".join((_HELD, _WRITTEN, _REMEMBERED if state else "", _COUNTED if counts else "", _CLEARED, _ANSWER))


def statement_of(writes: Writes) -> str:
    """The statement that writes these rows."""
    return _statement(
        state=any(write.state is not None for _, write in writes),
        counts=any(write.step.fan_id is not None and write.status in SETTLED_STEP for _, write in writes),
    )


def parameters_of(writes: Writes) -> dict[str, Any]:
    """Its parameters."""
    rows = [_values(at, ref, write) for at, (ref, write) in enumerate(writes)]
    run_ids = list(dict.fromkeys(ref.run_id for ref, _ in writes))
    return {"rows": json.dumps(rows, ensure_ascii=False), "run_ids": run_ids}


def record_all(db: Statements, writes: Writes) -> tuple[PassNews | None, ...] | None:
    """Write in-place rows by plain writes. None: a row refused its write, for a reason that this does not tell; the others are written."""
    news = {row["at"]: row for row in db.all(statement_of(writes), parameters_of(writes))}
    answers: list[PassNews | None] = []
    for at, (_, write) in enumerate(writes):
        row = news.get(at)
        if row is None:
            answers.append(None)
            continue
        status = RunStatus(row["status"])
        if not row["written"] and not (write.status is StepStatus.RUNNING and not may_begin(status, write.step.kind)):
            return None
        answers.append(PassNews(news=row["news"], status=status, written=row["written"]))
    return tuple(answers)


_PLAIN: Final = (
    *("name", "seq", "task", "args", "retries", "retry_delay", "place", "queue", "options", "lease_seconds"),
    *("expires_seconds", "child_run_id", "fan_id", "from_step", "group", "undo_task", "begun_no"),
)


def _values(at: int, ref: PassRef, write: StepWrite) -> dict[str, Any]:
    is_pending = write.status is StepStatus.PENDING
    values = {name: getattr(write.step, name) for name in _PLAIN}
    values |= {
        "at": at,
        "run_id": ref.run_id,
        "pass_id": ref.pass_id,
        "kind": write.step.kind.value,
        "status": write.status.value,
        "result": write.result,
        "error": text_of(write.error),
        "attempt": write.attempt,
        "due_seconds": write.delay_seconds if is_pending else None,
        "override": write.override,
        "running_ago": None if is_pending else write.started_seconds_ago,
        "settled_no": write.no if write.status in SETTLED_STEP else None,
    }
    if write.state is not None:
        values["state_key"], values["state_value"] = write.state
    return values
