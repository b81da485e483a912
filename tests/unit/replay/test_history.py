"""What is recorded is given back, and a body that changed is detected (spec 13.3, D17)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pikkuflow.domain.failure import Failure
from pikkuflow.domain.ids import StepName
from pikkuflow.domain.status import StepStatus, SuspendCode
from pikkuflow.errors import StepFailed, StepIgnored, StepLeaseExpired
from pikkuflow.replay.context import Workflow
from pikkuflow.replay.outcome import Completed, Failed, Outcome, ParkedOutcome
from pikkuflow.replay.park import Parked, ParkReason
from tests.unit.replay.recording import Recording, job, task


def parked(outcome: Outcome) -> Parked:
    """The park that a pass ended with."""
    assert isinstance(outcome, ParkedOutcome)
    return outcome.parked


def test_recorded_steps_give_their_own_results_and_are_not_performed_again() -> None:
    """A replay over completed steps asks for nothing (T3.7), and each step has its own result (T3.8)."""

    def body(wf: Workflow) -> Any:
        return [wf.do("a", job("double", 1)), wf.do("b", job("double", 2)), wf.map(task("double"), [3, 4])]

    recording = Recording(body, works={"double": lambda number: 2 * number})
    recording.run_to_end()
    recording.reaches.clear()

    assert recording.pass_once() == Completed([2, 4, [6, 8]])
    assert recording.reaches == []


def test_a_step_first_reached_in_the_middle_of_a_replay_is_performed() -> None:
    """It is created, not taken as missing (T3.9), and the next pass knows it (T3.10)."""

    def body(wf: Workflow) -> Any:
        first = wf.do("a", job("x", 1))
        second = wf.do("b", job("y", 2))
        return [first, second]

    recording = Recording(body, elsewhere=frozenset({"y"}))
    recording.pass_once()
    recording.reaches.clear()
    recording.settle("b")

    assert recording.pass_once() == Completed([[1], [2]])
    assert recording.reaches == []


def test_results_are_decoded_when_they_are_needed() -> None:
    """A result is read once, and one that nobody asks for before the end of a wait is not read."""

    def body(wf: Workflow) -> Any:
        wf.submit("a", job("x", 1))
        handle = wf.submit("b", job("x", 2))
        wf.sleep("nap", 1)
        return [handle.result(), handle.result()]

    recording = Recording(body)
    recording.pass_once()
    recording.settle("a")
    recording.settle("b")
    recording.decoded.clear()
    recording.pass_once()
    assert recording.decoded == ['{"args": [], "kwargs": {}}']

    recording.settle("nap")

    assert recording.pass_once() == Completed([[2], [2]])
    assert recording.decoded.count("[2]") == 1


def test_a_result_that_cannot_be_read_ends_the_pass_and_not_the_run() -> None:
    """A codec without its key says nothing about the workflow: the error comes out of the replay, whatever the body catches."""

    def body(wf: Workflow) -> Any:
        try:
            return wf.do("a", job("x"))
        except ValueError:
            return "swallowed"

    recording = Recording(body)
    recording.run_to_end()
    name = StepName("a")
    recording.rows[name] = replace(recording.rows[name], result="no json")

    with pytest.raises(ValueError, match="Expecting value"):
        recording.pass_once()


@pytest.mark.parametrize(
    ("code", "kind"),
    [(None, StepFailed), ("STEP_IGNORED", StepIgnored), ("STEP_LEASE_EXPIRED", StepLeaseExpired)],
)
def test_a_failed_step_raises_what_was_recorded_in_every_pass(code: str | None, kind: type[StepFailed]) -> None:
    """The error names run, step, attempts and the task's own error; it is the same worked or replayed."""

    def body(wf: Workflow) -> Any:
        try:
            wf.do("pay", job("charge"))
        except StepFailed as error:
            return error
        return None

    recording = Recording(body, elsewhere=frozenset({"charge"}))
    recording.pass_once()
    name = StepName("pay")
    failure = Failure(type="ValueError", message="card expired", code=code)
    recording.rows[name] = replace(recording.rows[name], status=StepStatus.FAILED, error=failure, attempt=3)

    outcome = recording.pass_once()

    assert isinstance(outcome, Completed)
    error = outcome.value
    assert type(error) is kind
    assert (error.run_id, error.step, error.attempts) == ("order-42", "pay", 3)
    assert (error.error_type, error.error_message) == ("ValueError", "card expired")
    assert "after 3 attempts: ValueError: card expired" in str(error)


def test_a_cancelled_step_raises_and_says_so() -> None:
    """A row that was cancelled has no result to go on with."""

    def body(wf: Workflow) -> None:
        wf.do("pay", job("charge"))

    recording = Recording(body, elsewhere=frozenset({"charge"}))
    recording.pass_once()
    name = StepName("pay")
    recording.rows[name] = replace(recording.rows[name], status=StepStatus.CANCELLED)

    outcome = recording.pass_once()

    assert isinstance(outcome, Failed)
    assert "cancelled" in str(outcome.error)


