"""What a process holds: renewing it, and expiring it once the process is known to be dead (design 3.9).

Everyone who locks several rows does so in the order of their keys. Passes and claims are two transactions: runs are locked before steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, select, update

from pikkuflow.adapters.sql.database import Database, Transaction
from pikkuflow.adapters.sql.rows import ahead, message_of, ref_of
from pikkuflow.adapters.sql.tables import run, step
from pikkuflow.domain.act import Expired, PassRef, Renewed
from pikkuflow.domain.ids import Holder
from pikkuflow.domain.status import StepStatus

__all__ = ["expire_holder", "expire_node", "renew_holders"]

Row = Mapping[str, Any]


def renew_holders(database: Database, holders: Sequence[Holder], run_lease_seconds: float) -> Renewed:
    """Extend what live processes hold, also what lapsed meanwhile but was not taken."""
    if not holders:
        return Renewed()
    passes = database.write(lambda tx: _renew_passes(tx, holders, run_lease_seconds))
    claims = database.write(lambda tx: _renew_claims(tx, holders))
    return Renewed(passes=_refs(passes), claims=tuple((row["run_id"], row["name"]) for row in claims))


def _renew_passes(tx: Transaction, holders: Sequence[Holder], run_lease_seconds: float) -> list[Row]:
    mine = run.c.pass_holder.in_(holders)
    rows = _locked_passes(tx, mine)
    if rows:
        tx.do(update(run).where(mine).values(pass_until=ahead(tx.now(), run_lease_seconds)))
    return rows


def _renew_claims(tx: Transaction, holders: Sequence[Holder]) -> list[Row]:
    mine = step.c.claim_holder.in_(holders) & (step.c.status == StepStatus.RUNNING.value)
    rows = _locked_claims(tx, mine)
    for seconds in sorted({row["lease_seconds"] for row in rows}):
        same = update(step).where(mine, step.c.lease_seconds == seconds)
        tx.do(same.values(lease_until=ahead(tx.now(), seconds)))
    return rows


def expire_holder(database: Database, holder: Holder) -> Expired:
    """Expire at once what one process held."""
    return _expire(database, run.c.pass_holder == holder, step.c.claim_holder == holder)


def expire_node(database: Database, node: str) -> Expired:
    """Expire at once what every process of a node held."""
    return _expire(database, _begins_with(run.c.pass_holder, f"{node}:"), _begins_with(step.c.claim_holder, f"{node}:"))


def _begins_with(column: Column[Any], prefix: str) -> ColumnElement[bool]:
    """A range, which an index can scan: from the prefix up to the first text that does not begin with it."""
    return (column >= prefix) & (column < prefix[:-1] + chr(ord(prefix[-1]) + 1))


def _expire(database: Database, of_pass: ColumnElement[bool], of_claim: ColumnElement[bool]) -> Expired:
    passes = database.write(lambda tx: _expire_passes(tx, of_pass))
    claims = database.write(lambda tx: _expire_claims(tx, of_claim))
    return Expired(
        runs=tuple(ref_of(row) for row in passes),
        steps=tuple(message_of(row) for row in claims),
        passes=_refs(passes),
    )


def _expire_passes(tx: Transaction, of_pass: ColumnElement[bool]) -> list[Row]:
    rows = _locked_passes(tx, of_pass)
    if rows:
        now = tx.now()
        tx.do(update(run).where(of_pass, run.c.pass_until > now).values(pass_until=now))
    return rows


def _expire_claims(tx: Transaction, of_claim: ColumnElement[bool]) -> list[Row]:
    mine = of_claim & (step.c.status == StepStatus.RUNNING.value)
    rows = _locked_claims(tx, mine)
    if rows:
        now = tx.now()
        tx.do(update(step).where(mine, step.c.lease_until > now).values(lease_until=now))
    return rows


def _locked_passes(tx: Transaction, mine: ColumnElement[bool]) -> list[Row]:
    columns = (run.c.id, run.c.workflow, run.c.pass_id)
    return list(tx.locked(select(*columns).where(mine).order_by(run.c.id)))


def _locked_claims(tx: Transaction, mine: ColumnElement[bool]) -> list[Row]:
    columns = (
        step.c.run_id,
        step.c.name,
        step.c.attempt,
        step.c.task,
        step.c.queue,
        step.c.options,
        step.c.override,
        step.c.lease_seconds,
    )
    return list(tx.locked(select(*columns).where(mine).order_by(step.c.run_id, step.c.name)))


def _refs(passes: Sequence[Row]) -> tuple[PassRef, ...]:
    return tuple(PassRef(run_id=row["id"], pass_id=row["pass_id"]) for row in passes if row["pass_id"] is not None)
