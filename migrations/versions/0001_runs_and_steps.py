"""Runs, steps, attempts, fans, state, leases and sweeps."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_MYSQL: dict[str, Any] = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}
_TABLES = (
    "pikkuflow_run",
    "pikkuflow_step",
    "pikkuflow_attempt",
    "pikkuflow_fan",
    "pikkuflow_state",
    "pikkuflow_lease",
    "pikkuflow_sweep",
)


def _key() -> Any:
    exact = mysql.VARCHAR(255, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(255).with_variant(sa.Text(collation="C"), "postgresql").with_variant(exact, "mysql")


def _payload() -> Any:
    return sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql")


def _utc() -> Any:
    exact = mysql.DATETIME(fsp=6)
    return sa.DateTime(timezone=True).with_variant(exact, "mysql").with_variant(sa.String(32), "sqlite")


def _index(table: str, name: str, *columns: str, where: str | None = None) -> None:
    condition = None if where is None else sa.text(where)
    op.create_index(f"ix_pikkuflow_{name}", table, list(columns), postgresql_where=condition, sqlite_where=condition)


def upgrade() -> None:
    _create_run()
    _index_run()
    _create_step()
    _create_attempt()
    _create_fan()
    _create_state()
    _create_lease()
    _create_sweep()


def downgrade() -> None:
    for table in reversed(_TABLES):
        op.drop_table(table)


def _create_run() -> None:
    op.create_table(
        "pikkuflow_run",
        sa.Column("id", _key(), primary_key=True),
        sa.Column("workflow", _key(), nullable=False),
        sa.Column("version", _key(), nullable=False),
        sa.Column("status", sa.String(24), nullable=False),
        sa.Column("inline", sa.Boolean, nullable=False),
        sa.Column("input", _payload(), nullable=False),
        sa.Column("output", _payload()),
        sa.Column("error", _payload()),
        sa.Column("code", sa.String(64)),
        sa.Column("owner", _key()),
        sa.Column("wire", _payload(), nullable=False),
        sa.Column("planned_steps", _payload()),
        sa.Column("deterministic", sa.Boolean, nullable=False),
        sa.Column("news", sa.Integer, nullable=False),
        sa.Column("seen", sa.Integer, nullable=False),
        sa.Column("news_at", _utc()),
        sa.Column("pass_id", _key()),
        sa.Column("pass_holder", _key()),
        sa.Column("pass_until", _utc()),
        sa.Column("opened_at", _utc()),
        sa.Column("lost", sa.Boolean, nullable=False),
        sa.Column("passes_lost", sa.Integer, nullable=False),
        sa.Column("starts_at", _utc()),
        sa.Column("due_at", _utc()),
        sa.Column("send_count", sa.Integer, nullable=False),
        sa.Column("next_send_at", _utc()),
        sa.Column("author", _key()),
        sa.Column("parent_run_id", _key()),
        sa.Column("parent_step", _key()),
        sa.Column("handover", _payload()),
        sa.Column("handover_at", _utc()),
        sa.Column("delivered_at", _utc()),
        sa.Column("created_at", _utc(), nullable=False),
        sa.Column("updated_at", _utc(), nullable=False),
        sa.Column("finished_at", _utc()),
        **_MYSQL,
    )


def _index_run() -> None:
    _index("pikkuflow_run", "run_created", "created_at", "id")
    _index("pikkuflow_run", "run_workflow", "workflow", "created_at", "id")
    _index("pikkuflow_run", "run_status", "status", "created_at", "id")
    _index("pikkuflow_run", "run_owner", "owner", "created_at", "id", where="owner IS NOT NULL")
    _index("pikkuflow_run", "run_code", "code", "created_at", "id", where="code IS NOT NULL")
    _index("pikkuflow_run", "run_news", "news_at", "id", where="news_at IS NOT NULL")
    _index("pikkuflow_run", "run_pass", "pass_until", "id", where="pass_until IS NOT NULL")
    _index("pikkuflow_run", "run_due", "due_at", "id", where="due_at IS NOT NULL")
    _index(
        "pikkuflow_run",
        "run_idle",
        "status",
        "updated_at",
        "id",
        where="pass_id IS NULL AND due_at IS NULL AND news_at IS NULL",
    )
    _index("pikkuflow_run", "run_handover", "handover_at", "id", where="handover_at IS NOT NULL")
    _index("pikkuflow_run", "run_holder", "pass_holder", where="pass_holder IS NOT NULL")
    _index("pikkuflow_run", "run_parent", "parent_run_id", where="parent_run_id IS NOT NULL")


def _create_step() -> None:
    op.create_table(
        "pikkuflow_step",
        sa.Column("run_id", _key(), primary_key=True),
        sa.Column("name", _key(), primary_key=True),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("kind", sa.String(24), nullable=False),
        sa.Column("task", _key()),
        sa.Column("args", _payload()),
        sa.Column("status", sa.String(24), nullable=False),
        sa.Column("result", _payload()),
        sa.Column("error", _payload()),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("retries", sa.Integer, nullable=False),
        sa.Column("retry_delay", sa.String(64), nullable=False),
        sa.Column("place", _payload(), nullable=False),
        sa.Column("queue", _key()),
        sa.Column("options", _payload(), nullable=False),
        sa.Column("claim_id", _key()),
        sa.Column("claim_holder", _key()),
        sa.Column("lease_seconds", sa.Double, nullable=False),
        sa.Column("lease_until", _utc()),
        sa.Column("due_at", _utc()),
        sa.Column("expires_at", _utc()),
        sa.Column("waiting_since", _utc()),
        sa.Column("sent_at", _utc()),
        sa.Column("send_count", sa.Integer, nullable=False),
        sa.Column("next_send_at", _utc()),
        sa.Column("override", _payload()),
        sa.Column("child_run_id", _key()),
        sa.Column("fan_id", _key()),
        sa.Column("from_step", _key()),
        sa.Column("group", _key(), quote=True),
        sa.Column("author", _key()),
        sa.Column("created_at", _utc(), nullable=False),
        sa.Column("running_at", _utc()),
        sa.Column("scheduled_at", _utc()),
        sa.Column("settled_at", _utc()),
        **_MYSQL,
    )
    _index("pikkuflow_step", "step_waiting", "waiting_since", "run_id", "name", where="waiting_since IS NOT NULL")
    _index("pikkuflow_step", "step_lease", "lease_until", "run_id", "name", where="lease_until IS NOT NULL")
    _index("pikkuflow_step", "step_due", "due_at", "run_id", "name", where="due_at IS NOT NULL")
    _index("pikkuflow_step", "step_holder", "claim_holder", where="claim_holder IS NOT NULL")


def _create_attempt() -> None:
    op.create_table(
        "pikkuflow_attempt",
        sa.Column("run_id", _key(), primary_key=True),
        sa.Column("step", _key(), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("status", sa.String(24), nullable=False),
        sa.Column("error", _payload()),
        sa.Column("result", _payload()),
        sa.Column("place", _payload(), nullable=False),
        sa.Column("author", _key()),
        sa.Column("created_at", _utc(), nullable=False),
        sa.Column("running_at", _utc()),
        sa.Column("scheduled_at", _utc()),
        sa.Column("settled_at", _utc()),
        **_MYSQL,
    )


def _create_fan() -> None:
    op.create_table(
        "pikkuflow_fan",
        sa.Column("run_id", _key(), primary_key=True),
        sa.Column("fan_id", _key(), primary_key=True),
        sa.Column("open", sa.Integer, nullable=False),
        **_MYSQL,
    )


def _create_state() -> None:
    op.create_table(
        "pikkuflow_state",
        sa.Column("run_id", _key(), primary_key=True),
        sa.Column("key", _key(), primary_key=True),
        sa.Column("value", _payload(), nullable=False),
        **_MYSQL,
    )


def _create_lease() -> None:
    op.create_table(
        "pikkuflow_lease",
        sa.Column("key", _key(), primary_key=True),
        sa.Column("holder", _key(), nullable=False),
        sa.Column("token", sa.Integer, nullable=False),
        sa.Column("expires_at", _utc(), nullable=False),
        **_MYSQL,
    )
    _index("pikkuflow_lease", "lease_expires", "expires_at")


def _create_sweep() -> None:
    op.create_table(
        "pikkuflow_sweep",
        sa.Column("kind", _key(), primary_key=True),
        sa.Column("last_at", _utc(), nullable=False),
        **_MYSQL,
    )
