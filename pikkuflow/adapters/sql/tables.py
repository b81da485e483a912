"""The tables (design 6), as this code expects them; ``migrations/`` makes them.

``run.opened_at`` is when the current pass opened, and ``step.created_at`` when the current attempt came to be.

Four columns are there for sweeps and listings, and are NULL whenever those have nothing to find, so that a plain index on each of them is
as small as a partial one on every database:

- ``run.news_at``: since when the run has news that no pass has seen;
- ``step.waiting_since``: since when a dispatched row could have been picked up (its insert, its due time, or its message being sent);
- ``run.handover_at``: when a settled run's outcome is to be handed on: at once, later when that failed;
- ``step.gate_at``: since when a gate (a suspension, an approval, a signal) waits for the outside.

For the same reason ``due_at`` is cleared when a row is claimed or settled, and ``lease_until`` when its attempt ends.

There are no foreign keys: every write of a step locks its run's row first, which gives what a foreign key would check, without its price.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, MetaData, String, Table, text

from pikkuflow.adapters.sql.columns import Key, Payload, Utc

__all__ = [
    "SCHEMA_REVISION",
    "VERSION_TABLE",
    "attempt",
    "audit",
    "decision",
    "fan",
    "lease",
    "metadata",
    "run",
    "signal",
    "state",
    "step",
    "sweep",
    "version",
]

SCHEMA_REVISION: Final = "0005"
"""The newest migration. Revisions are numbers of four digits, so that older and newer can be told by comparing texts."""

VERSION_TABLE: Final = "pikkuflow_alembic_version"

metadata = MetaData()

_MYSQL: Final[dict[str, Any]] = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}


def _index(name: str, *columns: str, where: str | None = None) -> Index:
    """An index; ``where`` makes it partial on the databases that can do that."""
    condition = None if where is None else text(where)
    return Index(f"ix_pikkuflow_{name}", *columns, postgresql_where=condition, sqlite_where=condition)


def _status() -> String:
    return String(24)


run = Table(
    "pikkuflow_run",
    metadata,
    Column("id", Key(), primary_key=True),
    Column("workflow", Key(), nullable=False),
    Column("version", Key(), nullable=False),
    Column("status", _status(), nullable=False),
    Column("inline", Boolean, nullable=False),
    Column("input", Payload(), nullable=False),
    Column("output", Payload()),
    Column("error", Payload()),
    Column("code", String(64)),
    Column("owner", Key()),
    Column("wire", Payload(), nullable=False),
    Column("planned_steps", Payload()),
    Column("deterministic", Boolean, nullable=False),
    Column("news", Integer, nullable=False),
    Column("seen", Integer, nullable=False),
    Column("news_at", Utc),
    Column("pass_id", Key()),
    Column("pass_holder", Key()),
    Column("pass_until", Utc),
    Column("opened_at", Utc),
    Column("lost", Boolean, nullable=False),
    Column("passes_lost", Integer, nullable=False),
    Column("starts_at", Utc),
    Column("due_at", Utc),
    Column("send_count", Integer, nullable=False),
    Column("next_send_at", Utc),
    Column("author", Key()),
    Column("parent_run_id", Key()),
    Column("parent_step", Key()),
    Column("handover", Payload()),
    Column("handover_at", Utc),
    Column("delivered_at", Utc),
    Column("created_at", Utc, nullable=False),
    Column("updated_at", Utc, nullable=False),
    Column("finished_at", Utc),
    Column("timeout_seconds", Double),
    Column("deadline_at", Utc),
    # Listings, newest first, each by one filter.
    _index("run_created", "created_at", "id"),
    _index("run_workflow", "workflow", "created_at", "id"),
    _index("run_status", "status", "created_at", "id"),
    _index("run_owner", "owner", "created_at", "id", where="owner IS NOT NULL"),
    _index("run_code", "code", "created_at", "id", where="code IS NOT NULL"),
    # Sweeps.
    _index("run_news", "news_at", "id", where="news_at IS NOT NULL"),
    _index("run_pass", "pass_until", "id", where="pass_until IS NOT NULL"),
    _index("run_due", "due_at", "id", where="due_at IS NOT NULL"),
    _index("run_idle", "status", "updated_at", "id", where="pass_id IS NULL AND due_at IS NULL AND news_at IS NULL"),
    _index("run_deadline", "status", "deadline_at", "id", where="deadline_at IS NOT NULL"),
    _index("run_handover", "handover_at", "id", where="handover_at IS NOT NULL"),
    # What a process holds.
    _index("run_holder", "pass_holder", where="pass_holder IS NOT NULL"),
    _index("run_parent", "parent_run_id", where="parent_run_id IS NOT NULL"),
    **_MYSQL,
)

step = Table(
    "pikkuflow_step",
    metadata,
    Column("run_id", Key(), primary_key=True),
    Column("name", Key(), primary_key=True),
    Column("seq", Integer, nullable=False),
    Column("kind", _status(), nullable=False),
    Column("task", Key()),
    Column("args", Payload()),
    Column("status", _status(), nullable=False),
    Column("result", Payload()),
    Column("error", Payload()),
    Column("attempt", Integer, nullable=False),
    Column("retries", Integer, nullable=False),
    Column("retry_delay", String(64), nullable=False),
    Column("place", Payload(), nullable=False),
    Column("queue", Key()),
    Column("options", Payload(), nullable=False),
    Column("claim_id", Key()),
    Column("claim_holder", Key()),
    Column("lease_seconds", Double, nullable=False),
    Column("lease_until", Utc),
    Column("due_at", Utc),
    Column("expires_at", Utc),
    Column("waiting_since", Utc),
    Column("sent_at", Utc),
    Column("send_count", Integer, nullable=False),
    Column("next_send_at", Utc),
    Column("override", Payload()),
    Column("child_run_id", Key()),
    Column("fan_id", Key()),
    Column("from_step", Key()),
    Column("group", Key(), quote=True),
    Column("author", Key()),
    Column("created_at", Utc, nullable=False),
    Column("running_at", Utc),
    Column("scheduled_at", Utc),
    Column("settled_at", Utc),
    Column("gate_at", Utc),
    Column("undo_task", Key()),
    Column("begun_no", BigInteger),
    Column("settled_no", BigInteger),
    Column("details", Payload()),
    Column("timeout_seconds", Double),
    Column("heartbeat_seconds", Double),
    # Sweeps.
    _index("step_waiting", "waiting_since", "run_id", "name", where="waiting_since IS NOT NULL"),
    _index("step_lease", "lease_until", "run_id", "name", where="lease_until IS NOT NULL"),
    _index("step_due", "due_at", "run_id", "name", where="due_at IS NOT NULL"),
    # What waits for people.
    _index("step_gate", "gate_at", "run_id", "name", where="gate_at IS NOT NULL"),
    # What a process holds.
    _index("step_holder", "claim_holder", where="claim_holder IS NOT NULL"),
    **_MYSQL,
)

attempt = Table(
    "pikkuflow_attempt",
    metadata,
    Column("run_id", Key(), primary_key=True),
    Column("step", Key(), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("status", _status(), nullable=False),
    Column("error", Payload()),
    Column("result", Payload()),
    Column("place", Payload(), nullable=False),
    Column("author", Key()),
    Column("created_at", Utc, nullable=False),
    Column("running_at", Utc),
    Column("scheduled_at", Utc),
    Column("settled_at", Utc),
    **_MYSQL,
)

fan = Table(
    "pikkuflow_fan",
    metadata,
    Column("run_id", Key(), primary_key=True),
    Column("fan_id", Key(), primary_key=True),
    Column("open", Integer, nullable=False),
    **_MYSQL,
)

state = Table(
    "pikkuflow_state",
    metadata,
    Column("run_id", Key(), primary_key=True),
    Column("key", Key(), primary_key=True),
    Column("value", Payload(), nullable=False),
    **_MYSQL,
)

signal = Table(
    "pikkuflow_signal",
    metadata,
    Column("run_id", Key(), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("name", Key(), nullable=False),
    Column("payload", Payload(), nullable=False),
    Column("idempotency_key", Key()),
    Column("sender", Key()),
    Column("sent_at", Utc, nullable=False),
    Column("taken_by", Key()),
    Column("author", Key(), nullable=False),
    # First in, first out by name.
    _index("signal_name", "run_id", "name", "number"),
    **_MYSQL,
)

decision = Table(
    "pikkuflow_decision",
    metadata,
    Column("run_id", Key(), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("gate", Key(), nullable=False),
    Column("data", Payload(), nullable=False),
    Column("decider", Key()),
    Column("scopes", Payload(), nullable=False),
    Column("decided_at", Utc, nullable=False),
    Column("judged_at", Utc),
    Column("refusal", Payload()),
    Column("author", Key(), nullable=False),
    **_MYSQL,
)

audit = Table(
    "pikkuflow_audit",
    metadata,
    Column("id", Key(), primary_key=True),
    Column("at", Utc, nullable=False),
    Column("type", String(64), nullable=False),
    Column("outcome", _status(), nullable=False),
    Column("run_id", Key(), nullable=False),
    Column("workflow", Key(), nullable=False),
    Column("reason", Key(), nullable=False),
    Column("decider", Key()),
    Column("scopes", Payload(), nullable=False),
    Column("detail", Payload()),
    _index("audit_run", "run_id", "at", "id"),
    _index("audit_at", "at", "id"),
    **_MYSQL,
)
"""Who decided what; it outlives the runs it tells of."""

lease = Table(
    "pikkuflow_lease",
    metadata,
    Column("key", Key(), primary_key=True),
    Column("holder", Key(), nullable=False),
    Column("token", Integer, nullable=False),
    Column("expires_at", Utc, nullable=False),
    # Forgetting.
    _index("lease_expires", "expires_at"),
    **_MYSQL,
)

sweep = Table(
    "pikkuflow_sweep",
    metadata,
    Column("kind", Key(), primary_key=True),
    Column("last_at", Utc, nullable=False),
    **_MYSQL,
)

version = Table(
    "pikkuflow_version",
    metadata,
    Column("workflow", Key(), primary_key=True),
    Column("version", Key(), primary_key=True),
    Column("kind", _status(), nullable=False),
    Column("definition", Payload(), nullable=False),
    Column("created_at", Utc, nullable=False),
    **_MYSQL,
)
"""It outlives the runs that were started with it."""