def original(wf: Workflow) -> None:
    """The body that made the recording."""
    wf.do("a", job("x"))
    wf.do("b", job("y"))
    wf.map(task("print"), [1, 2])
    wf.sleep("nap", 1)


def changed_order(wf: Workflow) -> None:
    """The steps b and a have changed places."""
    wf.do("b", job("y"))
    wf.do("a", job("x"))


def inserted(wf: Workflow) -> None:
    """A call that was not there."""
    wf.do("a", job("x"))
    wf.do("new", job("z"))
    wf.do("b", job("y"))


def removed(wf: Workflow) -> None:
    """A call is gone."""
    wf.do("a", job("x"))
    wf.map(task("print"), [1, 2])


def ends_early(wf: Workflow) -> None:
    """The last calls are gone."""
    wf.do("a", job("x"))
    wf.do("b", job("y"))


def raises_early(wf: Workflow) -> None:
    """It fails where it went on."""
    wf.do("a", job("x"))
    raise ValueError("a new check")


def other_kind(wf: Workflow) -> None:
    """The same name for something else."""
    wf.sleep("a", 1)


def other_task(wf: Workflow) -> None:
    """The same name for another task."""
    wf.do("a", job("refund"))


def fewer_members(wf: Workflow) -> None:
    """The map has become shorter."""
    wf.do("a", job("x"))
    wf.do("b", job("y"))
    wf.map(task("print"), [1])
    wf.sleep("nap", 1)


@pytest.mark.parametrize(
    ("body", "expected", "found"),
    [
        (changed_order, "step 'a'", "step 'b'"),
        (inserted, "step 'b'", "step 'new'"),
        (removed, "step 'b'", "step 'print[0]'"),
        (ends_early, "step 'print[0]'", "the end of the workflow"),
        (raises_early, "step 'b'", "the end of the workflow"),
        (other_kind, "step 'a' (task x)", "step 'a' (sleep)"),
        (other_task, "step 'a' (task x)", "step 'a' (task refund)"),
        (fewer_members, "step 'print[1]'", "step 'nap'"),
    ],
)
def test_a_body_that_changed_under_its_run_is_suspended_and_nothing_runs(body: Any, expected: str, found: str) -> None:
    """A mismatch names the step expected and the step found, and nothing is guessed (D17, scenario 32)."""
    recording = Recording(original)
    recording.run_to_end()
    rows = dict(recording.rows)
    recording.reaches.clear()

    park = parked(recording.pass_once(body))

    assert (park.reason, park.code) == (ParkReason.SUSPENDED, SuspendCode.VERSION_CONFLICT)
    assert park.failure is not None
    assert f"expected {expected}" in park.failure.message
    assert f"found {found}" in park.failure.message
    assert recording.reaches == []
    assert recording.rows == rows


def test_code_that_fits_again_goes_on() -> None:
    """Once a worker with matching code meets the run it continues (D17)."""
    recording = Recording(original)
    recording.run_to_end()
    parked(recording.pass_once(inserted))

    assert recording.pass_once() == Completed(None)


def test_a_branch_on_the_clock_is_loud_when_it_differs_on_replay() -> None:
    """Scenario 34: both steps are named within one pass, also when the body catches every exception."""
    hours = iter([9, 21])

    def body(wf: Workflow) -> None:
        is_morning = next(hours) < 12
        for name in ("breakfast" if is_morning else "dinner", "clean up"):
            try:
                wf.do(name, job("cook", name))
            except Exception:  # noqa: BLE001, S112 - that is what the test is about
                continue
        wf.sleep("nap", 1)

    recording = Recording(body)
    recording.pass_once()

    park = parked(recording.pass_once())

    assert park.failure is not None
    assert "'breakfast'" in park.failure.message
    assert "'dinner'" in park.failure.message
    assert recording.names() == ["breakfast", "clean up", "nap"]


def test_a_call_whose_arguments_were_refused_leaves_no_row_and_no_conflict() -> None:
    """Nothing is stored for it, and later passes meet the same refusal at the same place."""

    def refuse(reach: Any) -> None:
        if any(call.call.task == "strict" for call in reach.calls):
            raise TypeError("strict() takes no arguments")

    def body(wf: Workflow) -> Any:
        try:
            wf.do("bad", job("strict", 1))
        except TypeError:
            wf.do("good", job("x"))
        wf.sleep("nap", 1)
        return "done"

    recording = Recording(body, refuse=refuse)

    assert recording.run_to_end() == "done"
    assert recording.names() == ["good", "nap"]


def test_rows_that_undo_steps_are_not_calls_of_the_body() -> None:
    """An unwinding writes rows of its own."""

    def body(wf: Workflow) -> None:
        wf.do("a", job("x"))

    recording = Recording(body)
    recording.run_to_end()
    undo = replace(recording.rows[StepName("a")], name=StepName("a:compensate"), seq=1)
    recording.rows[undo.name] = undo

    assert recording.pass_once() == Completed(None)
