"""Gates: signals, decisions, the audit, and since when a step waits for the outside."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_MYSQL: dict[str, Any] = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}


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
    op.add_column("pikkuflow_step", sa.Column("gate_at", _utc()))
    _index("pikkuflow_step", "step_gate", "gate_at", "run_id", "name", where="gate_at IS NOT NULL")
    _create_signal()
    _create_decision()
    _create_audit()


def downgrade() -> None:
    for table in ("pikkuflow_audit", "pikkuflow_decision", "pikkuflow_signal"):
        op.drop_table(table)
    op.drop_index("ix_pikkuflow_step_gate", table_name="pikkuflow_step")
    op.drop_column("pikkuflow_step", "gate_at")


def _create_signal() -> None:
    op.create_table(
        "pikkuflow_signal",
        sa.Column("run_id", _key(), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", _key(), nullable=False),
        sa.Column("payload", _payload(), nullable=False),
        sa.Column("idempotency_key", _key()),
        sa.Column("sender", _key()),
        sa.Column("sent_at", _utc(), nullable=False),
        sa.Column("taken_by", _key()),
        sa.Column("author", _key(), nullable=False),
        **_MYSQL,
    )
    _index("pikkuflow_signal", "signal_name", "run_id", "name", "number")


def _create_decision() -> None:
    op.create_table(
        "pikkuflow_decision",
        sa.Column("run_id", _key(), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("gate", _key(), nullable=False),
        sa.Column("data", _payload(), nullable=False),
        sa.Column("decider", _key()),
        sa.Column("scopes", _payload(), nullable=False),
        sa.Column("decided_at", _utc(), nullable=False),
        sa.Column("judged_at", _utc()),
        sa.Column("refusal", _payload()),
        sa.Column("author", _key(), nullable=False),
        **_MYSQL,
    )


def _create_audit() -> None:
    op.create_table(
        "pikkuflow_audit",
        sa.Column("id", _key(), primary_key=True),
        sa.Column("at", _utc(), nullable=False),
        sa.Column("type", sa.String(64), nullable=False),
        sa.Column("outcome", sa.String(24), nullable=False),
        sa.Column("run_id", _key(), nullable=False),
        sa.Column("workflow", _key(), nullable=False),
        sa.Column("reason", _key(), nullable=False),
        sa.Column("decider", _key()),
        sa.Column("scopes", _payload(), nullable=False),
        sa.Column("detail", _payload()),
        **_MYSQL,
    )
    _index("pikkuflow_audit", "audit_run", "run_id", "at", "id")
    _index("pikkuflow_audit", "audit_at", "at", "id")
