"""The plan of a graph run is its own from the start, and shown with it (spec 1.3, V10)."""

from __future__ import annotations

from itertools import islice

from pikkuflow import ref
from tests.unit.graphs.stage import Stage


def test_a_line_takes_just_the_steps_that_it_plans(stage: Stage) -> None:
    """V10: the flag and the plan are on the run, the first frame has them, and the rows are the plan."""
    run = stage.play(
        a="nap", nap={"sleep": 0, "next": "gate"}, gate={"approval": "release", "next": "b"}, b={"input": ref("a")}
    )
    summary = run.status()

    assert summary.deterministic
    assert summary.planned_steps == ("a", "nap", "__workflow_approval:release", "b")
    assert summary.to_dict()["plannedSteps"][2] == {"stepName": "__workflow_approval:release", "displayName": "release"}
    (first,) = islice(run.watch(), 1)
    assert (first["type"], [step["status"] for step in first["steps"]]) == (
        "init",
        ["succeeded", "succeeded", "suspended", "pending"],
    )

    run.approve("release")
    stage.go_on()

    assert tuple(step.name for step in stage.steps()) == summary.planned_steps
    assert run.status().planned_steps == summary.planned_steps


def test_a_list_and_branches_promise_nothing(stage: Stage) -> None:
    """V10: a fan-out has no plan, and neither it nor a branch the flag; no first frame is sent."""
    run = stage.play(trigger=[1], a={"for_each": ref("trigger"), "next": "b"}, b=None)

    assert (run.status().planned_steps, run.status().deterministic) == (None, False)
    assert "plannedSteps" not in run.status().to_dict()
    assert [frame["type"] for frame in run.watch()] == ["update", "done"]
