"""Nodes that are worked for each item of a list (spec 3.4)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from pikkuflow import current_step, ref, template
from pikkuflow.domain.ids import RunId
from pikkuflow.engine.orchestrate import orchestrate
from pikkuflow.errors import RunFailed
from tests.unit.graphs.stage import ON_WORKERS, Stage


def _lines(stage: Stage) -> list[tuple[str, Any]]:
    return [(step.name, stage.value(step.name)) for step in stage.steps()]


def test_each_item_is_a_step_of_its_own_and_the_node_is_their_list(stage: Stage) -> None:
    """T13.13, T13.14, T13.12: ``$item`` with a path and without, results in order, downstream once after every item."""
    stage.says = {"a": {"lines": [{"sku": 1}, {"sku": 2}]}}
    stage.play(
        a="b",
        b={"for_each": ref("a", "lines"), "input": [ref("$item", "sku"), ref("$item")], "next": "c"},
        c={"input": {"all": ref("b")}},
    )

    assert stage.value("b") == [[1, {"sku": 1}], [2, {"sku": 2}]]
    assert stage.value("c") == [stage.value("b")]
    assert stage.begun() == [("a", None), ("b[0]", "a"), ("b[1]", "a"), ("b", "a"), ("c", "b")]
    assert stage.diary.count("c") == 1


def test_an_item_without_an_input_is_the_one_argument(stage: Stage) -> None:
    """T13.13: as ``wf.map`` does it; an entry may fan out over the trigger, and other nodes are unaffected."""
    stage.play(trigger=[5, {"x": 6}], a={"for_each": "trigger", "next": "b"}, b=None)

    assert [stage.value(f"a[{at}]") for at in range(2)] == [[5], [{"x": 6}]]
    assert stage.value("b") == []


@pytest.mark.parametrize("stage", ON_WORKERS, indirect=True)
def test_a_parallel_fan_out_is_sent_in_one_pass(stage: Stage) -> None:
    """T13.14: parallel queues all in one pass; what follows stays put while items are in flight."""
    flow = stage.graph(a={"for_each": "trigger", "next": "b"}, b=None)
    stage.run = flow.using(run_id="r1").start([1, 2, 3])
    world = stage.world
    orchestrate(world.runtime, [RunId("r1")])

    assert [step.name for step in stage.steps()] == ["a[0]", "a[1]", "a[2]"]
    assert {step.status for step in stage.steps()} == {"scheduled"}
    assert {step.fan_id for step in stage.steps()} == {"a[0]"}
    assert stage.diary == []
    world.work()
    assert stage.diary == ["a[0]", "a[1]", "a[2]", "b"]
    assert stage.status == "completed"


@pytest.mark.parametrize("stage", ON_WORKERS, indirect=True)
def test_a_settled_fan_out_sends_nothing_again(stage: Stage) -> None:
    """T13.14: a stray wake-up while a later node waits."""
    flow = stage.graph(a={"for_each": "trigger", "next": "b"}, b={"sleep": "1h"})
    stage.run = flow.using(run_id="r1").start([1, 2, 3])
    stage.world.work()
    before = list(stage.diary)
    stage.world.dispatcher.wake([_ref()])
    stage.world.work()

    assert stage.diary == before
    assert not stage.world.dispatcher.messages


def _ref() -> Any:
    from pikkuflow.domain.act import RunRef  # noqa: PLC0415 - for this alone
    from pikkuflow.domain.ids import RunId  # noqa: PLC0415

    return RunRef(id=RunId("r1"), workflow="flow")


def test_a_sequential_fan_out_has_one_item_in_flight(stage: Stage) -> None:
    """T13.13, T13.14: never two at once, in their order; each after what led to the node."""
    stage.play(trigger=["x", "y", "z"], a={"for_each": "trigger", "mode": "sequential"})

    assert stage.diary == ["a[0]", "a[1]", "a[2]"]
    steps = stage.steps()
    assert all(one.settled_no < other.begun_no for one, other in pairwise(steps))  # type: ignore[operator]
    assert stage.value("a") == [["x"], ["y"], ["z"]]


def test_no_items_give_an_empty_list(stage: Stage) -> None:
    """T13.13: the node completes and what follows fires."""
    stage.play(trigger=[], a={"for_each": "trigger", "next": "b"}, b={"input": [ref("a")]})

    assert _lines(stage) == [("a", []), ("b", [[]])]


def test_what_is_no_list_fails_the_run_loudly(stage: Stage) -> None:
    """T13.13: with the node, the source and what it is."""
    stage.says = {"a": {"lines": "abc"}}
    run = stage.play(a="b", b={"for_each": ref("a", "lines")})

    with pytest.raises(
        RunFailed, match="Node 'b' is to be worked for each item of 'a' at 'lines', which is str and no list"
    ):
        run.result(timeout=0)
    assert stage.code == "GRAPH_NODE_FAILED"


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
def test_a_failing_item_fails_the_run(stage: Stage, mode: str) -> None:
    """T13.14: instead of stalling it; in a sequential one no further item begins."""
    stage.says = {"a[1]": ValueError("boom")}
    nodes: Any = {"a": {"for_each": "trigger", "mode": mode, "retries": 0, "compensate": False, "next": "b"}, "b": None}
    run = stage.play(trigger=[1, 2, 3], **nodes)

    with pytest.raises(RunFailed, match=r"Step 'a\[1\]' of run r1 failed after 1 attempt: ValueError: boom"):
        run.result(timeout=0)
    assert "b" not in stage.diary
    assert ("a[2]" in stage.diary) is (mode == "parallel")


def test_a_failed_fan_out_may_be_recovered(stage: Stage) -> None:
    """T13.16: the recover node sees the failure of its node."""
    stage.says = {"a[0]": ValueError("boom"), "fix": _recovering}
    stage.play(trigger=[1], a={"for_each": "trigger", "retries": 0, "recover": "fix"}, fix=None)

    assert stage.value("fix")[:2] == ["a", "a"]
    assert stage.status == "completed"


def _recovering(*_: Any) -> Any:
    from pikkuflow import current_step  # noqa: PLC0415 - the one task that asks

    found = current_step().recovering_from
    return None if found is None else [found.node, found.step, found.error]


def test_fan_outs_chain(stage: Stage) -> None:
    """T13.13: a list of results is the next source."""
    stage.play(
        trigger=[1, 2],
        a={"for_each": "trigger", "next": "b"},
        b={"for_each": "a", "input": template("<$0>", [ref("$item", "0")])},
    )

    assert stage.value("b") == [["<1>"], ["<2>"]]


def test_items_may_be_child_runs(stage: Stage) -> None:
    """Spec 3.4, 3.5: one child for each item."""

    @stage.pikku.workflow(name="double")
    def double(wf: Any, number: int) -> int:
        return number * 2

    stage.play(trigger=[1, 2], a={"task": "double", "for_each": "trigger"})

    assert stage.value("a") == [2, 4]


def test_a_fan_out_goes_round_with_its_cycle(stage: Stage) -> None:
    """T13.6: members of a repeat are ``node#1[i]``."""
    visits = []

    def again(*_: Any) -> None:
        from pikkuflow import current_step  # noqa: PLC0415 - as above

        visits.append(1)
        current_step().branch("again" if len(visits) == 1 else "out")

    stage.says = {"b": again}
    stage.play(trigger=[7], a={"for_each": "trigger", "next": "b"}, b={"next": {"again": "a", "out": []}})

    assert [name for name, _ in stage.begun()] == ["a[0]", "a", "b", "a#1[0]", "a#1", "b#1"]
    assert stage.status == "completed"


def test_the_items_of_a_list_are_those_that_were_there_when_it_was_planned(stage: Stage) -> None:
    """Spec 3.4, docs/graphs.md: also when the node that gave them gives others in place before the list's first item has its row."""

    def turn() -> None:
        current_step().branch({"turn": "one", "turn#1": "both"}.get(current_step().step, "none"))

    def source() -> list[int]:
        return [1, 2] if current_step().step == "source" else [1, 2, 3]

    stage.says = {"turn": turn, "source": source}
    stage.play(
        "turn",
        turn={"next": {"one": "source", "both": ["source", "each"], "none": []}},
        source={"next": "turn", "dispatch": "inline"},
        each={"for_each": ref("source"), "next": "turn"},
    )

    assert stage.status == "completed"
    assert [name for name, _ in stage.begun() if name.startswith("each")] == ["each[0]", "each[1]", "each"]
