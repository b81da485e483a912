"""State, remembered values, functions and options."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pikkuflow.domain.command import PlannedCall
from pikkuflow.domain.status import Dispatch, StepKind
from pikkuflow.errors import DurationError, PikkuFlowError, StepNameError, WorkflowDefinitionError
from pikkuflow.replay.context import Workflow
from pikkuflow.replay.options import PLAIN, StepOptions, step_options
from pikkuflow.replay.outcome import Completed, Failed
from tests.unit.replay.recording import Recording, job


def calls_of(recording: Recording) -> list[PlannedCall]:
    """Everything that was reached, in order."""
    return [call for reach in recording.reaches for call in reach.calls]


def test_state_is_seen_as_it_was_at_that_point() -> None:
    """A set is a recorded step; a replay sees the map as of that point (design 1)."""

    def body(wf: Workflow) -> Any:
        before = wf.state.get("stage", "none")
        wf.state.set("stage", "paid")
        middle = wf.state.get("stage")
        wf.sleep(1)
        wf.state.set("stage", "sent")
        return [before, middle, wf.state.get("stage"), wf.state.get("other")]

    recording = Recording(body)

    assert recording.run_to_end() == ["none", "paid", "sent", None]
    assert recording.pass_once() == Completed(["none", "paid", "sent", None])
    assert recording.names() == ["__state:stage", "sleep", "__state:stage#1"]
    first = calls_of(recording)[0].call
    assert (first.kind, first.state_key) == (StepKind.STATE, "stage")


@pytest.mark.parametrize("key", ["", 1, "a#1", "a[0]"])
def test_a_state_key_that_could_be_taken_for_another_is_refused(key: Any) -> None:
    """Nothing is stored for it."""
    recording = Recording(lambda wf: wf.state.set(key, 1))

    outcome = recording.pass_once()

    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, StepNameError)
    assert recording.rows == {}


def test_time_uuid_and_random_are_steps_that_the_engine_answers() -> None:
    """They are read once and remembered; a replay reads no clock and draws nothing."""
    answers = {"__now": "now", "__uuid": "12345678123456781234567812345678", "__random": 0.25, "__now#1": "later"}

    def body(wf: Workflow) -> Any:
        return [wf.now(), str(wf.uuid()), wf.random(), wf.now()]

    recording = Recording(body, natives=answers)

    assert recording.pass_once() == Completed(["now", "12345678-1234-5678-1234-567812345678", 0.25, "later"])
    assert all(call.call.kind is StepKind.FUNCTION and call.call.function is None for call in calls_of(recording))
    assert recording.pass_once() == Completed(["now", "12345678-1234-5678-1234-567812345678", 0.25, "later"])
    assert recording.names() == ["__now", "__uuid", "__random", "__now#1"]


def test_a_function_is_worked_once_and_remembered() -> None:
    """An inline callable is a step (spec 2.2)."""
    worked: list[str] = []

    def read_today() -> str:
        worked.append("today")
        return "2026-01-01"

    def body(wf: Workflow) -> str:
        today = wf.do("today", read_today)
        wf.sleep(1)
        return today

    recording = Recording(body)

    assert recording.run_to_end() == "2026-01-01"
    assert worked == ["today"]


def test_run_id_and_owner_are_there() -> None:
    """They belong to the run, not to a step."""
    recording = Recording(lambda wf: [wf.run_id, wf.owner])

    assert recording.pass_once() == Completed(["order-42", "u1"])


def test_options_reach_the_translation_checked() -> None:
    """No option given is one shared record."""
    assert step_options({}) is PLAIN
    assert step_options(
        {
            "retries": 3,
            "retry_delay": "10s",
            "no_retry_on": ValueError,
            "dispatch": "queue",
            "record_start": True,
            "compensate": False,
        }
    ) == StepOptions(
        retries=3,
        retry_delay="10",
        no_retry_on=(ValueError,),
        dispatch=Dispatch.QUEUE,
        record_start=True,
        compensate=False,
    )
    assert step_options({"retry_delay": timedelta(minutes=1)}).retry_delay == "60"
    assert step_options({"retry_delay": "exponential"}).retry_delay == "exponential"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"retires": 3}, WorkflowDefinitionError),
        ({"time_out": 3}, WorkflowDefinitionError),
        ({"timeout": 0}, WorkflowDefinitionError),
        ({"heartbeat_timeout": "soon"}, DurationError),
        ({"detached": 1}, WorkflowDefinitionError),
        ({"retries": -1}, WorkflowDefinitionError),
        ({"retries": True}, WorkflowDefinitionError),
        ({"retries": 1.5}, WorkflowDefinitionError),
        ({"retry_delay": "soon"}, DurationError),
        ({"no_retry_on": "ValueError"}, WorkflowDefinitionError),
        ({"dispatch": "here"}, WorkflowDefinitionError),
        ({"record_start": 1}, WorkflowDefinitionError),
    ],
)
def test_an_impossible_option_is_one_clear_error(options: Any, error: type[PikkuFlowError]) -> None:
    """It is raised at the call, and nothing is stored."""
    recording = Recording(lambda wf: wf.do("x", job("x"), **options))

    outcome = recording.pass_once()

    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, error)
    assert recording.rows == {}


def test_a_misspelt_option_names_the_nearest_one() -> None:
    """``retires`` is ``retries``."""
    with pytest.raises(WorkflowDefinitionError, match="Did you mean retries="):
        step_options({"retires": 3})


@pytest.mark.parametrize("duration", ["soon", -1, True, float("nan"), None])
def test_an_impossible_sleep_is_refused(duration: Any) -> None:
    """bool, negative and NaN are refused (D28)."""
    recording = Recording(lambda wf: wf.sleep("nap", duration))

    outcome = recording.pass_once()

    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, DurationError)
    assert recording.rows == {}


@pytest.mark.parametrize("count", [0, 3])
def test_do_takes_a_name_and_one_thing_to_do(count: int) -> None:
    """Anything else says how to write it."""
    given: list[Any] = ["a"] * count

    outcome = Recording(lambda wf: wf.do(*given)).pass_once()

    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, WorkflowDefinitionError)
