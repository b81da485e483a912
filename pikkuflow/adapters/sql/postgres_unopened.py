"""Passes on PostgreSQL that are previewed and never opened: a read, and one statement that does all of the pass.

What ``postgres_passes`` says of its statements holds here too. The read takes no lock: the statement that writes judges again.
"""

from __future__ import annotations

import json
from typing import Final

from pikkuflow.adapters.sql.postgres_passes import INSERT_STEPS, LIGHTLY, inserted_values
from pikkuflow.adapters.sql.rows import RUN_COLUMNS, STEP_COLUMNS, step_of
from pikkuflow.adapters.sql.statements import Statements
from pikkuflow.adapters.sql.unopened import previewed
from pikkuflow.domain.act import Advance, PassRef
from pikkuflow.domain.history import History
from pikkuflow.domain.ids import PassId, RunId

__all__ = ["advance", "preview_pass"]

_NOW: Final = "clock_timestamp()"
_FREE: Final = "status = 'running' AND pass_id IS NULL AND seen < news"


def _names(columns: tuple[str, ...]) -> str:
    return ", ".join(f'"{name}"' for name in columns)


_READ_RUN: Final = f"""
SELECT {_names(RUN_COLUMNS)}, {_NOW} AS read_at FROM pikkuflow_run
WHERE id = %(run_id)s AND {_FREE} AND (starts_at IS NULL OR starts_at <= {_NOW})
"""

_READ_STEPS: Final = f"""
-- With a snapshot of its own: what came since the run was read is news to it.
SELECT {_names(STEP_COLUMNS)}, {_NOW} AS read_at FROM pikkuflow_step WHERE run_id = %(run_id)s ORDER BY seq, name
"""

_ADVANCE: Final = f"""
-- What an opening and a closing set, if the run still is as it was previewed.
WITH held AS (
  UPDATE pikkuflow_run SET
    seen = news, news_at = NULL, author = %(pass_id)s, updated_at = {_NOW}, send_count = 0, next_send_at = NULL,
    due_at = {_NOW} + %(due_seconds)s::float8 * interval '1 second'
  WHERE id = %(run_id)s AND {_FREE} AND news = %(news)s
  RETURNING id, status
)
{INSERT_STEPS}SELECT id, {LIGHTLY} FROM held
"""


def preview_pass(db: Statements, run_id: RunId, pass_id: PassId) -> History | None:
    """What an opening would read, with nothing written."""
    row, steps = db.pair(_READ_RUN, _READ_STEPS, {"run_id": run_id})
    if row is None:
        return None
    return previewed(row, pass_id, row["read_at"], tuple([step_of(one, one["read_at"]) for one in steps]))


def advance(db: Statements, ref: PassRef, advance_: Advance) -> bool:
    """Open, insert and close. False: the run has moved, or this very act was done before."""
    rows = [inserted_values(new, is_sent=new.name in advance_.sent) for new in advance_.steps]
    asked = {
        "run_id": ref.run_id,
        "pass_id": ref.pass_id,
        "news": advance_.news,
        "due_seconds": advance_.due_seconds,
        "rows": json.dumps(rows),
        "joined": True,
    }
    return db.first(_ADVANCE, asked) is not None
