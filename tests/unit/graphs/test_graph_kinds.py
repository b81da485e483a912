"""Nodes that are no task: child workflows, sleeps and milestones; and how long a graph may take (spec 3.5)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow import ref
from pikkuflow.errors import RunFailed
from tests.unit.graphs.stage import Stage


def test_a_node_may_be_a_workflow(stage: Stage) -> None:
    """Spec 3.5: a child run, awaited; a graph may nest in a graph, a function in a graph."""

    @stage.pikku.workflow(name="double")
    def double(wf: Any, number: int) -> int:
        wf.sleep("1h")
        return number * 2

    stage.graph("x", name="inner", x={"input": [ref("trigger", "n")]})
    stage.play(
        trigger={"n": 21},
        a={"task": "double", "input": [ref("trigger", "n")], "next": "b"},
        b={"task": "inner", "input": {"n": ref("a")}},
    )

    assert stage.value("a") == 42
    assert stage.status == "completed"
    child = stage.step("b").child_run_id
    assert child is not None
    assert stage.world.runtime.codec.decode(stage.world.store.list_steps(child)[0].result or "") == [42]


def test_a_nested_workflow_has_no_heartbeat(stage: Stage) -> None:
    """As for ``wf.do``: its steps have one; the node is named."""
    stage.graph("x", name="inner", x=None)
    run = stage.play(a={"task": "inner", "heartbeat_timeout": "5s"})

    with pytest.raises(RunFailed, match="Node 'a' is a run of its own and has no heartbeat"):
        run.result(timeout=0)


def test_a_nested_workflow_may_have_a_timeout(stage: Stage) -> None:
    """As for ``wf.do``: of the child's whole run; the node fails, and may be recovered."""
    stage.graph("x", name="inner", x={"sleep": "1d"})
    stage.play(a={"task": "inner", "timeout": "1h", "recover": "b"}, b=None)

    assert stage.diary == ["b"]
    assert stage.status == "completed"


def test_a_graph_may_have_a_timeout(stage: Stage) -> None:
    """Of the whole run, as a workflow function has; a start may say otherwise."""
    nodes: dict[str, Any] = {"a": {"task": "do", "next": "b"}, "b": {"sleep": "1d"}}
    flow = stage.pikku.graph("flow", nodes=nodes, entry="a", timeout="1h")
    stage.start(flow)

    assert stage.code == "RUN_TIMEOUT"
    assert stage.diary == ["a", "una"]


def test_sleeps_and_milestones_are_nodes(stage: Stage) -> None:
    """Spec 3.5: a sleep's length may be known only at run time."""
    stage.says = {"a": {"wait": "2h"}}
    begun = stage.world.clock.now()
    stage.play(a="b", b={"sleep": ref("a", "wait"), "next": "m"}, m={"milestone": "rested", "next": "c"}, c=None)

    assert (stage.world.clock.now() - begun).total_seconds() >= 7200
    assert stage.begun() == [("a", None), ("b", "a"), ("__milestone:rested", "b"), ("c", "__milestone:rested")]
    assert stage.status == "completed"


def test_a_sleep_that_is_no_duration_fails_the_run(stage: Stage) -> None:
    """Bad input: what the reference gave is named."""
    stage.says = {"a": {"wait": "soon"}}
    run = stage.play(a="b", b={"sleep": ref("a", "wait")})

    with pytest.raises(RunFailed, match="soon"):
        run.result(timeout=0)
