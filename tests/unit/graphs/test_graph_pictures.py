"""A run is drawn with what became of each of its steps (issue E, T13.18)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow import Workflow, WorkflowDefinitionError, current_step, ref
from pikkuflow.errors import SettingError
from tests.unit.graphs.stage import Stage, staged
from tests.unit.graphs.test_graph_versions import change


def played(stage: Stage) -> Stage:
    """A cycle of three rounds, a list, a failure that is recovered, and a gate that the run waits at."""
    keys = iter(["again", "again", "out"])

    def choose(*_: Any, **__: Any) -> None:
        current_step().branch(next(keys))

    stage.says = {"b": choose, "bad": ValueError("boom")}
    stage.play(
        trigger={"skus": ["tea", "cup"]},
        a="b",
        b={"next": {"again": "a", "out": ["each", "bad"]}},
        each={"for_each": ref("trigger", "skus"), "next": "gate"},
        bad={"retries": 0, "recover": "fix"},
        fix=None,
        gate={"approval": "release", "next": {"decided": "last"}},
        last=None,
    )
    return stage


def test_a_graph_run_is_drawn_with_the_status_of_each_node(stage: Stage) -> None:
    """T13.18, issue E, Build 5: per-node status, begins of a cycle by their numbers, items counted, and the way that the run went."""
    played(stage)

    lines = [line.strip() for line in stage.run.picture("text").splitlines()]

    assert lines[0] == "flow run r1: suspended"
    heads = [line for line in lines if line.startswith("[")]
    assert heads == [
        "[S] a (entry) - succeeded",
        "[S] b - succeeded",
        "[S] each - succeeded",
        "[F] bad - failed",
        "[S] fix - succeeded",
        "[W] gate - suspended",
        "[.] last - not begun",
    ]
    assert lines.count("begun 3 times: #0 succeeded, #1 succeeded, #2 succeeded") == 2
    assert {
        "2 items: 2 succeeded",
        "==> a (again, 2 times)",
        "==> gate",
        "..> fix (recover)",
        "--> last (decided)",
    } <= {*lines}


def test_what_was_undone_hangs_on_its_node_dotted(stage: Stage) -> None:
    """Issue E: compensations of all begins and items of a node are one node more; what was never begun was left out."""
    played(stage)
    stage.run.cancel("enough")
    stage.go_on()

    lines = [line.strip() for line in stage.run.picture("text").splitlines()]

    assert lines[0] == "flow run r1: compensated"
    assert lines[lines.index("[S] undo a - succeeded") + 1] == "3 compensations: 3 succeeded"
    assert lines[lines.index("[S] undo each - succeeded") + 1] == "2 compensations: 2 succeeded"
    assert "[S] undo fix - succeeded" in lines
    assert "[C] gate - cancelled" in lines
    assert "[-] last - left out" in lines
    assert "-.->" in stage.run.picture()


def test_a_run_is_drawn_on_the_graph_that_it_was_started_with() -> None:
    """Spec 3.7: a later version of the graph changes no picture of a run that began before it."""
    with staged("here") as stage:
        stage.play(a="gate", gate={"suspend": "courier", "next": "old"}, old=None)
        before = stage.run.picture("text")
        change(stage)

        assert stage.run.picture("text") == before
        assert "old" in before
        assert stage.pikku.workflow_named("flow").picture("text").splitlines() == [
            "flow",
            "  [ ] other (entry)",
            "        task do",
        ]


def test_a_run_of_a_function_is_drawn_as_it_was_recorded() -> None:
    """Issue E: steps in order, parallel ones beside each other, a map as one node with its count, children, undoing dotted."""
    with staged("here") as stage:
        work = stage.pikku.app.tasks["do"]

        @stage.pikku.workflow(name="child")
        def child(wf: Workflow) -> int:
            return int(wf.do("inner", lambda: 1))

        @stage.pikku.workflow(name="shop")
        def shop(wf: Workflow) -> None:
            wf.do("first", lambda: 1)
            wf.gather(wf.submit("left", work.s(1)), wf.submit("right", work.s(2)))
            wf.map(work, [1, 2, 3], name="each")
            wf.do("nested", child.s())
            raise ValueError("at last")

        run = shop.using(run_id="r1").start()
        stage.world.settle()
        lines = run.picture("text").splitlines()

        assert lines[0] == "shop run r1: compensated"
        heads = [line.split(" - ")[0] for line in lines[1:] if "[" in line or line.endswith(":")]
        assert (
            heads
            == [
                "  [S] first (entry)",
                "  together:",
                "    [S] left",
                "    [S] undo left",
                "    [S] right",
                "    [S] undo right",
                "  [S] each",
                "  [S] undo each",
                "  [S] nested",
                "  [S] undo nested",
            ]
            or heads[-1] == "  [S] nested"
        )
        shown = [line.strip() for line in lines]
        assert shown.count("==> each") == 2
        assert "3 members: 3 succeeded" in shown
        assert "workflow child" in shown
        assert any(line.startswith("run ") for line in shown)
        assert "subgraph together1" in run.picture("mermaid")


def test_what_cannot_be_drawn_is_one_clear_error() -> None:
    """Issue E: a function that plans nothing has no picture before it runs; there is no other form."""
    with staged("here") as stage:

        @stage.pikku.workflow(name="shop")
        def shop(wf: Workflow) -> int:
            return int(wf.do("first", lambda: 1))

        with pytest.raises(WorkflowDefinitionError, match="nothing to draw before it runs"):
            shop.picture()
        run = shop.run_inline()
        with pytest.raises(SettingError, match="no picture in the form 'png'"):
            run.picture("png")
