"""Versions of workflows: graphs whole, functions described."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0005"
down_revision = "0004"
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


def upgrade() -> None:
    op.create_table(
        "pikkuflow_version",
        sa.Column("workflow", _key(), primary_key=True),
        sa.Column("version", _key(), primary_key=True),
        sa.Column("kind", sa.String(24), nullable=False),
        sa.Column("definition", _payload(), nullable=False),
        sa.Column("created_at", _utc(), nullable=False),
        **_MYSQL,
    )


def downgrade() -> None:
    op.drop_table("pikkuflow_version")
