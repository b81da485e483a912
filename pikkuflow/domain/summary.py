"""What is shown of a run: its status folded to one entry a step (spec 10.1, 16.7)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pikkuflow.domain.failure import Failure
from pikkuflow.domain.gate import shown_name
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.run import Run
from pikkuflow.domain.status import SETTLED_RUN, RunStatus, StepStatus
from pikkuflow.domain.step import Step

__all__ = ["RunHead", "RunSummary", "StepSummary", "head_of", "planned_step", "summary_of"]

_MILLISECONDS: Final = 1000.0
_WITH_OUTPUT: Final = frozenset({RunStatus.COMPLETED, RunStatus.COMPENSATED, RunStatus.COMPENSATION_FAILED})
_ENDED_STEP: Final = frozenset({StepStatus.SUCCEEDED, StepStatus.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSummary:
    """One step by its latest attempt. ``duration_ms`` is known only when it has both a start and an end."""

    name: StepName
    status: StepStatus
    attempts: int
    duration_ms: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it (spec 16.7)."""
        shown: dict[str, Any] = {"name": self.name, "status": self.status.value, "attempts": self.attempts}
        if (reason := shown_name(self.name)) is not None:
            shown["displayName"] = reason
        if self.duration_ms is not None:
            shown["duration"] = self.duration_ms
        return shown


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHead:
    """A run as a listing shows it: no steps and no payloads."""

    id: RunId
    workflow: str
    status: RunStatus
    code: str | None
    owner: str | None
    error: str | None
    """The message of the run's error, or of what it is suspended for."""
    started_at: datetime
    completed_at: datetime | None
    """Only for settled runs."""
    deadline_at: datetime | None = None
    """When it has to have ended, if it has a ``timeout``."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: times as ISO text, absent fields left out."""
        shown = {
            "id": self.id,
            "workflow": self.workflow,
            "status": self.status.value,
            "code": self.code,
            "owner": self.owner,
            "error": None if self.error is None else {"message": self.error},
            "startedAt": self.started_at.isoformat(),
            "completedAt": None if self.completed_at is None else self.completed_at.isoformat(),
            "deadlineAt": None if self.deadline_at is None else self.deadline_at.isoformat(),
        }
        return {key: value for key, value in shown.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run's status with its steps.

    ``output`` is set only when it completed; ``rested_at`` names the milestone that a compensated run rests at; ``stuck_steps`` are the
    steps that could not be undone, each with its ``stepName`` and ``error``.
    """

    head: RunHead
    deterministic: bool
    planned_steps: tuple[str, ...] | None
    steps: tuple[StepSummary, ...]
    output: Any = None
    rested_at: str | None = None
    stuck_steps: tuple[Mapping[str, Any], ...] = ()

    @property
    def id(self) -> RunId:
        """The run's id."""
        return self.head.id

    @property
    def workflow(self) -> str:
        """The workflow's name."""
        return self.head.workflow

    @property
    def status(self) -> RunStatus:
        """The run's status."""
        return self.head.status

    @property
    def error(self) -> str | None:
        """The message of the run's error, or None."""
        return self.head.error

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it (spec 16.7)."""
        shown = {**self.head.to_dict(), "steps": [step.to_dict() for step in self.steps]}
        if self.deterministic:
            shown["deterministic"] = True
        if self.planned_steps is not None:
            shown["plannedSteps"] = [planned_step(name) for name in self.planned_steps]
        if self.status is RunStatus.COMPLETED:
            shown["output"] = self.output
        if self.rested_at is not None:
            shown["restedAt"] = self.rested_at
        if self.stuck_steps:
            shown["stuckSteps"] = [dict(stuck) for stuck in self.stuck_steps]
        return shown


def planned_step(name: str) -> dict[str, Any]:
    """A planned step as JSON has it (spec 16.7): a gate is shown by its reason."""
    reason = shown_name(name)
    return {"stepName": name} if reason is None else {"stepName": name, "displayName": reason}


def head_of(run: Run) -> RunHead:
    """The run as a listing shows it. An error without a message reads ``Unknown error`` (spec 10.1)."""
    return RunHead(
        id=run.id,
        workflow=run.workflow,
        status=run.status,
        code=run.code,
        owner=run.owner,
        error=_message(run.error),
        started_at=run.created_at,
        completed_at=(run.finished_at or run.updated_at) if run.status in SETTLED_RUN else None,
        deadline_at=run.deadline_at,
    )


def summary_of(run: Run, steps: Sequence[Step], decode: Callable[[str], Any]) -> RunSummary:
    """Fold a run and its step rows; ``decode`` turns the stored output into its value.

    A step's row shows its latest attempt, so the greatest attempt number wins by construction (D7, spec 10.1).
    """
    output = decode(run.output) if run.status in _WITH_OUTPUT and run.output is not None else None
    end = output if run.status is not RunStatus.COMPLETED and isinstance(output, dict) else {}
    return RunSummary(
        head=head_of(run),
        deterministic=run.deterministic,
        planned_steps=None if run.planned_steps is None else tuple(json.loads(run.planned_steps)),
        steps=tuple(_step(step) for step in sorted(steps, key=lambda step: step.seq)),
        output=output if run.status is RunStatus.COMPLETED else None,
        rested_at=end.get("restedAt"),
        stuck_steps=tuple(end.get("stuckSteps", ())),
    )


def _step(step: Step) -> StepSummary:
    return StepSummary(name=step.name, status=step.status, attempts=step.attempt, duration_ms=_duration(step))


def _duration(step: Step) -> float | None:
    if step.status not in _ENDED_STEP or step.settled_at is None:
        return None
    begun = step.begun_at or step.created_at
    return max(0.0, (step.settled_at - begun).total_seconds() * _MILLISECONDS)


def _message(error: Failure | None) -> str | None:
    return None if error is None else error.message or "Unknown error"
