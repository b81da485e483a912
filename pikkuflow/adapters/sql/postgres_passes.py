"""Passes on PostgreSQL: each act is one statement and one commit, or two statements in one round trip where the second has to see more.

Three rules make a statement a fence under READ COMMITTED:

- The run's row is locked inside it (``FOR NO KEY UPDATE`` or an UPDATE). A statement that waited for that row goes on with the row as it
  then is, and its condition on ``pass_id`` is judged again.
- Everything else in the statement still sees the snapshot of its beginning. So what must be read *after* the lock (the history of an
  opening, the waiting rows of an ending) is a second statement of the same pipeline: one round trip, one transaction, its own snapshot.
- What an UPDATE takes from another part of the statement comes in by a join, never by a sub-select: when the row had to be waited for, its
  condition is judged again, and PostgreSQL refuses to run a writing WITH query for that.

A statement that is written lightly does not wait for the disk: it sets ``synchronous_commit`` for its own transaction. What may then be
forgotten with a server that dies is in ``docs/decisions/light-commits.md``.

An act that finds nothing to write is answered by its portable form (``passes``, ``closing``), which tells the reasons apart.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from pikkuflow.adapters.sql.rows import RUN_COLUMNS, STEP_COLUMNS, run_of, step_of, text_of
from pikkuflow.adapters.sql.statements import Statements
from pikkuflow.domain.act import PassNews, PassOpening, PassRef, StepWrite
from pikkuflow.domain.history import History
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.run import Run
from pikkuflow.domain.status import OPEN_RUN, SETTLED_STEP, RunStatus, StepKind, StepStatus
from pikkuflow.domain.step import NewStep, Place

__all__ = ["MOVED", "get_run", "insert_steps", "is_plain", "may_begin", "open_pass", "record"]

_NOW: Final = "clock_timestamp()"
_OPEN: Final = "('running', 'suspended')"
_FINAL: Final = "('succeeded', 'failed', 'cancelled')"


_LIGHTLY: Final = "set_config('synchronous_commit', 'off', true)"
"""Evaluated in a statement that is its own transaction, this holds for its commit and for nothing after it."""


def _names(columns: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)


# --- opening ----------------------------------------------------------------------------------------------------------

_TAKE: Final = f"""
-- Take a run that no live pass holds and whose time has come; an unclosed pass before this one leaves its mark.
UPDATE pikkuflow_run SET
  pass_id = %(pass_id)s,
  pass_holder = %(holder)s,
  pass_until = {_NOW} + %(lease_seconds)s * interval '1 second',
  opened_at = CASE WHEN pass_id = %(pass_id)s THEN opened_at ELSE {_NOW} END,
  seen = news,
  news_at = NULL,
  lost = lost OR (pass_id IS NOT NULL AND pass_id <> %(pass_id)s),
  passes_lost = passes_lost + (pass_id IS NOT NULL AND pass_id <> %(pass_id)s)::int,
  updated_at = {_NOW}
WHERE id = %(run_id)s AND status IN ('running', 'suspended', 'compensating') AND (
  pass_id = %(pass_id)s OR (
    (pass_until IS NULL OR pass_until <= {_NOW})
    AND (starts_at IS NULL OR starts_at <= {_NOW})
    AND NOT (status = 'suspended' AND code IS NOT DISTINCT FROM 'PASS_LOST')
    AND NOT (pass_id IS NOT NULL AND passes_lost + 1 >= %(passes_lost_limit)s AND status IN {_OPEN})))
