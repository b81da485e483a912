"""``wf.patched`` branches old and new runs over a change of the body (D17)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pikkuflow.domain.status import SuspendCode
from pikkuflow.errors import StepNameError
from pikkuflow.replay.context import Workflow
from pikkuflow.replay.outcome import Completed, Failed, ParkedOutcome
from tests.unit.replay.recording import Recording, job, task

Body = Callable[[Workflow], Any]


def old(wf: Workflow) -> Any:
    """The body before the change."""
    wf.do("reserve", job("reserve"))
    wf.sleep("nap", 1)
    wf.do("charge", job("charge"))
    wf.sleep("rest", 1)
    return "old"


def new(wf: Workflow) -> Any:
    """The body after it: charge has become pay and receipt."""
    wf.do("reserve", job("reserve"))
    wf.sleep("nap", 1)
    if wf.patched("receipts"):
        wf.do("pay", job("pay"))
        wf.do("receipt", job("receipt"))
    else:
        wf.do("charge", job("charge"))
    wf.sleep("rest", 1)
    return "new"


def asleep(body: Body, *naps: str) -> Recording:
    """A run of that body that has slept these naps and sleeps on."""
    recording = Recording(body)
    recording.pass_once()
    for nap in naps:
        recording.settle(nap)
        recording.pass_once()
    return recording


def conflict(outcome: Any) -> str:
    """The message of the conflict that a pass ended with."""
    assert isinstance(outcome, ParkedOutcome)
    assert outcome.parked.code is SuspendCode.VERSION_CONFLICT
    assert outcome.parked.failure is not None
    return outcome.parked.failure.message


def test_a_new_run_takes_the_changed_code_and_its_history_says_so() -> None:
    """D17, V4, T1.6: the mark is a step of the history, recorded before a step of the changed code begins."""
    recording = Recording(new)

    assert recording.run_to_end() == "new"
    assert recording.names() == ["reserve", "nap", "__patch:receipts", "pay", "receipt", "rest"]
    recording.reaches.clear()
    assert recording.pass_once() == Completed("new")
    assert recording.reaches == []


def test_a_run_past_the_place_goes_on_as_it_began() -> None:
    """D17, T1.6: it meets its own steps, and nothing is recorded for the patch, in this pass and in every later one."""
    recording = asleep(old, "nap")
    for nap in ("rest",):
        outcome = recording.pass_once(new)
        assert isinstance(outcome, ParkedOutcome)
        assert outcome.parked.code is None
        recording.settle(nap)

    assert recording.pass_once(new) == Completed("new")
    assert recording.names() == ["reserve", "nap", "charge", "rest"]


def test_a_run_asleep_before_the_place_takes_the_changed_code() -> None:
    """D17: nothing of the old branch is recorded, so the run may take the new one, and keeps to it."""
    recording = asleep(old)
    recording.settle("nap")
    recording.pass_once(new)
    recording.settle("rest")

    assert recording.pass_once(new) == Completed("new")
    assert recording.names() == ["reserve", "nap", "__patch:receipts", "pay", "receipt", "rest"]


def test_code_without_the_patch_is_stopped_by_the_mark() -> None:
    """D17: the old worker of a rolling deploy names the patch it lacks and works nothing; the new one goes on."""
    recording = asleep(new, "nap")
    rows = dict(recording.rows)
    recording.reaches.clear()

    message = conflict(recording.pass_once(old))

    assert "expected patch 'receipts', found step 'charge'" in message
    assert (recording.rows, recording.reaches) == (rows, [])
    recording.settle("rest")
    assert recording.pass_once() == Completed("new")


def test_a_mark_alone_keeps_the_old_code_out() -> None:
    """D17: the process may die between the mark and the first changed step; the old branch is not taken by whoever comes next."""

    def dies(wf: Workflow) -> Any:
        wf.do("reserve", job("reserve"))
        wf.sleep("nap", 1)
        assert wf.patched("receipts")
        raise SystemExit

    recording = asleep(new)
    recording.settle("nap")
    with pytest.raises(SystemExit):
        recording.pass_once(dies)
    assert recording.names() == ["reserve", "nap", "__patch:receipts"]

    assert "expected patch 'receipts', found step 'charge'" in conflict(recording.pass_once(old))
    assert recording.names() == ["reserve", "nap", "__patch:receipts"]


def test_the_first_answer_holds_for_the_whole_run() -> None:
    """D17: a loop that is half done is not switched in its middle, whichever way the first answer was."""

    def before(wf: Workflow) -> Any:
        for _ in range(3):
            wf.do("step", job("old"))
            wf.sleep("nap", 1)

    def after(wf: Workflow) -> Any:
        answers = []
        for _ in range(3):
            answers.append(wf.patched("loop"))
            wf.do("step", job("new" if answers[-1] else "old"))
            wf.sleep("nap", 1)
        return answers

    recording = asleep(before)
    recording.body = after
    assert recording.run_to_end() == [False, False, False]
    assert "__patch:loop" not in recording.names()

    fresh = Recording(after)
    assert fresh.run_to_end() == [True, True, True]
    assert fresh.names().count("__patch:loop") == 1


def test_patches_one_after_another_are_answered_each_for_itself() -> None:
    """D17: a run between two changes has the first and gets the second."""

    def first(wf: Workflow) -> Any:
        wf.do("a", job("new" if wf.patched("one") else "old"))
        wf.sleep("nap", 1)
        wf.do("b", job("old"))
        return None

    def second(wf: Workflow) -> Any:
        wf.do("a", job("new" if wf.patched("one") else "old"))
        wf.sleep("nap", 1)
        wf.do("b", job("new" if wf.patched("two") else "old"))
        return "both"

    recording = asleep(first)
    recording.body = second
    assert recording.run_to_end() == "both"
    assert recording.names() == ["__patch:one", "a", "nap", "__patch:two", "b"]


def test_a_patch_that_moved_is_a_conflict() -> None:
    """D17: its mark stands at one place of the run; at another nothing is guessed."""

    def moved(wf: Workflow) -> Any:
        wf.patched("receipts")
        wf.do("reserve", job("reserve"))

    recording = asleep(new, "nap")

    assert "expected step 'reserve'" in conflict(recording.pass_once(moved))


def test_a_patch_taken_out_too_early_is_a_conflict_that_names_it() -> None:
    """D17: runs with the mark are there still; the branch may go once no run without the mark is left, the call once no run is."""

    def without(wf: Workflow) -> Any:
        wf.do("reserve", job("reserve"))
        wf.sleep("nap", 1)
        wf.do("pay", job("pay"))

    def without_branch(wf: Workflow) -> Any:
        wf.do("reserve", job("reserve"))
        wf.sleep("nap", 1)
        wf.patched("receipts")
        wf.do("pay", job("pay"))
        wf.do("receipt", job("receipt"))
        wf.sleep("rest", 1)
        return "bare"

    recording = asleep(new, "nap")
    assert "expected patch 'receipts', found step 'pay'" in conflict(recording.pass_once(without))
    recording.settle("rest")
    assert recording.pass_once(without_branch) == Completed("bare")


def test_what_was_submitted_before_a_patch_keeps_its_place() -> None:
    """D17: parallel steps in flight across the change belong to both codes."""

    def before(wf: Workflow) -> Any:
        handle = wf.submit("a", job("x", 1))
        wf.map(task("print"), [1, 2])
        return handle.result()

    def after(wf: Workflow) -> Any:
        handle = wf.submit("a", job("x", 1))
        is_new = wf.patched("fan")
        wf.map(task("stamp" if is_new else "print"), [1, 2])
        return [is_new, handle.result()]

    recording = asleep(before)
    recording.body = after
    assert recording.run_to_end() == [False, [1]]

    fresh = Recording(after)
    assert fresh.run_to_end() == [True, [1]]
    assert fresh.names() == ["a", "__patch:fan", "stamp[0]", "stamp[1]"]


@pytest.mark.parametrize("patch_id", ["", "a[0]", "a#1", "x:compensate", "x" * 201, None, 7])
def test_an_id_that_can_be_no_mark_is_refused(patch_id: Any) -> None:
    """The id is part of a step's name, so it has what a name may have."""
    outcome = Recording(lambda wf: wf.patched(patch_id)).pass_once()

    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, StepNameError)
