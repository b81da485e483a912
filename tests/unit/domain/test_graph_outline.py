"""What a graph plans before it runs, and whether it always keeps to that (spec 1.3, D16)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pikkuflow.domain.graph_input import ref
from pikkuflow.domain.graph_outline import outline_of
from tests.unit.domain.made_graphs import Made, onward_graphs
from tests.unit.domain.walking import Strider, graph


def test_a_straight_line_is_certain_and_in_its_order() -> None:
    """V10: in the order of the walk, whatever order it was written in; gates by the names of their steps, sleeps by their ids."""
    line = graph(
        "a",
        gate={"approval": "release", "next": "last"},
        last={"input": [ref("a"), ref("trigger", "x")]},
        a={"next": "nap"},
        nap={"sleep": 1, "next": ["gate"]},
    )

    assert outline_of(line) == (("a", "nap", "__workflow_approval:release", "last"), True)


@pytest.mark.parametrize(
    "nodes",
    [
        {"a": {"next": {"x": "b", "y": "c"}}, "b": None, "c": None},
        {"a": ["b", "c"], "b": None, "c": None},
        {"a": {"next": "b", "recover": "c"}, "b": None, "c": None},
        {"a": {"next": "b", "recover": "ignore"}, "b": "c", "c": None},
        {"a": "b", "b": {"next": {"again": "a", "on": "c"}}, "c": None},
        {"a": "b", "b": None, "c": None},
        {"a": "b", "b": {"next": "c", "input": ref("c")}, "c": None},
    ],
    ids=["branches", "fork", "recover", "ignore", "cycle", "out of reach", "waits for a later one"],
)
def test_what_branches_lists_every_arm_and_is_not_certain(nodes: dict[str, Any]) -> None:
    """V10, spec 1.3: all steps in the order of the definition."""
    assert outline_of(graph("a", **nodes)) == (("a", "b", "c"), False)


def test_several_entries_are_not_certain() -> None:
    """Spec 1.3: a run may begin with one of them."""
    assert outline_of(graph(["a", "b"], a=None, b=None)) == (("a", "b"), False)


def test_a_list_leaves_no_plan() -> None:
    """V10, spec 1.3: any fan-out, since its items are not known before."""
    assert outline_of(graph("a", a="b", b={"for_each": "trigger"})) == (None, False)


@given(onward_graphs())
def test_a_certain_plan_is_what_is_begun_and_any_plan_has_all_of_it(made: Made) -> None:
    """V10: against walks of made-up graphs: nothing is begun that was not planned; of a certain plan everything, in its order."""
    planned, is_certain = outline_of(made.graph)
    strider = Strider(made.graph, lambda begin: made.outcomes[begin.node.id], choose=made.choose)
    strider.go()

    assert planned is not None
    assert {name.partition("#")[0] for name in strider.names} <= set(planned)
    if is_certain:
        assert strider.names == list(planned)


@given(st.integers(1, 6), st.data())
def test_a_line_of_any_length_is_certain(length: int, data: st.DataObject) -> None:
    """V10: linear means deterministic and in order, and a walk takes just these."""
    ids = [f"n{at}" for at in range(length)]
    nodes: dict[str, Any] = {}
    for at, node_id in enumerate(ids):
        read = data.draw(st.lists(st.sampled_from(ids[:at]), max_size=2)) if at else []
        nodes[node_id] = {"next": ids[at + 1 : at + 2], "input": [ref(one) for one in read]}
    shuffled = data.draw(st.permutations(ids))
    line = graph("n0", **{node_id: nodes[node_id] for node_id in shuffled})
    strider = Strider(line)
    strider.go()

    assert outline_of(line) == (tuple(ids), True)
    assert strider.names == ids
