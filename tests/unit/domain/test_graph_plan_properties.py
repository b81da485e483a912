"""The planner against a brute-force walk over made-up graphs, outcomes and orders (issue E, Build 6)."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pikkuflow.domain.graph import Graph
from pikkuflow.domain.graph_input import ref
from pikkuflow.domain.graph_moves import Begin, Ended
from tests.unit.domain.made_graphs import KEYS, Made, check_begun, onward_graphs
from tests.unit.domain.walking import Strider, failed, gave, graph


@given(onward_graphs())
def test_without_cycles_every_order_begins_the_same_nodes_once(made: Made) -> None:
    """Spec 3.3, T13.5, T13.16: whatever ends first, the nodes of a brute-force walk are begun: once, and once a failure to recover."""
    strider = Strider(made.graph, lambda begin: made.outcomes[begin.node.id], choose=made.choose, reloads=True)

    plan = strider.go()

    assert plan.trouble is None
    check_begun(made, strider.begun)


@st.composite
def one_token_graphs(draw: Any) -> tuple[Graph, dict[str, list[str]]]:
    """Graphs with cycles in which every node chooses one branch, and what it chooses at each visit; at last none."""
    ids = [f"n{at}" for at in range(draw(st.integers(1, 5)))]
    nodes = {node_id: {"next": {f"to {target}": target for target in ids}} for node_id in ids}
    choices = {node_id: draw(st.lists(st.sampled_from(ids), max_size=4)) for node_id in ids}
    return graph("n0", **nodes), choices


@given(one_token_graphs())
def test_one_token_walks_a_cycle_as_it_is_written(made: tuple[Graph, dict[str, list[str]]]) -> None:
    """T13.6: nodes that choose one branch each are begun in the order of the walk, with numbers, each after the one before."""
    walked, choices = made

    def outcomes(begin: Begin) -> Ended:
        chosen = choices[begin.node.id]
        return gave(branch=f"to {chosen[begin.ordinal]}" if begin.ordinal < len(chosen) else None)

    strider = Strider(walked, outcomes, reloads=True)
    strider.go()

    visits = dict.fromkeys(walked.nodes, 0)
    expected: list[tuple[str, str | None]] = []
    at: str | None = "n0"
    while at is not None:
        visit = visits[at]
        visits[at] += 1
        name = at if visit == 0 else f"{at}#{visit}"
        expected.append((name, expected[-1][0] if expected else None))
        at = choices[at][visit] if visit < len(choices[at]) else None
    assert strider.begun == expected


@st.composite
def any_graphs(draw: Any) -> Made:
    """Graphs with cycles, several tokens, lists and failures; every node stops choosing after a while."""
    ids = [f"n{at}" for at in range(draw(st.integers(1, 5)))]
    some = st.lists(st.sampled_from(ids), max_size=2, unique=True)
    nodes: dict[str, Any] = {}
    outcomes: dict[str, Ended] = {}
    for node_id in ids:
        said: dict[str, Any] = {"next": {key: draw(some) for key in KEYS}}
        said["input"] = [ref(one) for one in draw(some)]
        if draw(st.booleans()):
            said = {
                "input": said["input"],
                "for_each": "trigger",
                "mode": draw(st.sampled_from(["parallel", "sequential"])),
            }
        elif draw(st.booleans()):
            said["recover"] = draw(st.one_of(st.just("ignore"), some))
        nodes[node_id] = said
        for ordinal in range(3):
            name = node_id if ordinal == 0 else f"{node_id}#{ordinal}"
            fails = bool(said.get("recover")) and draw(st.booleans())
            outcomes[name] = failed() if fails else gave(name, draw(st.sampled_from([None, *KEYS])))
    return Made(graph=graph(["n0"], **nodes), outcomes=outcomes, draw=draw)


@given(any_graphs())
def test_a_fresh_pass_plans_what_the_pass_before_it_would_have(made: Made) -> None:
    """Issue E: the planner knows what is recorded and nothing else, in any order; every step comes after one that was begun before it."""

    def outcomes(begin: Begin) -> Ended:
        return made.outcomes.get(begin.name, gave(begin.name))

    strider = Strider(made.graph, outcomes, trigger=[1, 2], choose=made.choose, reloads=True)
    strider.go(1000)

    assert len(set(strider.names)) == len(strider.names)
    ends = {name.partition("[")[0] for name in strider.names}
    for at, (_, after) in enumerate(strider.begun):
        assert after is None or after in strider.names[:at]
    assert ends == set(strider.names) - {name for name in strider.names if "[" in name} or strider.plan().trouble


@st.composite
def rounds(draw: Any) -> tuple[Made, int, list[list[str]]]:
    """A cycle that forks into chains and joins them, so many rounds of it, and the chains."""
    chains = [[f"c{at}_{link}" for link in range(draw(st.integers(1, 3)))] for at in range(draw(st.integers(1, 3)))]
    nodes: dict[str, Any] = {"a": {"next": [chain[0] for chain in chains]}}
    for chain in chains:
        for link, following in zip(chain, [*chain[1:], "join"], strict=True):
            nodes[link] = {"input": [ref("a")], "next": following}
        if draw(st.booleans()):
            nodes[chain[0]] = {"for_each": "trigger", "next": nodes[chain[0]]["next"]}
    nodes["join"] = {"input": [ref(chain[-1]) for chain in chains], "next": {"again": "a", "out": []}}
    return Made(graph=graph("a", **nodes), outcomes={}, draw=draw), draw(st.integers(1, 4)), chains


@given(rounds())
def test_a_cycle_with_forks_gives_the_same_in_every_order(made: tuple[Made, int, list[list[str]]]) -> None:
    """T13.6, spec 3.3: each round begins each node once, its join takes the round's own results, whatever ends first."""
    walked, count, chains = made
    taken: dict[str, Any] = {}

    def outcomes(begin: Begin) -> Ended:
        if begin.node.input is not None:
            taken[begin.name] = strider.walk.taken(begin, begin.node.input)
        is_last = begin.ordinal == count - 1
        return gave(f"of {begin.name}", ("out" if is_last else "again") if begin.node.id == "join" else None)

    strider = Strider(walked.graph, outcomes, trigger=["x"], choose=walked.choose, reloads=True)
    strider.go()

    expected: dict[str, str | None] = {}
    for at in range(count):
        number = f"#{at}" if at else ""
        expected[f"a{number}"] = f"join#{at - 1}" if at > 1 else "join" if at else None
        for chain in chains:
            for link, before in zip(chain, ["a", *chain], strict=False):
                expected[f"{link}{number}"] = f"{before}{number}"
                if walked.graph.nodes[link].for_each is not None:
                    expected[f"{link}{number}[0]"] = f"{before}{number}"
        expected[f"join{number}"] = f"{chains[0][-1]}{number}"
        lasts = [f"{chain[-1]}{number}" for chain in chains]
        of = [f"of {name}" if walked.graph.nodes[name.partition("#")[0]].for_each is None else None for name in lasts]
        assert [given for given, known in zip(taken[f"join{number}"], of, strict=True) if known is not None] == [
            known for known in of if known is not None
        ]
    assert dict(strider.begun) == expected
