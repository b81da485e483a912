"""Runs: one record per stage of life. Payload fields hold JSON text as the codec made it; times are aware, by the database's clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pikkuflow.domain.failure import Failure
from pikkuflow.domain.ids import KEY_LENGTH, Holder, PassId, RunId, StepName
from pikkuflow.domain.recorded_names import can_be_kept
from pikkuflow.domain.status import SETTLED_RUN, RunStatus
from pikkuflow.errors import PayloadError

__all__ = ["InsertedRun", "NewRun", "ParentStep", "Run", "RunFilter", "RunKey", "check_who"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentStep:
    """The step of the parent run that a child run works."""

    run_id: RunId
    step: StepName


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """A run about to be inserted: no status yet.

    ``input`` is the codec's text of ``{"args": [...], "kwargs": {...}}``; ``wire`` the small JSON of where it came from (spec 1.1);
    ``delay_seconds`` keeps its first pass back (countdown, eta); ``timeout_seconds`` is how long it may take, counted from the moment at
    which its first pass may open; ``handover`` what a Celery canvas wants done with the outcome.
    """

    id: RunId
    workflow: str
    version: str
    input: str
    inline: bool = False
    owner: str | None = None
    wire: str = "{}"
    planned_steps: str | None = None
    deterministic: bool = False
    delay_seconds: float | None = None
    timeout_seconds: float | None = None
    parent: ParentStep | None = None
    handover: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertedRun:
    """What an insert found: ``created`` is False when the id was there, and then the three fields are the existing run's."""

    id: RunId
    created: bool
    workflow: str
    input: str
    status: RunStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A stored run. ``deadline_at`` was fixed by its start, from ``timeout_seconds``, and never moves."""

    id: RunId
    workflow: str
    version: str
    status: RunStatus
    inline: bool
    input: str
    output: str | None
    error: Failure | None
    code: str | None
    owner: str | None
    wire: str
    planned_steps: str | None
    deterministic: bool
    news: int
    seen: int
    pass_id: PassId | None
    pass_holder: Holder | None
    pass_until: datetime | None
    lost: bool
    passes_lost: int
    due_at: datetime | None
    timeout_seconds: float | None
    deadline_at: datetime | None
    parent: ParentStep | None
    handover: str | None
    delivered_at: datetime | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None

    @property
    def is_settled(self) -> bool:
        """Nothing moves this run any more, but for a parent that undoes its child (D23)."""
        return self.status in SETTLED_RUN


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKey:
    """Where a page of a listing ends: the next page starts after it (keyset paging, newest first)."""

    created_at: datetime
    id: RunId


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs a listing wants; None means any."""

    workflow: str | None = None
    status: RunStatus | None = None
    owner: str | None = None
    code: str | None = None
    since: datetime | None = None
    until: datetime | None = None


def check_who(new: NewRun) -> None:
    """Look at what names a run about to be inserted and its owner: both are compared, indexed and sent (issue E, bad input).

    Raises ``PayloadError`` when one is no text, is empty, is longer than ``KEY_LENGTH`` or has a character that no database keeps.
    """
    for what, value in (("run_id", new.id), ("owner", new.owner)):
        if value is None:
            continue
        if not isinstance(value, str):
            raise PayloadError(f"{what}={value!r} is no text.", hint=f"Write {what}={str(value)!r}.")
        if not 0 < len(value) <= KEY_LENGTH:
            raise PayloadError(
                f"The {what} has {len(value)} characters and cannot be stored.", hint=f"Give 1 to {KEY_LENGTH}."
            )
        if not can_be_kept(value):
            raise PayloadError(
                f"{what}={value!r} cannot be stored.", hint="Leave out NUL and halves of surrogate pairs."
            )
