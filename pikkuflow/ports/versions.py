"""The store's acts on versions of workflows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pikkuflow.domain.act import PassRef
from pikkuflow.domain.version import NewVersion, OpenRuns, StoredVersion

__all__ = ["VersionStore"]


class VersionStore(Protocol):
    """Versions are kept by workflow and version, and outlive the runs that were started with them (spec 1.4).

    None of these acts is on a hot path: a process stores what it has once.
    """

    def store_version(self, *versions: NewVersion) -> None:
        """Store each version unless it is there, all in one transaction. What is there is never overwritten, and no error (T17.7)."""
        ...

    def give_version(self, ref: PassRef, version: str) -> bool:
        """The run, whose starter did not know its workflow, is of this version from now on; fenced by the pass.

        Doing it again is the same. False: fenced, or the run has another version; nothing written.
        """
        ...

    def get_version(self, workflow: str, version: str) -> StoredVersion | None:
        """The version, or None when it was never stored."""
        ...

    def list_versions(self, workflow: str) -> Sequence[StoredVersion]:
        """The workflow's versions in the order in which they were stored first."""
        ...

    def count_open_runs(self, workflow: str) -> Sequence[OpenRuns]:
        """How many runs of the workflow are not settled, by the version they were started with, ordered by it; none for a count of 0."""
        ...
