"""Submits, gathers and maps: what leaves together, what is waited for, and in which order results come (design 2, spec 2.10)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.errors import StepFailed, WorkflowDefinitionError
from pikkuflow.replay.context import Workflow
from pikkuflow.replay.outcome import Completed, Failed, ParkedOutcome
from tests.unit.replay.recording import Recording, job, task


def fail(text: str) -> Any:
    """A task that fails."""

    def work(*_args: Any) -> None:
        raise ValueError(text)

    return work


def test_submits_leave_together_when_the_body_goes_on() -> None:
    """They are flushed with one reach before another call is reached."""

    def body(wf: Workflow) -> None:
        wf.submit("a", job("x"))
        wf.submit("b", job("x"))
        wf.do("c", job("y"))

    recording = Recording(body)
    recording.pass_once()

    assert recording.reached() == [["a", "b"], ["c"]]
    assert [(reach.together, reach.joined) for reach in recording.reaches] == [(True, False), (False, False)]


def test_a_lone_submit_that_is_asked_at_once_is_reached_like_do() -> None:
    """It may be worked in place."""
    recording = Recording(lambda wf: wf.submit("a", job("x", 1)).result())

    assert recording.pass_once() == Completed([1])
    assert not recording.reaches[0].together


def test_a_submit_before_another_call_is_not_worked_in_place() -> None:
    """Its author wants it to go on beside that call."""

    def body(wf: Workflow) -> Any:
        handle = wf.submit("a", job("x", 1))
        wf.do("b", job("x", 2))
        return handle.result()

    recording = Recording(body)

    assert isinstance(recording.pass_once(), ParkedOutcome)
    assert recording.reaches[0].together
    recording.settle("a")
    assert recording.pass_once() == Completed([1])


def test_a_gather_over_fresh_handles_is_joined() -> None:
    """Only their common end matters, so they wake the run once (design 2)."""

    def body(wf: Workflow) -> Any:
        a, b = wf.gather(wf.submit("a", job("x", 1)), wf.submit("b", job("x", 2)))
        return [a, b]

    recording = Recording(body)

    assert recording.run_to_end() == [[1], [2]]
    assert recording.reaches[0].joined
    assert recording.reaches[0].together


def test_handles_outside_the_gather_leave_with_it_but_are_not_joined() -> None:
    """Something else waits for them."""

    def body(wf: Workflow) -> Any:
        other = wf.submit("other", job("x", 0))
        pair = wf.gather(wf.submit("a", job("x", 1)), wf.submit("b", job("x", 2)))
        return [*pair, other.result()]

    recording = Recording(body)

    assert recording.run_to_end() == [[1], [2], [0]]
    assert recording.reached()[:2] == [["other"], ["a", "b"]]
    assert [(reach.together, reach.joined) for reach in recording.reaches[:2]] == [(True, False), (True, True)]


def test_a_gather_over_handles_that_left_before_is_not_joined() -> None:
    """They were inserted without a common counter."""

    def body(wf: Workflow) -> Any:
        first = wf.submit("a", job("x", 1))
        wf.do("between", job("x"))
        return list(wf.gather(first, wf.submit("b", job("x", 2))))

    recording = Recording(body)
    recording.pass_once()

    assert recording.reached() == [["a"], ["between"], ["b"]]
    assert not any(reach.joined for reach in recording.reaches)
    assert recording.run_to_end() == [[1], [2]]


def test_a_gather_of_one_may_be_worked_in_place_and_of_none_is_empty() -> None:
    """Nothing is parallel there."""

    def body(wf: Workflow) -> Any:
        return [wf.gather(wf.submit("a", job("x", 1))), wf.gather()]

    recording = Recording(body)

    assert recording.pass_once() == Completed([[[1]], []])
    assert [(reach.together, reach.joined) for reach in recording.reaches] == [(False, False)]


def test_a_gather_raises_the_first_failure_in_call_order_after_all_have_settled() -> None:
    """One failing sibling neither loses nor repeats the healthy ones (design 1, spec 2.10)."""

    def body(wf: Workflow) -> Any:
        handles = [wf.submit(name, job(name)) for name in ("good", "late", "early")]
        return list(wf.gather(*handles))

    recording = Recording(body, works={"late": fail("late"), "early": fail("early")})
    recording.pass_once()
    recording.settle("early")
    recording.settle("good")
    assert isinstance(recording.pass_once(), ParkedOutcome)
    recording.settle("late")

    outcome = recording.pass_once()

    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, StepFailed)
    assert outcome.error.step == "late"


def test_a_gather_can_give_failures_in_their_places() -> None:
    """As ``return_exceptions`` of asyncio does."""

    def body(wf: Workflow) -> Any:
        handles = [wf.submit(name, job(name)) for name in ("a", "bad", "c")]
        return [type(value).__name__ for value in wf.gather(*handles, return_exceptions=True)]

    recording = Recording(body, works={"bad": fail("no")})

    assert recording.run_to_end() == ["list", "StepFailed", "list"]


def test_gather_takes_handles_only() -> None:
    """A result that was asked for already is no handle."""
    bad: Any = [1]

    outcome = Recording(lambda wf: wf.gather(*bad)).pass_once()

    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, WorkflowDefinitionError)


def test_a_run_ends_only_when_everything_submitted_has_settled() -> None:
    """What nobody asks for still runs; its failure is a warning."""

    def body(wf: Workflow) -> str:
        wf.submit("mail", job("mail"))
        wf.submit("log", job("log"))
        return "done"

    recording = Recording(body, works={"mail": fail("no address")})

    assert isinstance(recording.pass_once(), ParkedOutcome)
    recording.settle("log")
    assert isinstance(recording.pass_once(), ParkedOutcome)
    recording.settle("mail")
    assert recording.warnings == []
    assert recording.pass_once() == Completed("done")
    assert "no address" in recording.warnings[0]


def test_refused_arguments_are_raised_by_every_handle_that_left_with_them() -> None:
    """None of them was stored."""

    def refuse(reach: Any) -> None:
        if any(call.call.task == "strict" for call in reach.calls):
            raise TypeError("takes no arguments")

    def body(wf: Workflow) -> Any:
        handles = [wf.submit("good", job("x")), wf.submit("bad", job("strict", 1))]
        seen = []
        for handle in handles:
            try:
                handle.result()
            except TypeError as error:
                seen.append(str(error))
        return seen

    recording = Recording(body, refuse=refuse)

    assert recording.run_to_end() == ["takes no arguments"] * 2
    assert recording.rows == {}


def test_a_map_gives_results_in_the_order_of_its_items() -> None:
    """Whichever member ended first (design 1)."""
    recording = Recording(lambda wf: wf.map(task("double"), [1, 2, 3], chunk=2), works={"double": lambda n: 2 * n})
    recording.pass_once()
    for index in (2, 0, 1):
        recording.settle(f"double[{index}]")

    assert recording.pass_once() == Completed([2, 4, 6])
    (reach,) = recording.reaches
    assert (reach.together, reach.joined, reach.chunk) == (True, True, 2)


def test_a_map_over_nothing_is_empty_and_stores_nothing() -> None:
    """``[]`` for ``[]`` (design 1)."""
    recording = Recording(lambda wf: wf.map(task("double"), []))

    assert recording.pass_once() == Completed([])
    assert recording.reaches == []


def test_a_map_raises_its_first_failure_after_all_have_settled() -> None:
    """In the order of the items."""

    def odd_fails(number: int) -> int:
        if number % 2:
            raise ValueError(f"odd {number}")
        return number

    recording = Recording(lambda wf: wf.map(task("even"), [2, 3, 4, 5]), works={"even": odd_fails})
    recording.pass_once()
    for index in (3, 1, 0):
        recording.settle(f"even[{index}]")
    assert isinstance(recording.pass_once(), ParkedOutcome)
    recording.settle("even[2]")

    outcome = recording.pass_once()

    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, StepFailed)
    assert outcome.error.step == "even[1]"


def test_a_window_keeps_that_many_members_unsettled_and_refills() -> None:
    """A new member begins when one has settled, in any order; calls after the map keep their places."""

    def body(wf: Workflow) -> Any:
        values = wf.map(task("x"), range(5), window=2)
        return [values, wf.do("after", job("x", 9))]

    recording = Recording(body)
    recording.pass_once()
    assert recording.in_flight() == ["x[0]", "x[1]"]
    recording.settle("x[1]")
    recording.pass_once()
    assert recording.in_flight() == ["x[0]", "x[2]"]
    recording.settle("x[2]")
    recording.settle("x[0]")
    recording.pass_once()
    assert recording.in_flight() == ["x[3]", "x[4]"]

    assert recording.run_to_end() == [[[0], [1], [2], [3], [4]], [9]]
    assert [seq for seq, _, _ in recording.identities()] == list(range(6))
    assert not any(reach.joined for reach in recording.reaches)


def test_a_window_of_one_is_a_sequence_that_one_pass_works() -> None:
    """Nothing is parallel there, and a member that settles at once frees its room at once."""
    recording = Recording(lambda wf: wf.map(task("x"), range(5), window=1))

    assert recording.pass_once() == Completed([[0], [1], [2], [3], [4]])
    assert recording.reached() == [[f"x[{index}]"] for index in range(5)]


@pytest.mark.parametrize("options", [{"chunk": 0}, {"window": 0}, {"chunk": True}, {"window": "2"}])
def test_an_impossible_chunk_or_window_is_refused(options: Any) -> None:
    """They are numbers from 1."""
    outcome = Recording(lambda wf: wf.map(task("x"), [1], **options)).pass_once()

    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, WorkflowDefinitionError)


def test_a_set_has_no_order_to_map_over() -> None:
    """Another process would number its members differently."""
    outcome = Recording(lambda wf: wf.map(task("x"), {1, 2})).pass_once()

    assert isinstance(outcome, Failed)
    assert "sorted" in str(outcome.error)
