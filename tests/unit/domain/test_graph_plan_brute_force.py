"""The planner against a naive interpreter, over graphs with branches, joins, cycles, lists and recovery (issue E, Build 6)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from pikkuflow.domain.graph import Graph
from pikkuflow.domain.graph_input import ref
from pikkuflow.domain.graph_moves import Begin, Ended, Part, Plan
from pikkuflow.domain.ids import StepName
from tests.naive_walk import Found, NaiveWalk
from tests.unit.domain.walking import Strider, failed, gave, graph

_KEYS = ("x", "y")
_VISITS = 4
_EXAMPLES = 200


@dataclass
class Made:
    """A graph, what its runs are started with, and a source of outcomes and orders."""

    graph: Graph
    trigger: Any
    draw: Any

    def outcome(self, begin: Begin) -> Ended:
        """How a step ends: mostly well, with a branch that mostly is one, and with what a list may be made of."""
        node = begin.node
        may_fail = bool(node.recover or node.ignores) or self.draw(st.integers(0, 19)) == 0
        if may_fail and self.draw(st.integers(0, 2)) == 0:
            return failed()
        branch = self.draw(st.sampled_from([*_KEYS, *_KEYS, *_KEYS, None])) if node.keys else None
        if branch is not None and self.draw(st.integers(0, 29)) == 0:
            branch = "z"
        return gave([begin.name] * self.draw(st.integers(0, 2)), branch)


@st.composite
def graphs(draw: Any) -> Made:
    """Any graph of up to six nodes that may be defined: what leads back is chosen, what always follows leads on."""
    ids = [f"n{at}" for at in range(draw(st.integers(1, 6)))]
    some = st.lists(st.sampled_from(ids), max_size=2, unique=True)
    nodes: dict[str, Any] = {}
    for at, node_id in enumerate(ids):
        later = st.lists(st.sampled_from(ids[at + 1 :]), max_size=2, unique=True) if ids[at + 1 :] else st.just([])
        said: dict[str, Any] = {"input": [ref(one) for one in draw(st.one_of(st.just([]), some))]}
        if draw(st.integers(0, 2)) == 0:
            said["for_each"] = draw(
                st.sampled_from(["trigger", "trigger", *map(ref, ids[:at]), ref(draw(st.sampled_from(ids)))])
            )
            said["mode"] = draw(st.sampled_from(["parallel", "sequential"]))
            said["next"] = draw(later)
        else:
            said["next"] = draw(st.one_of(later, st.fixed_dictionaries(dict.fromkeys(_KEYS, some))))
        if draw(st.booleans()):
            said["recover"] = draw(st.one_of(st.just("ignore"), some))
        nodes[node_id] = said
    entry = draw(st.lists(st.sampled_from(ids), min_size=1, max_size=3, unique=True))
    shuffled = draw(st.permutations(ids))
    made = graph(entry, **{node_id: nodes[node_id] for node_id in shuffled})
    trigger = draw(st.one_of(st.sampled_from([[1, 2], [1, 2, 3]]), st.sampled_from([[1, 2], [1], [], None])))
    return Made(graph=replace(made, max_visits=_VISITS), trigger=trigger, draw=draw)


@settings(max_examples=_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs())
def test_the_planner_says_what_a_naive_interpreter_says(made: Made) -> None:
    """Issue E, Build 6; T13.5, T13.6, T13.12, T13.16: the same steps, in the same order, after the same ones, with the same values.

    Whatever ends first; from what is recorded, as a fresh pass plans, and with the walk that went on. Both fail by the same node.
    """
    planner = Strider(made.graph, made.outcome, trigger=made.trigger, reloads=True)
    naive = NaiveWalk(made.graph, made.trigger)
    seen: Counter[str] = Counter()
    while True:
        plan, expected = planner.begin(), naive.plan()
        if isinstance(expected, str) or plan.trouble is not None:
            assert plan.trouble is not None
            assert plan.trouble.step == expected
            seen["trouble"] += 1
            break
        assert _said(plan) == _meant(expected)
        for found in expected:
            naive.begin(found)
        for name, found in naive.open.items():
            # Also of what was begun before: it does not change by what ends meanwhile.
            begin = planner.walk.open[StepName(name)]
            assert planner.walk.taken(begin, begin.node.input or []) == naive.taken(found)
        for begin in plan.begin:
            seen[begin.part] += 1
            seen["again"] += begin.ordinal > 0
            seen["recovery"] += begin.recovers
        assert planner.walk.open.keys() == naive.open.keys()
        if not naive.open:
            break
        _end_one(made, planner, naive)
    for what in +seen:
        event(what)


def _end_one(made: Made, planner: Strider, naive: NaiveWalk) -> None:
    names = sorted(naive.open)
    name = names[made.draw(st.integers(0, len(names) - 1))]
    begin, found = planner.walk.open[StepName(name)], naive.open[name]
    if begin.part is Part.LIST:
        ended = naive.list_of(found)
        members = planner.walk.members(begin)
        assert [one for _, one in members if one.failure is not None][:1] == ([] if ended.failure is None else [ended])
        if ended.failure is None:
            assert [one.read() for _, one in members] == ended.read()
    else:
        ended = made.outcome(begin)
    planner.end(name, ended)
    naive.end(name, ended)


def _said(plan: Plan) -> list[tuple[Any, ...]]:
    return [
        (
            begin.name,
            begin.after,
            begin.recovers,
            begin.ordinal,
            begin.index if begin.part is Part.ITEM else None,
            begin.part is Part.LIST,
        )
        for begin in plan.begin
    ]


def _meant(found: list[Found]) -> list[tuple[Any, ...]]:
    return [(one.name, one.after, one.recovers, one.ordinal, one.index, one.is_list) for one in found]


def test_a_node_waits_no_longer_for_what_comes_no_more() -> None:
    """Spec 3.3: a join in a later round whose source is not begun in it, and never will be, takes the result of the round before."""
    walked = graph(
        "a",
        a={"next": {"first": "r", "second": ["x", "y"]}},
        y={"input": [ref("never")], "next": "r"},
        r="x",
        x={"input": [ref("r")], "next": {"again": "a"}},
        never=None,
    )
    chosen = {"a": gave(branch="first"), "r": gave("old"), "x": gave(branch="again"), "a#1": gave(branch="second")}
    strider = Strider(walked, chosen, reloads=True)
    strider.go()

    assert strider.names == ["a", "r", "x", "a#1", "x#1"]
    assert naive_names(walked, chosen) == strider.names


def test_a_node_takes_what_its_own_round_gave_though_there_is_newer() -> None:
    """Docs/graphs.md: a reference is to the newest, within a round to the round's own, however late the reader is."""
    walked = graph(
        "a",
        a={"next": {"both": ["b", "s"], "one": "b"}},
        b={"next": {"again": "a", "on": "c"}},
        s="c",
        c={"input": [ref("b")], "next": {"more": "a"}},
    )
    strider, naive = _beside(walked, ("a", "both"), ("b", "again"), ("a#1", "one"), ("b#1", None), ("s", None))
    (begin,) = strider.begin().begin
    late = naive.plan()[0]
    assert isinstance(late, Found)
    naive.begin(late)

    assert strider.walk.taken(begin, [ref("b")]) == naive.taken(late) == ["of b"]


