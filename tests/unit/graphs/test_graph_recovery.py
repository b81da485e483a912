"""Nodes that fail: recovered, ignored, or undone (spec 3.6, 2.12)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow import current_step, ref
from pikkuflow.domain.act import RunRef
from pikkuflow.domain.ids import RunId
from pikkuflow.errors import RunFailed
from tests.unit.graphs.stage import ON_WORKERS, Stage

FAILS = {"retries": 0}


def _recovering(*_: Any, **__: Any) -> Any:
    found = current_step().recovering_from
    return None if found is None else [found.node, found.step, found.error, found.error_type]


def test_a_recover_node_is_told_what_failed(stage: Stage) -> None:
    """T13.16: node, step and error; a node that is reached normally sees nothing, nor does a later one."""
    stage.says = {"a": ValueError("boom"), "fix": _recovering, "after": _recovering}
    stage.play(a={**FAILS, "next": "b", "recover": "fix"}, b=None, fix="after", after=None)

    assert stage.value("fix") == ["a", "a", "boom", "ValueError"]
    assert stage.value("after") is None
    assert stage.begun() == [("a", None), ("fix", "a"), ("after", "fix")]
    assert stage.status == "completed"


def test_each_failure_is_recovered_by_itself(stage: Stage) -> None:
    """T13.16: two nodes with one recover node; neither is undone later, and each is told of its own."""
    stage.says = {"b": ValueError("one"), "c": ValueError("two"), "fix": _recovering, "e": ValueError("dead")}
    fails: Any = {**FAILS, "recover": "fix"}
    stage.play(a=["b", "c"], b=fails, c=fails, fix="d", d={"sleep": 1, "next": "e"}, e={**FAILS, "compensate": False})

    assert sorted(stage.value(name)[2] for name in ("fix", "fix#1")) == ["one", "two"]
    assert sorted(line for line in stage.diary if line.startswith("un")) == ["una", "unfix", "unfix#1"]
    assert stage.status == "compensated"


def test_recover_nodes_chain(stage: Stage) -> None:
    """T13.16: each sees its own predecessor's error."""
    stage.says = {"a": ValueError("one"), "fix": KeyError("two"), "fix2": _recovering}
    stage.play(a={**FAILS, "recover": "fix"}, fix={**FAILS, "recover": "fix2"}, fix2=None)

    assert stage.value("fix2")[:3] == ["fix", "fix", "'two'"]


def test_an_ignored_failure_lets_the_run_go_on(stage: Stage) -> None:
    """T13.16: ``next`` fires; what reads it finds nothing; the node after it is reached normally."""
    stage.says = {"a": ValueError("boom"), "c": _recovering}
    stage.play(a={**FAILS, "recover": "ignore", "next": ["b", "c"]}, b={"input": [ref("a"), 1]}, c=None)

    assert stage.value("b") == [None, 1]
    assert stage.value("c") is None
    assert stage.status == "completed"


def test_who_reads_a_recovered_failure_is_skipped(stage: Stage) -> None:
    """T13.16: not waited for; the run completes."""
    stage.says = {"b": ValueError("boom")}
    stage.play(a=["b", "c"], b={**FAILS, "recover": "fix"}, c="d", d={"input": [ref("b")]}, fix=None)

    assert sorted(name for name, _ in stage.begun()) == ["a", "b", "c", "fix"]
    assert stage.status == "completed"


def test_a_recovered_failure_is_not_undone(stage: Stage) -> None:
    """T13.16, spec 3.6: recovery takes precedence; when the run fails later, the recovered node is left alone and the others are undone."""
    stage.says = {"b": ValueError("boom"), "d": ValueError("dead")}
    stage.play(a="b", b={**FAILS, "recover": "c"}, c="d", d={**FAILS})

    assert stage.status == "compensated"
    assert [line for line in stage.diary if line.startswith("un")] == ["und?", "unc", "una"]


def test_the_items_of_a_recovered_fan_out_are_not_undone(stage: Stage) -> None:
    """Spec 3.6: a node that is recovered is left alone as a whole, also the items that succeeded."""
    stage.says = {"a[1]": ValueError("boom"), "b": ValueError("dead")}
    fails: Any = {**FAILS, "for_each": "trigger", "recover": "fix"}
    stage.play(trigger=[1, 2], a=fails, fix="b", b={**FAILS, "compensate": False})

    assert [line for line in stage.diary if line.startswith("un")] == ["unfix"]
    assert stage.status == "compensated"


def test_a_failing_recover_node_falls_through_to_undoing(stage: Stage) -> None:
    """T13.16: unrecovered, with the code of the spec; the recovered failure is still left alone."""
    stage.says = {"b": ValueError("boom"), "fix": ValueError("worse")}
    run = stage.play(a="b", b={**FAILS, "recover": "fix"}, fix={**FAILS})

    with pytest.raises(RunFailed, match="worse"):
        run.result(timeout=0)
    assert (stage.status, stage.code) == ("compensated", "GRAPH_NODE_FAILED")
    assert [line for line in stage.diary if line.startswith("un")] == ["unfix?", "una"]


