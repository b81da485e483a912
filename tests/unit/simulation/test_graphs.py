"""The simulation finds what can be wrong with graph runs, and their judge says so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation.generate import plan_of
from tests.simulation.graph_mutations import GRAPH_MUTATIONS
from tests.simulation.graphs import graphs_in
from tests.simulation.mutations import Mutation
from tests.simulation.plan import Act, Child, Do, Gate, Map, Milestone, Node, Plan, Sleep, Start
from tests.simulation.shrink import find

_NODES = (
    Node(Do("a", act=Act(fails=1)), next=("b", "list", "beneath")),
    Node(Do("b", dispatch="queue"), next=("join",)),
    Node(Map("list", (Act(), Act(seconds=1.0), Act(fails=1))), next=("join",), items=None),
    Node(Child("beneath", (Do("s"),))),
    Node(
        Do("join"),
        branches=(("x", ("a",)), ("y", ("bad",))),
        chooses=("x", "x", "y"),
        reads=("b", "list"),
    ),
    Node(Do("bad", act=Act(fails=9), retries=1), recover=("mend",)),
    Node(Do("mend", leaves=True), next=("each",)),
    Node(Map("each", (Act(), Act()), window=1), items="list"),
)


def _plans() -> Iterator[Plan]:
    """Those of the generated plans that have a graph."""
    return (plan for plan in map(plan_of, range(5000)) if any(start.nodes for start in plan.starts))


@pytest.mark.parametrize("seed", range(10))
def test_a_graph_needs_no_sweep_where_nothing_fails(seed: int) -> None:
    """Issue E, Build 6: a ring, a join, lists, a recovery and a run beneath, begun as their rows lead to and undisturbed."""
    start = Start(run="r0", parts=tuple(node.part for node in _NODES), nodes=_NODES)

    failing = find(Plan(seed=seed, starts=(start,), preempt=0.5))

    assert failing is None, f"{failing.violation}"


def test_every_form_of_graph_is_generated() -> None:
    """Issue E, Build 6: a fifth of the schedules have graphs, with whatever a node can be and be followed by."""
    plans = [plan for plan in map(plan_of, range(400)) if any(start.nodes for start in plan.starts)]
    starts = [start for plan in plans for start in plan.starts]
    nodes = [node for start in starts for all_ in graphs_in(start.run, start).values() for node in all_]

    assert 0.15 < len(plans) / 400 < 0.3
    assert {type(node.part) for node in nodes} == {Do, Map, Sleep, Gate, Milestone, Child}
    assert {len(graphs_in(start.run, start)) > 1 for start in starts if start.nodes} == {True, False}
    assert {start.inline for start in starts if start.nodes} == {True, False}
    maps = [node for node in nodes if isinstance(node.part, Map)]
    assert {(node.items is None, node.part.window) for node in maps if isinstance(node.part, Map)} == {
        (is_given, window) for is_given in (True, False) for window in (None, 1)
    }
    assert any(node.branches and isinstance(node.part, Gate) for node in nodes)
    for form in ("next", "branches", "chooses", "reads", "recover", "ignores"):
        assert any(getattr(node, form) for node in nodes), form
    tasks = [node.part for node in nodes if isinstance(node.part, Do)]
    assert any(part.undo for part in tasks)
    assert any(part.retries and part.delay for part in tasks)
    assert any(part.timeout for part in tasks)


@pytest.mark.faults
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mutation", GRAPH_MUTATIONS, ids=lambda one: one.name)
def test_a_deliberate_fault_of_graphs_is_found(mutation: Mutation) -> None:
    """Issue E, Build 6: within those of 5,000 seeds that have a graph."""
    with mutation.apply():
        assert any(find(plan) is not None for plan in _plans())
