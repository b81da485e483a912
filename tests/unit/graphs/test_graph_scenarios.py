"""Scenarios of the specification that a graph run has to pass as a function's does."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow import current_step, ref
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.engine.orchestrate import orchestrate
from pikkuflow.errors import PikkuFlowError
from tests.unit.graphs.stage import Stage, staged


def _try_thrice(*_: Any) -> str:
    step = current_step().step
    current_step().branch("done" if step == "attempt#2" else "again")
    return f"by {step}"


def test_three_rounds_of_a_cycle_are_three_steps_in_every_place(stage: Stage) -> None:
    """V3: exact names and results, one attempt each, exact predecessors; the way is found again from its end, and each state from the rows.

    The rows are these wherever they were worked, also in an inline run.
    """
    stage.says = {"attempt": _try_thrice}
    stage.play(
        "attempt",
        attempt={"next": {"again": "attempt", "done": "report"}},
        report={"input": [ref("attempt")]},
    )

    names = ["attempt", "attempt#1", "attempt#2", "report"]
    assert stage.begun() == list(zip(names, [None, *names], strict=False))
    assert [stage.value(name) for name in names] == ["by attempt", "by attempt#1", "by attempt#2", ["by attempt#2"]]
    assert {(row.attempt, row.status) for row in stage.steps()} == {(1, StepStatus.SUCCEEDED)}
    way, at = [], stage.step("report")
    while at.from_step is not None:
        way.append(at.from_step)
        at = stage.step(at.from_step)
    assert way == names[-2::-1]
    moments = sorted([(row.begun_no, "begun", row.name) for row in stage.steps()])
    moments += [(row.settled_no or 0, "settled", row.name) for row in stage.steps()]
    assert [(what, name) for _, what, name in sorted(moments)] == [
        (what, name) for name in names for what in ("begun", "settled")
    ]


def test_a_message_for_a_held_graph_run_leaves_a_hint_and_begins_nothing() -> None:
    """T8.3, D11: as for a function: one hint a second ahead, no node is begun, and the run stays running."""
    with staged("here") as stage:
        stage.run = stage.graph(a="b", b=None).using(run_id="r1").start(None)
        stage.world.lose_messages()
        runtime = stage.world.runtime
        assert runtime.leases is not None
        runtime.leases.acquire("workflow-run:r1", "other:1:theirs", 30)

        orchestrate(runtime, [RunId("r1")])

        assert stage.world.hints.due_in_seconds(RunId("r1")) == pytest.approx(1)
        assert stage.steps() == ()
        assert stage.run.head().status is RunStatus.RUNNING


def test_a_start_node_is_one_of_the_entries(stage: Stage) -> None:
    """T15.1: any other node is refused before a run exists; an entry is begun with."""
    flow = stage.graph(["a", "b"], a=None, b="c", c=None)

    with pytest.raises(PikkuFlowError, match="'c' is no entry"):
        stage.start(flow, start_node="c")
    assert stage.world.store.get_run(RunId("r1")) is None

    stage.start(flow, start_node="b")
    assert stage.begun() == [("b", None), ("c", "b")]
