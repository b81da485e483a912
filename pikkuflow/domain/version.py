"""Versions of workflows as they are stored (spec 1.4, D17): a run belongs to the one that it was started with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

__all__ = ["NewVersion", "OpenRuns", "StoredVersion", "VersionKind", "WorkflowVersion"]


class VersionKind(StrEnum):
    """What a version is made of, which decides what may become of its runs after a change (spec 3.7)."""

    FUNCTION = "function"
    """Code. What is stored describes it; it cannot be run from there."""
    GRAPH = "graph"
    """Data. What is stored is the whole workflow, and its runs finish on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewVersion:
    """A version about to be stored. ``definition`` is JSON text, ``version`` its hash (of a function: of its code, or its author's)."""

    workflow: str
    version: str
    kind: VersionKind
    definition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVersion:
    """A version as it was stored first."""

    workflow: str
    version: str
    kind: VersionKind
    definition: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRuns:
    """The runs of one version that are not settled. ``version`` is empty where it was not known at the start."""

    version: str
    count: int
    oldest_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowVersion:
    """A version as it is shown.

    ``kind`` and ``stored_at`` are None for one that no worker has stored, ``oldest_at`` when no run of it is open. ``here``: it is what the
    code of this process has.
    """

    version: str
    kind: VersionKind | None
    stored_at: datetime | None
    open_runs: int
    oldest_at: datetime | None
    here: bool

    def to_dict(self) -> dict[str, object]:
        """As JSON has it: times as ISO text, absent fields left out."""
        shown = {
            "version": self.version,
            "kind": None if self.kind is None else self.kind.value,
            "storedAt": None if self.stored_at is None else self.stored_at.isoformat(),
            "openRuns": self.open_runs,
            "oldestOpenRun": None if self.oldest_at is None else self.oldest_at.isoformat(),
            "here": self.here,
        }
        return {key: value for key, value in shown.items() if value is not None}
