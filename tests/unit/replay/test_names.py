"""Names, ordinals and predecessors of steps (spec 1.2, 13.3)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.errors import StepNameError, WorkflowDefinitionError
from pikkuflow.replay.context import Workflow
from pikkuflow.replay.outcome import Completed, Failed
from tests.unit.replay.recording import Recording, job, task


def test_a_step_is_named_after_its_task_or_as_its_author_says() -> None:
    """A single use keeps the bare name (T3.5)."""

    def body(wf: Workflow) -> None:
        wf.do(job("shop.reserve"))
        wf.do("charge card", job("shop.charge", 999))
        wf.sleep("2h")
        wf.sleep("cool off", 5)

    recording = Recording(body)

    recording.run_to_end()

    assert recording.names() == ["shop.reserve", "charge card", "sleep", "cool off"]


def test_the_nth_use_of_a_name_is_a_step_of_its_own() -> None:
    """The same name used n times gives n rows, also by submits (T3.4)."""

    def body(wf: Workflow) -> Any:
        first = wf.do("x", job("a"))
        handles = [wf.submit("x", job("a", index)) for index in range(2)]
        return [first, *wf.gather(*handles)]

    recording = Recording(body)

    assert recording.run_to_end() == [[], [0], [1]]
    assert recording.names() == ["x", "x#1", "x#2"]


def test_a_new_pass_counts_from_the_start_and_meets_the_same_rows() -> None:
    """A new replay resets ordinals and resolves to the same rows (T3.6)."""

    def body(wf: Workflow) -> Any:
        return [wf.do("x", job("a", index)) for index in range(3)]

    recording = Recording(body)
    recording.run_to_end()
    asked = len(recording.reaches)

    outcome = recording.pass_once()

    assert outcome == Completed([[0], [1], [2]])
    assert len(recording.reaches) == asked


def test_a_predecessor_is_the_step_before_whichever_number_it_has() -> None:
    """Walking a, b, a, c gives a#1 the predecessor b (spec 1.2)."""

    def body(wf: Workflow) -> None:
        for name in ("a", "b", "a", "c"):
            wf.do(name, job("task"))

    recording = Recording(body)

    recording.run_to_end()

    assert recording.identities() == [(0, "a", None), (1, "b", "a"), (2, "a#1", "b"), (3, "c", "a#1")]


def test_parallel_steps_have_the_predecessor_of_the_first_of_them() -> None:
    """Steps that begin together follow the same step; what comes after follows the last of them."""

    def body(wf: Workflow) -> None:
        wf.do("before", job("task"))
        wf.gather(wf.submit("a", job("task")), wf.submit("b", job("task")))
        wf.map(task("print"), [1, 2])
        wf.do("after", job("task"))

    recording = Recording(body)

    recording.run_to_end()

    assert [(name, after) for _, name, after in recording.identities()] == [
        ("before", None),
        ("a", "before"),
        ("b", "before"),
        ("print[0]", "b"),
        ("print[1]", "b"),
        ("after", "print[1]"),
    ]


def test_a_second_map_of_a_name_numbers_the_map_and_not_its_members() -> None:
    """Members are ``name[i]``; a second map is ``name#1[i]`` (design 1), whatever single steps have the name."""

    def body(wf: Workflow) -> Any:
        wf.do("print", job("print"))
        return [wf.map(task("print"), [7, 8]), wf.map(task("print"), [9]), wf.map(task("print"), [1], name="other")]

    recording = Recording(body)

    assert recording.run_to_end() == [[[7], [8]], [[9]], [[1]]]
    assert recording.names() == ["print", "print[0]", "print[1]", "print#1[0]", "other[0]"]
    assert {row.group for row in recording.rows.values()} == {None, "print", "print#1", "other"}


@pytest.mark.parametrize("name", ["", "a[0]", "a#1", "__now", "undo:compensate"])
@pytest.mark.parametrize("verb", ["do", "submit", "sleep", "map"])
def test_a_reserved_name_is_refused_and_nothing_is_stored(verb: str, name: str) -> None:
    """Shapes kept for the engine are no names for users (design 1)."""

    def body(wf: Workflow) -> None:
        if verb == "map":
            wf.map(task("print"), [1], name=name)
        elif verb == "sleep":
            wf.sleep(name, 1)
        else:
            getattr(wf, verb)(name, job("task"))

    recording = Recording(body)

    outcome = recording.pass_once()

    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, StepNameError)
    assert not recording.rows


@pytest.mark.parametrize("verb", ["do", "submit", "sleep", "map"])
def test_a_name_that_is_no_text_is_refused_by_its_type(verb: str) -> None:
    """A step named by a non-string raises an error that tells the type, and no row is written (T3.17)."""
    name: Any = 42

    def body(wf: Workflow) -> None:
        if verb == "map":
            wf.map(task("print"), [1], name=name)
        elif verb == "sleep":
            wf.sleep(name, 1)
        else:
            getattr(wf, verb)(name, job("task"))

    recording = Recording(body)

    outcome = recording.pass_once()

    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, StepNameError)
    assert "not int" in str(outcome.error)
    assert not recording.rows


def test_a_name_with_nothing_to_do_says_what_is_missing() -> None:
    """``wf.do("charge")`` is a name alone."""

    def body(wf: Workflow) -> None:
        wf.do("charge")  # type: ignore[call-overload]

    outcome = Recording(body).pass_once()

    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, WorkflowDefinitionError)
    assert "nothing to do" in str(outcome.error)


def test_a_task_whose_name_looks_like_a_repeat_needs_a_name() -> None:
    """Otherwise two steps could share an identity."""

    def body(wf: Workflow) -> None:
        wf.do(job("shop.charge#1"))

    outcome = Recording(body).pass_once()

    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, StepNameError)
