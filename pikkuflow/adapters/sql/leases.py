"""The lease service in a table, for deployments without Redis (spec 6.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from sqlalchemy import case, delete, select, update

from pikkuflow.adapters.sql.database import Database, Transaction
from pikkuflow.adapters.sql.rows import ahead
from pikkuflow.adapters.sql.tables import lease as table
from pikkuflow.errors import StoreUnavailable
from pikkuflow.ports import Lease

__all__ = ["SqlLeases"]

T = TypeVar("T")

_FORGET: Final = timedelta(days=1)
_LONG_AGO: Final = datetime(1970, 1, 2, tzinfo=UTC)


class SqlLeases:
    """``Leases`` over one table. Expiry is judged by the database's clock.

    Parameters
    ----------
    database:
        Its URL, or the ``Database`` of a store, whose connections are then shared.
    patience_seconds:
        How long a call waits for a database that is away before it raises ``ConnectionError``.
    """

    def __init__(self, database: str | Database, *, patience_seconds: float = 1.0) -> None:
        self._database = Database(database, pool_size=1) if isinstance(database, str) else database
        self._patience_seconds = patience_seconds

    def acquire(self, key: str, holder: str, ttl_seconds: float) -> Lease | None:
        """Take a free or lapsed key, or extend one's own (same token). None: someone else holds it."""
        return self._call(lambda tx: _acquire(tx, key, holder, ttl_seconds))

    def refresh(self, lease: Lease, ttl_seconds: float) -> Lease | None:
        """Extend by compare. None: the lease is no longer this one."""
        return self._call(lambda tx: _refresh(tx, lease, ttl_seconds))

    def release(self, lease: Lease) -> bool:
        """Free by compare; the row stays with its token. False: it was not this lease's any more."""
        return self._call(lambda tx: _release(tx, lease))

    def get(self, key: str) -> Lease | None:
        """The live lease, or None."""
        return self._call(lambda tx: _live(tx, key))

    def get_all(self, keys: Sequence[str]) -> tuple[Lease | None, ...]:
        """``get`` of each key, in order, in one statement."""
        return self._call(lambda tx: _all_live(tx, keys)) if keys else ()

    def refresh_all(self, leases: Sequence[Lease], ttl_seconds: float) -> tuple[Lease | None, ...]:
        """``refresh`` of each lease, in order, in one transaction."""
        return self._call(lambda tx: _refresh_all(tx, leases, ttl_seconds)) if leases else ()

    def expire(self, key: str, holder_prefix: str) -> bool:
        """Free the key if its holder is the prefix or begins with it as whole ``:`` parts. False: it does not."""
        return self._call(lambda tx: _expire(tx, key, holder_prefix))

    def forget(self, limit: int) -> int:
        """Drop at most ``limit`` keys that nobody held for a day: every run leaves a row behind."""
        return self._call(lambda tx: _forget(tx, limit))

    def close(self) -> None:
        """Give back connections."""
        self._database.close()

    def _call(self, act: Callable[[Transaction], T]) -> T:
        try:
            return self._database.write(act, patience_seconds=self._patience_seconds)
        except StoreUnavailable as error:
            raise ConnectionError(str(error)) from None


def _acquire(tx: Transaction, key: str, holder: str, ttl_seconds: float) -> Lease | None:
    """One guarded update of a row that is inserted lapsed when it is not there."""
    if _locked(tx, key) is None:
        tx.add(table, {"key": key, "holder": holder, "token": 0, "expires_at": _LONG_AGO})
        _locked(tx, key)
    now = tx.now()
    is_live = table.c.expires_at > now
    token = case((is_live, table.c.token), else_=table.c.token + 1)
    # In this order: MySQL evaluates each assignment after the ones before it.
    taken = (
        update(table)
        .where(table.c.key == key, ~is_live | (table.c.holder == holder))
        .ordered_values((table.c.token, token), (table.c.holder, holder), (table.c.expires_at, ahead(now, ttl_seconds)))
    )
    return _live(tx, key) if tx.do(taken).rowcount else None


def _refresh(tx: Transaction, held: Lease, ttl_seconds: float) -> Lease | None:
    row = _locked(tx, held.key)
    if not _is(row, held, tx.now()):
        return None
    tx.do(update(table).where(table.c.key == held.key).values(expires_at=ahead(tx.now(), ttl_seconds)))
    return _live(tx, held.key)


def _all_live(tx: Transaction, keys: Sequence[str]) -> tuple[Lease | None, ...]:
    now = tx.now()
    rows = tx.all(select(table).where(table.c.key.in_(sorted(set(keys))), table.c.expires_at > now))
    live = {row["key"]: _lease_of(row) for row in rows}
    return tuple(live.get(key) for key in keys)


def _refresh_all(tx: Transaction, leases: Sequence[Lease], ttl_seconds: float) -> tuple[Lease | None, ...]:
    """In the order of the keys, so that two processes never wait for each other."""
    done = {held.key: _refresh(tx, held, ttl_seconds) for held in sorted(leases, key=lambda held: held.key)}
    return tuple(done[held.key] for held in leases)


def _release(tx: Transaction, held: Lease) -> bool:
    row = _locked(tx, held.key)
    return _is(row, held, tx.now()) and _free(tx, held.key)


def _expire(tx: Transaction, key: str, holder_prefix: str) -> bool:
    row = _locked(tx, key)
    is_dead = row is not None and row["expires_at"] > tx.now() and _is_of(row["holder"], holder_prefix)
    return is_dead and _free(tx, key)


def _forget(tx: Transaction, limit: int) -> int:
    is_old = table.c.expires_at < tx.now() - _FORGET
    keys = [row["key"] for row in tx.all(select(table.c.key).where(is_old).order_by(table.c.expires_at).limit(limit))]
    # Asked again: a key may have been taken in between.
    return int(tx.do(delete(table).where(table.c.key.in_(keys), is_old)).rowcount) if keys else 0


def _is_of(holder: str, prefix: str) -> bool:
    """``node:12`` and ``node:`` are of ``node:12``; ``node:12`` is not of ``node:123``."""
    return f"{holder}:".startswith(f"{prefix.removesuffix(':')}:")


def _locked(tx: Transaction, key: str) -> Mapping[str, Any] | None:
    rows = tx.locked(select(table).where(table.c.key == key))
    return rows[0] if rows else None


def _is(row: Mapping[str, Any] | None, held: Lease, now: datetime) -> bool:
    """The row is live and still this lease's."""
    if row is None or row["expires_at"] <= now:
        return False
    return bool(row["holder"] == held.holder and row["token"] == held.token)


def _free(tx: Transaction, key: str) -> bool:
    tx.do(update(table).where(table.c.key == key).values(expires_at=_past(tx.now())))
    return True


def _past(now: datetime) -> datetime:
    return now - timedelta(milliseconds=1)


def _live(tx: Transaction, key: str) -> Lease | None:
    row = tx.first(select(table).where(table.c.key == key))
    if row is None or row["expires_at"] <= tx.now():
        return None
    return _lease_of(row)


def _lease_of(row: Mapping[str, Any]) -> Lease:
    return Lease(key=row["key"], holder=row["holder"], token=row["token"], expires_at=row["expires_at"].timestamp())
