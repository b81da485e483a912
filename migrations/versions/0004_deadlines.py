"""Deadlines: how long a whole run may take."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def _utc() -> Any:
    exact = mysql.DATETIME(fsp=6)
    return sa.DateTime(timezone=True).with_variant(exact, "mysql").with_variant(sa.String(32), "sqlite")


def upgrade() -> None:
    op.add_column("pikkuflow_run", sa.Column("timeout_seconds", sa.Double))
    op.add_column("pikkuflow_run", sa.Column("deadline_at", _utc()))
    condition = sa.text("deadline_at IS NOT NULL")
    op.create_index(
        "ix_pikkuflow_run_deadline",
        "pikkuflow_run",
        ["status", "deadline_at", "id"],
        postgresql_where=condition,
        sqlite_where=condition,
    )


def downgrade() -> None:
    op.drop_index("ix_pikkuflow_run_deadline", "pikkuflow_run")
    for name in ("deadline_at", "timeout_seconds"):
        op.drop_column("pikkuflow_run", name)
