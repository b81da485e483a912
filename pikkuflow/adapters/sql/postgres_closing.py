"""Closing a pass on PostgreSQL: one statement that releases the run, or a few in one round trip when it ends.

What ``postgres_passes`` says of its statements holds here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pikkuflow.adapters.sql.postgres_passes import is_plain
from pikkuflow.adapters.sql.postgres_together import parameters_of, statement_of
from pikkuflow.adapters.sql.rows import text_of
from pikkuflow.adapters.sql.statements import Statements
from pikkuflow.domain.act import Closed, Closing, PassRef
from pikkuflow.domain.status import SETTLED_RUN, RunStatus

__all__ = ["close_pass"]

_NOW: Final = "clock_timestamp()"
_OPEN: Final = "('running', 'suspended')"

_RELEASE: Final = f"""
UPDATE pikkuflow_run SET
  pass_id = NULL, pass_holder = NULL, pass_until = NULL, author = pass_id, updated_at = {_NOW},
  send_count = 0, next_send_at = NULL,
  passes_lost = passes_lost + %(broke_off)s,
  due_at = {_NOW} + %(due_seconds)s::float8 * interval '1 second'"""

_FORGOTTEN: Final = """
-- Rows that the pass inserted and that are not there: the server died before they were on disk.
forgotten AS (
  SELECT (count(*) < cardinality(%(expected)s::text[]))::int AS more FROM pikkuflow_step
  WHERE run_id = %(run_id)s AND name = ANY(%(expected)s::text[])
)
, closed AS ("""

_TELL_NEWS: Final = f"""
  , news = news + greatest(%(raised)s, forgotten.more)
  , news_at = CASE WHEN greatest(%(raised)s, forgotten.more) > 0 THEN coalesce(news_at, {_NOW}) ELSE news_at END"""

_MOVE: Final = """
  , status = %(status)s, code = %(code)s, error = %(error)s"""

_SETTLE: Final = f"""
  , news_at = NULL, output = %(output)s, finished_at = {_NOW},
  handover_at = CASE WHEN handover IS NOT NULL THEN {_NOW} END"""

_OWN: Final = """
WHERE id = %(run_id)s AND pass_id = %(pass_id)s"""

_RELEASED: Final = """
RETURNING id, news, seen, status, opened_at"""

_SENT: Final = f"""
-- Rows whose message left are scheduled, unless a worker has opened another attempt since this pass did.
, sent AS (
  UPDATE pikkuflow_step s SET
    status = 'scheduled', scheduled_at = {_NOW}, sent_at = {_NOW}, waiting_since = greatest(s.due_at, {_NOW})
  FROM closed
  WHERE s.run_id = closed.id AND s.name = ANY(%(sent)s) AND s.status = 'pending'
    AND (s.author = %(pass_id)s OR s.created_at <= closed.opened_at)
)"""

_FROM: Final = """
FROM forgotten"""

_CLOSE: Final = f"WITH {_FORGOTTEN}{_RELEASE}{_TELL_NEWS}{_FROM}{_OWN}{_RELEASED}){_SENT} SELECT * FROM closed"
"""Release the run, its status as it is."""

_PARK: Final = (
    f"WITH {_FORGOTTEN}{_RELEASE}{_TELL_NEWS}{_MOVE}{_FROM}{_OWN} AND status IN {_OPEN}{_RELEASED}){_SENT}"
    " SELECT * FROM closed"
)
"""Release a run that was not stopped, running or suspended."""

_ENDING: Final = f"{_RELEASE}{_MOVE}{_SETTLE}{_OWN} AND status IN {_OPEN} AND parent_run_id IS NULL"

_END: Final = f"{_ENDING}{_RELEASED}"
"""Settle a run that was not stopped and has no parent."""

_END_AFTER_OUTCOMES: Final = f"""{_ENDING} AND (
  SELECT count(*) FROM unnest(%(names)s::text[], %(statuses)s::text[]) AS o(name, status) JOIN pikkuflow_step s
    ON s.run_id = %(run_id)s AND s.name = o.name AND s.status = o.status AND s.author = %(pass_id)s
) = %(outcomes)s{_RELEASED}"""
"""The same if every outcome before it was written; the run's row is locked already."""

_END_WAITING: Final = f"""
-- Cancel rows that never started; fail rows with a past attempt, so that they stay candidates for undoing (design 3.7).
UPDATE pikkuflow_step s SET
  status = CASE WHEN s.attempt = 1 THEN 'cancelled' ELSE 'failed' END,
  error = (SELECT a.error FROM pikkuflow_attempt a WHERE a.run_id = s.run_id AND a.step = s.name AND a.attempt = s.attempt - 1),
  settled_at = {_NOW}, settled_no = (r.news + 1) * 4294967296, due_at = NULL, waiting_since = NULL, gate_at = NULL
FROM pikkuflow_run r
WHERE r.id = %(run_id)s AND r.author = %(pass_id)s AND r.pass_id IS NULL AND r.status = %(status)s
  AND s.run_id = r.id AND s.status IN ('pending', 'scheduled', 'suspended')
RETURNING s.name
"""


def close_pass(db: Statements, ref: PassRef, closing: Closing) -> Closed | None:
    """The last write of a pass. None: not closed, for a reason that this does not tell."""
    if closing.returned or closing.unwinds or closing.status is RunStatus.COMPENSATING:
        # Rare, and more than a pair of statements.
        return None
    values: dict[str, Any] = {
        "run_id": ref.run_id,
        "pass_id": ref.pass_id,
        "raised": int(closing.raise_news),
        "broke_off": int(closing.broke_off),
        "due_seconds": closing.due_seconds,
        "sent": list(closing.sent),
        "expected": list(closing.expected),
        "output": closing.output,
    }
    if closing.status is None:
        return _closed(db.first(_CLOSE, values))
    is_running = closing.status is RunStatus.RUNNING
    code, error = (None, None) if is_running else (closing.code, text_of(closing.error))
    values = {**values, "status": closing.status.value, "code": code, "error": error}
    if closing.status not in SETTLED_RUN:
        return _closed(db.first(_PARK, values))
    values = {**values, "due_seconds": None}
    if not all(map(is_plain, closing.outcomes)):
        return None
    if not closing.outcomes:
        ended, _ = db.pair(_END, _END_WAITING, values)
        return _closed(ended)
    writes = [(ref, write) for write in closing.outcomes]
    names = [write.step.name for write in closing.outcomes]
    statuses = [write.status.value for write in closing.outcomes]
    values |= {**parameters_of(writes), "names": names, "statuses": statuses, "outcomes": len(names)}
    _, found, _ = db.together((statement_of(writes), _END_AFTER_OUTCOMES, _END_WAITING), values)
    return _closed(found[0] if found else None)


def _closed(row: Mapping[str, Any] | None) -> Closed | None:
    if row is None:
        return None
    status = RunStatus(row["status"])
    return Closed(wake=row["news"] > row["seen"] and status not in SETTLED_RUN, status=status)
