"""Every run of a database: one by its id, or pages of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, overload

from pikkuflow.domain.gate_act import AuditEntry, GateKey, WaitingApproval
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.run import Run as StoredRun
from pikkuflow.domain.run import RunFilter, RunKey
from pikkuflow.domain.status import RunStatus
from pikkuflow.domain.summary import RunHead, head_of
from pikkuflow.domain.version import WorkflowVersion
from pikkuflow.engine.find_run import load_run
from pikkuflow.engine.run_handle import Run
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.versions import versions_of

__all__ = ["ApprovalPage", "RunPage", "Runs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage(Sequence[RunHead]):
    """A page of a listing, newest first. ``next_page`` is what ``list(after=…)`` takes to go on; None at the end."""

    heads: tuple[RunHead, ...]
    next_page: str | None

    @overload
    def __getitem__(self, index: int) -> RunHead: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[RunHead]: ...
    def __getitem__(self, index: int | slice) -> RunHead | Sequence[RunHead]:
        """One run, or some."""
        return self.heads[index]

    def __len__(self) -> int:
        return len(self.heads)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalPage(Sequence[WaitingApproval]):
    """A page of waiting approvals. ``next_page`` is what ``approvals(after=…)`` takes to go on; None at the end."""

    waiting: tuple[WaitingApproval, ...]
    next_page: str | None

    @overload
    def __getitem__(self, index: int) -> WaitingApproval: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[WaitingApproval]: ...
    def __getitem__(self, index: int | slice) -> WaitingApproval | Sequence[WaitingApproval]:
        """One of them, or some."""
        return self.waiting[index]

    def __len__(self) -> int:
        return len(self.waiting)


class Runs:
    """Every run of this database: ``pikku.runs``."""

    __slots__ = ("_runtime",)

    def __init__(self, runtime: Callable[[], Runtime]) -> None:
        self._runtime = runtime

    def get(self, run_id: str, *, as_user: str | None = None) -> Run[Any]:
        """The run of that id. Raises ``RunNotFound``, and ``RunForbidden`` when it belongs to someone other than ``as_user``."""
        load_run(self._runtime(), RunId(run_id), user=as_user)
        return Run(run_id, self._runtime, user=as_user)

    def approvals(self, *, limit: int = 50, after: str | None = None) -> ApprovalPage:
        """Approvals that wait for a decision, the longest waiting first, by keyset paging.

        Args:
            limit: how many a page holds at most.
            after: ``next_page`` of the page before.

        Raises:
            ValueError: ``after`` is no ``next_page``.
        """
        key = None if after is None else _gate_key_of(after)
        found = tuple(self._runtime().store.list_approvals(limit=limit + 1, after=key))
        shown = found[:limit]
        return ApprovalPage(waiting=shown, next_page=_gate_text_of(shown[-1]) if len(found) > limit and shown else None)

    def audit(self, run_id: str) -> Sequence[AuditEntry]:
        """Who decided what in a run, oldest first; it is there when the run is deleted as well."""
        return self._runtime().store.list_audit(RunId(run_id))

    def versions(self, workflow: str) -> Sequence[WorkflowVersion]:
        """The workflow's versions, with how many runs of each are not settled: stored ones first, in the order in which they came.

        Raises ``WorkflowNotFound`` when neither the database nor this application has heard of the workflow.
        """
        return versions_of(self._runtime(), workflow)

    def list(  # noqa: PLR0913 - each is one column that a listing may ask for
        self,
        *,
        workflow: str | None = None,
        status: str | None = None,
        owner: str | None = None,
        code: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> RunPage:
        """Runs, newest first, by keyset paging: a page costs the same however many came before it.

        Args:
            workflow: only runs of this workflow.
            status: only runs of this status, such as ``"failed"``.
            owner: only runs of this owner.
            code: only runs suspended or failed with this code.
            since: only runs created at or after this aware time.
            until: only runs created before this aware time.
            limit: how many runs a page holds at most.
            after: ``next_page`` of the page before.

        Raises:
            ValueError: there is no such status, or ``after`` is no ``next_page``.
        """
        where = RunFilter(
            workflow=workflow,
            status=None if status is None else RunStatus(status),
            owner=owner,
            code=code,
            since=since,
            until=until,
        )
        found = self._runtime().store.list_runs(where, limit=limit + 1, after=None if after is None else _key_of(after))
        more = len(found) > limit
        shown = found[:limit]
        return RunPage(
            heads=tuple(head_of(run) for run in shown), next_page=_text_of(shown[-1]) if more and shown else None
        )


def _text_of(run: StoredRun) -> str:
    return f"{run.created_at.isoformat()}|{run.id}"


def _key_of(text: str) -> RunKey:
    stamp, mark, run_id = text.partition("|")
    if not mark:
        raise ValueError(f"{text!r} is no next_page of a listing")
    return RunKey(created_at=datetime.fromisoformat(stamp), id=RunId(run_id))


def _gate_text_of(gate: WaitingApproval) -> str:
    return json.dumps([gate.since.isoformat(), gate.run_id, gate.step])


def _gate_key_of(text: str) -> GateKey:
    try:
        stamp, run_id, step = json.loads(text)
        return GateKey(since=datetime.fromisoformat(stamp), run_id=RunId(run_id), step=StepName(step))
    except (ValueError, TypeError):
        raise ValueError(f"{text!r} is no next_page of a listing") from None
