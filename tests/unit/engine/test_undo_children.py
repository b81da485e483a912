"""Undoing parents and their child runs, over memory (spec 2.12, T11.28 to T11.33)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import RunStatus
from pikkuflow.engine.run_inline import run_inline
from tests.unit.engine.bench import Child, Task
from tests.unit.engine.shop import Shop, step


def test_a_completed_child_is_undone_as_one_unit() -> None:
    """T11.28: newest first inside it, and between what came before and after it."""
    shop = Shop()

    def child(wf: Any) -> None:
        wf.do(step("a"))
        wf.do(step("b"))

    def parent(wf: Any) -> None:
        wf.do("before", step("c", 1))
        wf.do(Child("child"))
        wf.do("after", step("c", 2))
        raise ValueError("no")

    shop.run(parent, child)

    assert shop.diary == ["c", "a", "b", "c", "unc[2]", "unb[]", "una[]", "unc[1]"]
    assert shop.status is RunStatus.COMPENSATED
    assert shop.child.status is RunStatus.COMPENSATED


def test_what_rests_on_a_child_of_an_inline_run_is_undone_before_it() -> None:
    """T11.28, found by the simulation: the pass that worked the child goes on with its result."""
    shop = Shop()

    def child(wf: Any) -> None:
        wf.do(step("a"))

    def parent(wf: Any) -> None:
        wf.do(Child("child"))
        wf.do(step("b"))
        wf.do(step("c"))
        raise ValueError("no")

    shop.bench.workflow(child, name="child")
    shop.bench.workflow(parent, name="flow")
    shop.bench.store.insert_runs([shop.bench.new_run("flow", inline=True)])
    run_inline(shop.bench.other(has_broker=False), RunId("r1"))

    assert shop.diary == ["a", "b", "c", "unc[]", "unb[]", "una[]"]
    assert shop.status is RunStatus.COMPENSATED


def test_a_milestone_after_a_child_of_an_inline_run_keeps_the_child() -> None:
    """T11.28: nothing before a milestone is undone."""
    shop = Shop()

    def child(wf: Any) -> None:
        wf.do(step("a"))

    def parent(wf: Any) -> None:
        wf.do(Child("child"))
        wf.milestone("paid")
        raise ValueError("no")

    shop.bench.workflow(child, name="child")
    shop.bench.workflow(parent, name="flow")
    shop.bench.store.insert_runs([shop.bench.new_run("flow", inline=True)])
    run_inline(shop.bench.other(has_broker=False), RunId("r1"))

    assert shop.diary == ["a"]
    assert shop.child.status is RunStatus.COMPLETED


def test_a_child_that_was_opted_out_is_kept() -> None:
    """T11.29."""
    shop = Shop()

    def child(wf: Any) -> None:
        wf.do(step("a"))

    def parent(wf: Any) -> None:
        wf.do(Child("child"), compensate=False)
        wf.do(step("b"))
        raise ValueError("no")

    shop.run(parent, child)

    assert shop.diary == ["a", "b", "unb[]"]
    assert shop.child.status is RunStatus.COMPLETED


def test_a_child_with_nothing_to_undo_stays_completed() -> None:
    """The unwind of its parent goes on at once."""
    shop = Shop()

    def child(wf: Any) -> None:
        wf.do(Task("b"))

    def parent(wf: Any) -> None:
        wf.do(step("a"))
        wf.do(Child("child"))
        raise ValueError("no")

    shop.run(parent, child)

    assert shop.diary == ["a", "b", "una[]"]
    assert shop.child.status is RunStatus.COMPLETED


def test_a_failing_child_unwinds_itself_and_then_its_parent() -> None:
    """T11.30."""
    shop = Shop()

    def child(wf: Any) -> None:
        wf.do(step("b"))
        raise ValueError("of the child")

    def parent(wf: Any) -> None:
        wf.do(step("a"))
        wf.do(Child("child"))

    shop.run(parent, child)

    assert shop.diary == ["a", "b", "unb[]", "una[]"]
    assert shop.status is RunStatus.COMPENSATED
    assert shop.child.status is RunStatus.COMPENSATED
    assert "of the child" in shop.bench.error()


@pytest.mark.parametrize("ends", ["fails", "is undone"])
def test_a_stuck_child_makes_its_parent_stuck(ends: str) -> None:
    """T11.31: what came before it is untouched, whether it failed itself or was undone by its parent."""
    shop = Shop()
    shop.fails["b"] = 100

    def child(wf: Any) -> None:
        wf.do(step("b"))
        if ends == "fails":
            raise ValueError("of the child")

    def parent(wf: Any) -> None:
        wf.do(step("a"))
        wf.do(Child("child"))
        raise ValueError("no")

    shop.run(parent, child)

    assert shop.status is RunStatus.COMPENSATION_FAILED
    assert [stuck["stepName"] for stuck in shop.bench.output()["stuckSteps"]] == ["child"]
    assert "una[]" not in shop.diary


@pytest.mark.parametrize("ends", ["fails", "is undone"])
def test_a_child_that_rests_at_its_milestone_makes_its_parent_rest_there(ends: str) -> None:
    """T11.32."""
    shop = Shop()

    def child(wf: Any) -> None:
        wf.do(step("b"))
        wf.milestone("shipped")
        wf.do(step("c"))
        if ends == "fails":
            raise ValueError("of the child")

    def parent(wf: Any) -> None:
        wf.do(step("a"))
        wf.do(Child("child"))
        raise ValueError("no")

    shop.run(parent, child)

    assert shop.status is RunStatus.COMPENSATED
    assert shop.bench.output() == {"restedAt": "shipped"}
    assert shop.diary == ["a", "b", "c", "unc[]"]


def test_a_child_that_plainly_failed_fails_its_parent() -> None:
    """T11.33."""
    shop = Shop()

    def child(wf: Any) -> None:
        raise ValueError("of the child")

    def parent(wf: Any) -> None:
        wf.do(Child("child"))

    shop.run(parent, child)

    assert shop.status is RunStatus.FAILED
    assert shop.child.status is RunStatus.FAILED


def test_children_that_are_at_work_are_stopped_when_their_parent_fails() -> None:
    """Failure goes down as well: the child is called off, undone, and then its parent is."""
    shop = Shop()

    def child(wf: Any) -> None:
        wf.do(step("b"))
        wf.sleep("1d")

    def parent(wf: Any) -> None:
        wf.do(step("a"))
        wf.submit(Child("child"))
        wf.do(step("c"))
        wf.sleep(5)
        raise ValueError("no")

    shop.run(parent, child)

    assert shop.child.status is RunStatus.COMPENSATED
    assert shop.child.code == "WORKFLOW_CANCELLED"
    assert shop.status is RunStatus.COMPENSATED
    assert sorted(shop.diary[3:5]) == ["unb[]", "unc[]"]
    assert shop.diary[5] == "una[]"


def test_a_detached_child_outlives_its_parent() -> None:
    """Issue D: its run goes on, and is neither waited for, told nor undone."""
    shop = Shop()
    found: list[str] = []

    def child(wf: Any) -> str:
        wf.sleep(60)
        wf.do(step("b"))
        return "late"

    def parent(wf: Any) -> None:
        wf.do(step("a"))
        found.append(wf.do(Child("child"), detached=True).run_id)
        raise ValueError("no")

    shop.run(parent, child)

    assert shop.status is RunStatus.COMPENSATED
    assert shop.diary == ["a", "una[]"]
    shop.bench.pass_time(61)
    assert shop.bench.output(found[0]) == "late"
    assert '"parentRunId": "r1"' in shop.bench.run(found[0]).wire
