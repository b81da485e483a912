"""Column types that mean the same on PostgreSQL, MySQL, MariaDB and SQLite."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import DateTime, Dialect, String, Text
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeDecorator, TypeEngine

from pikkuflow.domain.ids import KEY_LENGTH

__all__ = ["Key", "Payload", "Utc", "text_of_time", "time_of_text"]

_SQLITE_TIME: Final = "%Y-%m-%dT%H:%M:%S.%f"


def text_of_time(moment: datetime) -> str:
    """A UTC text of fixed width, so that texts sort as their moments do."""
    return moment.astimezone(UTC).strftime(_SQLITE_TIME)


def time_of_text(text: str) -> datetime:
    """Read ``text_of_time``."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


class Utc(TypeDecorator[datetime]):
    """An aware moment: timestamptz on PostgreSQL, DATETIME(6) in UTC on MySQL, sortable text on SQLite."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The type in that database."""
        if dialect.name == "sqlite":
            return dialect.type_descriptor(String(32))
        if dialect.name in {"mysql", "mariadb"}:
            return dialect.type_descriptor(mysql.DATETIME(fsp=6))
        return dialect.type_descriptor(DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """Send UTC."""
        if value is None:
            return None
        if dialect.name == "sqlite":
            return text_of_time(value)
        if dialect.name in {"mysql", "mariadb"}:
            return value.astimezone(UTC).replace(tzinfo=None)
        return value

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        """Give aware UTC."""
        if value is None:
            return None
        if dialect.name == "sqlite":
            return time_of_text(value)
        if value.tzinfo is None:
            return value.replace(tzinfo=UTC)  # type: ignore[no-any-return]
        return value.astimezone(UTC)  # type: ignore[no-any-return]


def Key() -> String:  # noqa: N802 - it stands where a type stands
    """An id or a name: compared and sorted by code point everywhere, so that a lock order made in Python is the database's too."""
    return (
        String(KEY_LENGTH)
        .with_variant(Text(collation="C"), "postgresql")
        .with_variant(mysql.VARCHAR(KEY_LENGTH, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")
    )


def Payload() -> Text:  # noqa: N802 - as Key
    """A text of any length: JSON as the codec made it."""
    return Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")