def test_a_node_waits_for_what_its_own_round_may_still_give() -> None:
    """Docs/graphs.md: a join in a later round is not begun with what the round before gave, while its own may come."""
    walked = graph(
        "a",
        a={"next": ["b", "x"]},
        b="d",
        x="c",
        c="d",
        d={"input": [ref("c")], "next": {"again": "a"}},
    )
    ends = [("a", None), ("b", None), ("x", None), ("c", None), ("d", "again"), ("a#1", None), ("b#1", None)]
    strider, naive = _beside(walked, *ends)

    assert strider.begin().begin == ()
    assert naive.plan() == []
    strider.end("x#1", gave())
    assert [begin.name for begin in strider.begin().begin] == ["c#1"]


def test_what_a_node_took_stays_when_there_is_newer() -> None:
    """T13.5: what a step is worked with, and the items that it goes through, are of the time at which it began."""
    walked = graph("a", a={"next": {"again": ["a", "b"]}}, b={"for_each": ref("a"), "mode": "sequential"})
    strider = Strider(walked, {"a": gave(["one", "two"], "again"), "a#1": gave(["three"])}, reloads=True)
    strider.begin()
    for name in ("a", "a#1", "b[0]"):
        strider.end(name)
        strider.begin()
    second = strider.walk.open[StepName("b[1]")]

    assert strider.walk.item(second) == "two"
    assert strider.walk.taken(second, [ref("a")]) == [["one", "two"]]


def _beside(walked: Graph, *ends: tuple[str, str | None]) -> tuple[Strider, NaiveWalk]:
    """The planner and the naive interpreter after these ends, each with its branch, before they are asked again."""
    strider, naive = Strider(walked, reloads=True), NaiveWalk(walked, None)
    for name, branch in ends:
        strider.begin()
        for found in naive.plan():
            assert isinstance(found, Found)
            naive.begin(found)
        strider.end(name, gave(f"of {name}", branch))
        naive.end(name, gave(f"of {name}", branch))
    return strider, naive


def naive_names(walked: Graph, chosen: dict[str, Ended]) -> list[str]:
    """The steps that the naive interpreter begins, one after the other."""
    naive, names = NaiveWalk(walked, None), list[str]()
    while True:
        for found in naive.plan():
            assert isinstance(found, Found)
            naive.begin(found)
            names.append(found.name)
        if not naive.open:
            return names
        name = next(iter(naive.open))
        naive.end(name, chosen.get(name, gave()))
