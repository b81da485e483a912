"""The acts of ``VersionStore`` over a SQL database; the contract of each is in ``pikkuflow.ports.versions``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import func, select, update

from pikkuflow.adapters.sql.database import Database, Transaction
from pikkuflow.adapters.sql.tables import run
from pikkuflow.adapters.sql.tables import version as version_table
from pikkuflow.domain.act import PassRef
from pikkuflow.domain.status import SETTLED_RUN, RunStatus
from pikkuflow.domain.version import NewVersion, OpenRuns, StoredVersion, VersionKind

__all__ = ["VersionActs"]

_OPEN: Final = sorted(status.value for status in RunStatus if status not in SETTLED_RUN)


class VersionActs:
    """Short transactions on every database: none of them is on a hot path."""

    database: Database

    def store_version(self, *versions: NewVersion) -> None:
        """Store each version unless it is there."""
        if versions:
            self.database.write(lambda tx: _store(tx, versions))

    def give_version(self, ref: PassRef, version: str) -> bool:
        """The run that had none is of this version. False: fenced, or it has another."""
        return self.database.write(lambda tx: _give(tx, ref, version))

    def get_version(self, workflow: str, version: str) -> StoredVersion | None:
        """The version, or None."""
        return self.database.read(lambda tx: _get(tx, workflow, version))

    def list_versions(self, workflow: str) -> tuple[StoredVersion, ...]:
        """The workflow's versions in the order in which they were stored first."""
        return self.database.read(lambda tx: _list(tx, workflow))

    def count_open_runs(self, workflow: str) -> tuple[OpenRuns, ...]:
        """How many runs of the workflow are not settled, by version."""
        return self.database.read(lambda tx: _count(tx, workflow))


def _store(tx: Transaction, versions: Sequence[NewVersion]) -> None:
    now = tx.now()
    # In one order everywhere: workers that start together insert the same rows.
    for new in sorted(versions, key=lambda new: (new.workflow, new.version)):
        tx.add(
            version_table,
            {
                "workflow": new.workflow,
                "version": new.version,
                "kind": new.kind.value,
                "definition": new.definition,
                "created_at": now,
            },
        )


def _give(tx: Transaction, ref: PassRef, version: str) -> bool:
    row = tx.lock_run(ref.run_id)
    if row is None or row["pass_id"] != ref.pass_id or row["version"] not in {"", version}:
        return False
    tx.do(update(run).where(run.c.id == ref.run_id).values(version=version))
    return True


def _get(tx: Transaction, workflow: str, version: str) -> StoredVersion | None:
    found = version_table.c.workflow == workflow, version_table.c.version == version
    row = tx.first(select(version_table).where(*found))
    return None if row is None else _version_of(row)


def _list(tx: Transaction, workflow: str) -> tuple[StoredVersion, ...]:
    wanted = select(version_table).where(version_table.c.workflow == workflow)
    rows = tx.all(wanted.order_by(version_table.c.created_at, version_table.c.version))
    return tuple(_version_of(row) for row in rows)


def _count(tx: Transaction, workflow: str) -> tuple[OpenRuns, ...]:
    counted = select(run.c.version, func.count().label("open_runs"), func.min(run.c.created_at).label("oldest_at"))
    wanted = counted.where(run.c.workflow == workflow, run.c.status.in_(_OPEN))
    rows = tx.all(wanted.group_by(run.c.version).order_by(run.c.version))
    return tuple(OpenRuns(version=row["version"], count=row["open_runs"], oldest_at=row["oldest_at"]) for row in rows)


def _version_of(row: Mapping[str, Any]) -> StoredVersion:
    return StoredVersion(
        workflow=row["workflow"],
        version=row["version"],
        kind=VersionKind(row["kind"]),
        definition=row["definition"],
        created_at=row["created_at"],
    )
