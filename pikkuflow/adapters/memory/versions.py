"""Versions in memory. The contract of each act is in ``pikkuflow.ports.versions``."""

from __future__ import annotations

from datetime import datetime

from pikkuflow.adapters.memory.tables import Tables
from pikkuflow.domain.act import PassRef
from pikkuflow.domain.version import NewVersion, OpenRuns, StoredVersion

__all__ = ["VersionActs"]


class VersionActs:
    """The acts of ``VersionStore``."""

    _tables: Tables

    def store_version(self, *versions: NewVersion) -> None:
        """Store each version unless it is there."""
        with self._tables.lock:
            now = self._tables.clock.now()
            for new in versions:
                stored = StoredVersion(
                    workflow=new.workflow,
                    version=new.version,
                    kind=new.kind,
                    definition=new.definition,
                    created_at=now,
                )
                self._tables.versions.setdefault((new.workflow, new.version), stored)

    def give_version(self, ref: PassRef, version: str) -> bool:
        """The run that had none is of this version. False: fenced, or it has another."""
        with self._tables.lock:
            run = self._tables.runs.get(ref.run_id)
            if run is None or run.pass_id != ref.pass_id or run.version not in {"", version}:
                return False
            run.version = version
            return True

    def get_version(self, workflow: str, version: str) -> StoredVersion | None:
        """The version, or None."""
        with self._tables.lock:
            return self._tables.versions.get((workflow, version))

    def list_versions(self, workflow: str) -> tuple[StoredVersion, ...]:
        """The workflow's versions in the order in which they were stored first."""
        with self._tables.lock:
            found = [one for one in self._tables.versions.values() if one.workflow == workflow]
            return tuple(sorted(found, key=lambda one: (one.created_at, one.version)))

    def count_open_runs(self, workflow: str) -> tuple[OpenRuns, ...]:
        """How many runs of the workflow are not settled, by version."""
        begun: dict[str, list[datetime]] = {}
        with self._tables.lock:
            for run in self._tables.runs.values():
                if run.workflow == workflow and not run.is_settled:
                    begun.setdefault(run.version, []).append(run.created_at)
        return tuple(
            OpenRuns(version=version, count=len(times), oldest_at=min(times))
            for version, times in sorted(begun.items())
        )