RETURNING {_names(RUN_COLUMNS)}
"""

_TAKE_LIGHTLY: Final = f"{_TAKE}, {_LIGHTLY}"

_READ_STEPS: Final = f"""
-- The history, with a snapshot taken after the run's row was locked.
-- Nothing is read when the run was not taken.
SELECT {_names(STEP_COLUMNS)}, {_NOW} AS read_at FROM pikkuflow_step
WHERE run_id = %(run_id)s AND (SELECT pass_id = %(pass_id)s FROM pikkuflow_run WHERE id = %(run_id)s)
ORDER BY seq, name
"""


def open_pass(db: Statements, opening: PassOpening) -> History | None:
    """Take the run and read its history. None: not taken, for a reason that this does not tell."""
    asked = {
        "run_id": opening.run_id,
        "pass_id": opening.pass_id,
        "holder": opening.holder,
        "lease_seconds": float(opening.lease_seconds),
        "passes_lost_limit": opening.passes_lost_limit,
    }
    taken, steps = db.pair(_TAKE_LIGHTLY if opening.lightly else _TAKE, _READ_STEPS, asked)
    if taken is None:
        return None
    return History(
        pass_id=opening.pass_id,
        run=run_of(taken),
        steps=tuple(step_of(row, row["read_at"]) for row in steps),
    )


_READ_RUN: Final = f"SELECT {_names(RUN_COLUMNS)} FROM pikkuflow_run WHERE id = %(run_id)s"


def get_run(db: Statements, run_id: RunId) -> Run | None:
    """The run, or None. Clients ask for it at the start and the end of each wait."""
    row = db.first(_READ_RUN, {"run_id": run_id})
    return None if row is None else run_of(row)


# --- one in-place row --------------------------------------------------------------------------------------------------

_HELD: Final = """
WITH held AS (
  SELECT id, news, status, lost, passes_lost FROM pikkuflow_run
  WHERE id = %(run_id)s AND pass_id = %(pass_id)s FOR NO KEY UPDATE
)"""

MOVED: Final = f"""ON CONFLICT (run_id, name) DO UPDATE SET
    status = excluded.status, result = excluded.result, error = excluded.error, place = excluded.place,
    override = excluded.override, author = excluded.author, due_at = excluded.due_at, settled_at = excluded.settled_at,
    settled_no = excluded.settled_no,
    running_at = CASE
      WHEN excluded.status IN ('running', 'pending') THEN excluded.running_at
      ELSE coalesce(s.running_at, excluded.running_at) END,
    claim_id = NULL, claim_holder = NULL, lease_until = NULL, waiting_since = NULL, send_count = 0, next_send_at = NULL
  WHERE s.attempt = excluded.attempt AND s.status NOT IN {_FINAL}"""
"""A row that shows the same attempt and has no outcome is moved; any other is left as it is."""

_WRITTEN: Final = f"""
-- Insert the row, or move one that shows the same attempt and has no outcome.
, written AS (
  INSERT INTO pikkuflow_step AS s (
    run_id, name, seq, kind, task, args, status, result, error, attempt, retries, retry_delay, place, queue, options,
    lease_seconds, due_at, expires_at, send_count, override, child_run_id, fan_id, from_step, "group", author,
    undo_task, begun_no, settled_no, created_at, running_at, settled_at)
  SELECT
    held.id, %(name)s, %(seq)s, %(kind)s::text, %(task)s, %(args)s, %(status)s::text, %(result)s, %(error)s, %(attempt)s,
    %(retries)s, %(retry_delay)s, %(place)s, %(queue)s, %(options)s, %(lease_seconds)s,
    {_NOW} + %(due_seconds)s::float8 * interval '1 second',
    {_NOW} + %(expires_seconds)s::float8 * interval '1 second',
    0, %(override)s, %(child_run_id)s, %(fan_id)s, %(from_step)s, %(group)s, %(pass_id)s,
    %(undo_task)s, %(begun_no)s, %(settled_no)s::int8, {_NOW}, {_NOW} - %(running_ago)s::float8 * interval '1 second',
    CASE WHEN %(status)s::text IN {_FINAL} THEN {_NOW} END
  FROM held WHERE %(status)s::text <> 'running'
    OR CASE WHEN %(kind)s::text = 'compensation' THEN held.status = 'compensating' ELSE held.status IN {_OPEN} END
  {MOVED}
  RETURNING s.run_id
)"""

_REMEMBERED: Final = """
-- Set one key of the run's state.
, remembered AS (
  INSERT INTO pikkuflow_state (run_id, key, value)
  SELECT run_id, %(state_key)s, %(state_value)s FROM written
  ON CONFLICT (run_id, key) DO UPDATE SET value = excluded.value
)"""

_COUNTED: Final = """
-- One member less of the fan.
, counted AS (
  UPDATE pikkuflow_fan f SET open = f.open - 1 FROM written WHERE f.run_id = written.run_id AND f.fan_id = %(fan_id)s
)"""

_CLEARED: Final = """
-- An outcome in place clears the mark of a lost pass; without a mark the run's row is locked and not rewritten.
, cleared AS (
  UPDATE pikkuflow_run r SET lost = false, passes_lost = 0 FROM held JOIN written ON true
  WHERE r.id = held.id AND (held.lost OR held.passes_lost > 0)
)"""

_ANSWER: Final = """
SELECT held.news, held.status, written.run_id IS NOT NULL AS written FROM held LEFT JOIN written ON true
"""


@cache
def _record_statement(*, state: bool, counts: bool, outcome: bool) -> str:
    parts = (
        _HELD,
        _WRITTEN,
        _REMEMBERED if state else "",
        _COUNTED if counts else "",
        _CLEARED if outcome else "",
        _ANSWER,
    )
    return "".join(parts)


def is_plain(write: StepWrite) -> bool:
    """The write leaves the row at its attempt and ends none before it, so that no earlier attempt has to be kept."""
    return write.ended is None and write.expects in {None, write.attempt}


def record(db: Statements, ref: PassRef, write: StepWrite) -> tuple[PassNews | None, bool]:
    """Write one in-place row by a plain write. True beside the news: the row refused it, for a reason that this does not tell."""
    statement = _record_statement(
        state=write.state is not None,
        counts=write.step.fan_id is not None and write.status in SETTLED_STEP,
        outcome=write.status is not StepStatus.RUNNING,
    )
    row = db.first(statement, _written_values(ref, write))
    if row is None:
        return None, False
    status = RunStatus(row["status"])
    is_stopped_start = write.status is StepStatus.RUNNING and not may_begin(status, write.step.kind)
    news = PassNews(news=row["news"], status=status, written=row["written"])
    return news, not row["written"] and not is_stopped_start


def may_begin(status: RunStatus, kind: StepKind) -> bool:
    """Work begins only in an open run; compensations only in one that unwinds."""
    return status is RunStatus.COMPENSATING if kind is StepKind.COMPENSATION else status in OPEN_RUN


def _written_values(ref: PassRef, write: StepWrite) -> dict[str, Any]:
    new = write.step
    is_pending = write.status is StepStatus.PENDING
    key, value = write.state or (None, None)
    return {
        "run_id": ref.run_id,
        "pass_id": ref.pass_id,
        "name": new.name,
        "seq": new.seq,
        "kind": new.kind.value,
        "task": new.task,
        "args": new.args,
        "status": write.status.value,
        "result": write.result,
        "error": text_of(write.error),
        "attempt": write.attempt,
        "retries": new.retries,
        "retry_delay": new.retry_delay,
        "place": new.place,
        "queue": new.queue,
        "options": new.options,
        "lease_seconds": float(new.lease_seconds),
        "due_seconds": write.delay_seconds if is_pending else None,
        "expires_seconds": new.expires_seconds,
        "override": write.override,
        "child_run_id": new.child_run_id,
        "fan_id": new.fan_id,
        "from_step": new.from_step,
        "group": new.group,
        "undo_task": new.undo_task,
        "begun_no": new.begun_no,
        "settled_no": write.no if write.status in SETTLED_STEP else None,
        "running_ago": None if is_pending else write.started_seconds_ago,
        "state_key": key,
        "state_value": value,
    }


# --- rows that others work ----------------------------------------------------------------------------------------------

_INSERT_STEPS: Final = f"""
{_HELD}
-- One multi-row insert; rows that are there stay as they are.
, inserted AS (
  INSERT INTO pikkuflow_step (
    run_id, name, seq, kind, task, args, status, attempt, retries, retry_delay, place, queue, options, lease_seconds,
    due_at, expires_at, waiting_since, send_count, child_run_id, fan_id, from_step, "group", author,
    undo_task, begun_no, timeout_seconds, heartbeat_seconds, created_at,
    scheduled_at)
  SELECT
    held.id, n.name, n.seq, n.kind, n.task, n.args, n.status, 1, n.retries, n.retry_delay, n.place, n.queue, n.options,
    n.lease_seconds,
    {_NOW} + n.delay_seconds * interval '1 second',
    {_NOW} + n.expires_seconds * interval '1 second',
    CASE WHEN n.waits THEN {_NOW} + coalesce(n.delay_seconds, 0) * interval '1 second' END,
    0, n.child_run_id, n.fan_id, n.from_step, n."group", %(pass_id)s,
    n.undo_task, n.begun_no, n.timeout_seconds, n.heartbeat_seconds, {_NOW},
    CASE WHEN n.status = 'scheduled' THEN {_NOW} END
  FROM held, json_to_recordset(%(rows)s::json) AS n(
    name text, seq int, kind text, task text, args text, status text, retries int, retry_delay text, place text, queue text,
    options text, lease_seconds float8, delay_seconds float8, expires_seconds float8, waits bool, child_run_id text,
    fan_id text, from_step text, "group" text, undo_task text, begun_no int8,
    timeout_seconds float8, heartbeat_seconds float8)
  WHERE CASE WHEN n.kind = 'compensation' THEN held.status = 'compensating' ELSE held.status IN {_OPEN} END
  ON CONFLICT (run_id, name) DO NOTHING
  RETURNING run_id, fan_id
)
-- Each fan's counter is the rows inserted for it; a repeated act inserts none and so changes none.
, opened AS (
  INSERT INTO pikkuflow_fan AS f (run_id, fan_id, open)
  SELECT run_id, fan_id, count(*) FROM inserted WHERE %(joined)s AND fan_id IS NOT NULL GROUP BY run_id, fan_id
  ON CONFLICT (run_id, fan_id) DO UPDATE SET open = f.open + excluded.open
)
"""

_INSERT: Final = f"{_INSERT_STEPS}SELECT news, status FROM held"
_INSERT_LIGHTLY: Final = f"{_INSERT_STEPS}SELECT news, status, {_LIGHTLY} FROM held"


def insert_steps(
    db: Statements, ref: PassRef, steps: Sequence[NewStep], *, joined: bool, lightly: bool
) -> PassNews | None:
    """Insert waiting rows and their fans' counters."""
    rows = json.dumps([_inserted_values(new) for new in steps])
    asked = {"run_id": ref.run_id, "pass_id": ref.pass_id, "rows": rows, "joined": joined}
    row = db.first(_INSERT_LIGHTLY if lightly else _INSERT, asked)
    if row is None:
        return None
    status = RunStatus(row["status"])
    is_written = all(may_begin(status, new.kind) for new in steps)
    return PassNews(news=row["news"], status=status, written=is_written)


def _inserted_values(new: NewStep) -> dict[str, Any]:
    status = StepStatus.SCHEDULED if new.kind is StepKind.SLEEP else StepStatus.PENDING
    values = {name: getattr(new, name) for name in _INSERTED}
    return values | {"status": status.value, "waits": Place.is_queue(new.place)}


_INSERTED: Final = (
    *("name", "seq", "kind", "task", "args", "retries", "retry_delay", "place", "queue", "options", "lease_seconds"),
    *("delay_seconds", "expires_seconds", "child_run_id", "fan_id", "from_step", "group", "undo_task", "begun_no"),
    *("timeout_seconds", "heartbeat_seconds"),
)
