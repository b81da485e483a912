"""Undoing: which task undoes a step, the numbers that order what began and settled, what an attempt says, how long it may take."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def _key() -> Any:
    exact = mysql.VARCHAR(255, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(255).with_variant(sa.Text(collation="C"), "postgresql").with_variant(exact, "mysql")


def _payload() -> Any:
    return sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql")


def upgrade() -> None:
    op.add_column("pikkuflow_step", sa.Column("undo_task", _key()))
    op.add_column("pikkuflow_step", sa.Column("begun_no", sa.BigInteger))
    op.add_column("pikkuflow_step", sa.Column("settled_no", sa.BigInteger))
    op.add_column("pikkuflow_step", sa.Column("details", _payload()))
    op.add_column("pikkuflow_step", sa.Column("timeout_seconds", sa.Double))
    op.add_column("pikkuflow_step", sa.Column("heartbeat_seconds", sa.Double))


def downgrade() -> None:
    for name in ("heartbeat_seconds", "timeout_seconds", "details", "settled_no", "begun_no", "undo_task"):
        op.drop_column("pikkuflow_step", name)
