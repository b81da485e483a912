"""The folded status of a run (spec 10.1)."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pikkuflow.domain.failure import Failure
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.run import Run
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus
from pikkuflow.domain.step import Step
from pikkuflow.domain.summary import head_of, summary_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """Seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def a_run(status: RunStatus = RunStatus.RUNNING, **fields: Any) -> Run:
    """A run that began at noon and was last touched a minute later."""
    known: dict[str, Any] = dict.fromkeys(Run.__dataclass_fields__)
    known |= {
        "id": RunId("r"),
        "workflow": "w",
        "status": status,
        "created_at": NOON,
        "updated_at": at(60),
        "deterministic": False,
    }
    return Run(**(known | fields))


def a_step(name: str, status: StepStatus = StepStatus.SUCCEEDED, **fields: Any) -> Step:
    """A step row made at noon."""
    known: dict[str, Any] = dict.fromkeys(Step.__dataclass_fields__)
    known |= {
        "name": StepName(name),
        "kind": StepKind.TASK,
        "seq": 0,
        "status": status,
        "attempt": 1,
        "created_at": NOON,
    }
    return Step(**(known | fields))


def the_step(step: Step) -> dict[str, Any]:
    """The entry of one step."""
    return summary_of(a_run(), [step], json.loads).to_dict()["steps"][0]  # type: ignore[no-any-return]


def test_a_sleep_lasts_from_when_it_was_asked_for() -> None:
    """A timer that fires works nothing; what the body waited is what it shows."""
    slept = a_step("nap", kind=StepKind.SLEEP, running_at=at(9), settled_at=at(9))
    assert the_step(slept)["duration"] == 9000.0


def test_a_duration_needs_a_start_and_an_end() -> None:
    """T16.15: milliseconds from running, else from created, to the end."""
    ended = a_step("a", running_at=at(1), settled_at=at(3.5))
    assert the_step(ended) == {"name": "a", "status": "succeeded", "attempts": 1, "duration": 2500.0}
    assert the_step(a_step("a", settled_at=at(3)))["duration"] == 3000.0
    assert "duration" not in the_step(a_step("a", StepStatus.RUNNING, running_at=at(1)))


def test_steps_are_in_the_order_of_the_body_with_their_attempts() -> None:
    """T16.15, D30: one entry a step, the greatest attempt."""
    steps = [a_step("second", seq=1, attempt=3), a_step("first", seq=0)]
    entries = summary_of(a_run(), steps, json.loads).steps
    assert [(entry.name, entry.attempts) for entry in entries] == [("first", 1), ("second", 3)]


def test_an_output_is_shown_only_when_completed() -> None:
    """T16.15."""
    completed = summary_of(a_run(RunStatus.COMPLETED, output='{"x": 1}'), [], json.loads)
    assert completed.to_dict()["output"] == {"x": 1}
    failed = summary_of(a_run(RunStatus.FAILED, output='{"x": 1}'), [], json.loads)
    assert "output" not in failed.to_dict()
    assert failed.output is None


def test_an_error_without_a_message_has_a_default_text() -> None:
    """T16.15."""
    head = head_of(a_run(RunStatus.FAILED, error=Failure(type="X", message="")))
    assert head.error == "Unknown error"
    assert head.to_dict()["error"] == {"message": "Unknown error"}


@pytest.mark.parametrize("status", list(RunStatus))
def test_an_end_is_told_only_of_ended_runs(status: RunStatus) -> None:
    """Spec 10.1: completedAt only for terminal statuses."""
    ended = {"completed", "failed", "cancelled", "compensated", "compensation_failed"}
    assert (head_of(a_run(status)).completed_at is not None) == (status.value in ended)


def test_a_deterministic_run_shows_what_it_plans() -> None:
    """Spec 16.7."""
    shown = summary_of(a_run(deterministic=True, planned_steps='["a", "b"]'), [], json.loads).to_dict()
    assert shown["deterministic"] is True
    assert shown["plannedSteps"] == [{"stepName": "a"}, {"stepName": "b"}]