def test_with_nothing_to_undo_the_run_is_failed(stage: Stage) -> None:
    """T13.7, T13.17: plainly, with the node's error and the code of a node."""
    stage.says = {"a": ValueError("boom")}
    run = stage.play(a={**FAILS, "compensate": False, "next": "b"}, b=None)

    with pytest.raises(RunFailed, match="boom"):
        run.result(timeout=0)
    assert (stage.status, stage.code) == ("failed", "GRAPH_NODE_FAILED")
    assert stage.diary == ["a"]


def test_nodes_are_undone_newest_first(stage: Stage) -> None:
    """T13.17: per node, parallel branches included; ``compensate: false`` leaves one out; a milestone bounds it."""
    stage.says = {"d": ValueError("dead")}
    stage.play(
        a=["b", "c"],
        b="j",
        c={"compensate": False},
        j={"input": [ref("b"), ref("c")], "next": "d"},
        d={**FAILS},
    )

    undone = [line for line in stage.diary if line.startswith("un")]
    assert undone == ["und?", "unj", "unb", "una"]
    assert stage.status == "compensated"


def test_every_item_of_a_fan_out_is_undone(stage: Stage) -> None:
    """T13.17: each by itself; the list has nothing to undo."""
    stage.says = {"b": ValueError("dead")}
    stage.play(trigger=[1, 2], a={"for_each": "trigger", "next": "b"}, b={**FAILS, "compensate": False})

    assert sorted(line for line in stage.diary if line.startswith("un")) == ["una[0]", "una[1]"]
    assert stage.status == "compensated"


def test_a_nested_workflow_is_undone_as_one(stage: Stage) -> None:
    """T13.17, spec 2.12: a child that has completed undoes itself; one that failed has done so before its parent does."""
    stage.says = {"b": ValueError("dead")}
    stage.graph("w", name="inner", w={"next": "y"}, y=None)
    stage.play(a={"task": "inner", "next": "b"}, b={**FAILS})

    assert [line for line in stage.diary if line.startswith("un")] == ["unb?", "uny", "unw"]
    assert stage.status == "compensated"


def test_a_nested_workflow_that_fails_is_a_failed_node(stage: Stage) -> None:
    """Spec 2.4, 3.6: it may be recovered like any other; it has unwound itself."""
    stage.says = {"y": ValueError("dead"), "fix": _recovering}
    stage.graph("w", name="inner", w={"next": "y"}, y={**FAILS})
    stage.play(a={"task": "inner", "recover": "fix"}, fix=None)

    assert stage.value("fix")[:2] == ["a", "a"]
    assert "dead" in stage.value("fix")[2]
    assert [line for line in stage.diary if line.startswith("un")] == ["uny?", "unw"]
    assert stage.status == "completed"


def test_a_stuck_compensation_is_named(stage: Stage) -> None:
    """T13.17: what came before it is left alone."""

    @stage.pikku.app.task(name="sticky", shared=False)
    def sticky() -> None: ...

    @stage.pikku.compensates(sticky)
    def unstick(_undo: Any) -> None:
        raise ValueError("glued")

    stage.says = {"c": ValueError("dead")}
    stage.play(a="b", b={"task": "sticky", "retries": 0, "input": [], "next": "c"}, c={**FAILS, "compensate": False})

    assert stage.status == "compensation_failed"
    assert stage.run.status().stuck_steps == ({"stepName": "b", "error": "glued"},)
    assert "una" not in stage.diary


def test_an_unwind_rests_at_a_milestone(stage: Stage) -> None:
    """T13.17: what was done before it stays."""
    stage.says = {"c": ValueError("dead")}
    stage.play(a="m", m={"milestone": "paid", "next": "b"}, b="c", c={**FAILS})

    assert [line for line in stage.diary if line.startswith("un")] == ["unc?", "unb"]
    assert stage.run.status().rested_at == "paid"


@pytest.mark.parametrize("stage", ON_WORKERS, indirect=True)
def test_a_stray_message_does_not_recover_twice(stage: Stage) -> None:
    """T13.16: a duplicate message fires the recover node once."""
    stage.says = {"a": ValueError("boom")}
    flow = stage.graph(a={**FAILS, "recover": "fix"}, fix="s", s={"sleep": "1h"})
    stage.run = flow.using(run_id="r1").start(None)
    stage.world.work()
    for _ in range(3):
        stage.world.dispatcher.wake([RunRef(id=RunId("r1"), workflow="flow")])
        stage.world.work()

    assert stage.diary == ["a", "fix"]
    stage.world.settle()
    assert stage.status == "completed"


@pytest.mark.parametrize("stage", ON_WORKERS, indirect=True)
def test_a_cancelled_graph_is_undone(stage: Stage) -> None:
    """T13.17, spec 2.12: as any other run."""
    flow = stage.graph(a="b", b={"sleep": "1d", "next": "c"}, c=None)
    stage.run = flow.using(run_id="r1").start(None)
    stage.world.work()

    stage.run.cancel("enough")
    stage.world.settle()

    assert stage.status == "compensated"
    assert stage.diary == ["a", "una"]
