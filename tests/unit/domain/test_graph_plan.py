"""What a graph run does next (spec 3.3 to 3.6)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.domain.graph_input import ref
from pikkuflow.domain.graph_moves import Begin
from pikkuflow.domain.graph_shape import shape_of
from pikkuflow.domain.ids import StepName
from tests.unit.domain.walking import Strider, failed, gave, graph


def test_a_node_is_followed_by_what_its_next_names() -> None:
    """Spec 3.1, 3.3: one id, a list, and each step says what it came after."""
    strider = Strider(graph(a="b", b=["c", "d"], c=None, d=None), reloads=True)

    strider.go()

    assert strider.begun == [("a", None), ("b", "a"), ("c", "b"), ("d", "b")]


def test_only_the_branch_that_a_node_chose_is_followed() -> None:
    """Spec 3.1: no key chosen, nothing fires."""
    made = graph(a={"next": {"yes": ["b", "c"], "no": "d"}}, b=None, c=None, d=None)

    chosen = Strider(made, {"a": gave(branch="yes")}, reloads=True)
    chosen.go()
    silent = Strider(made, reloads=True)
    silent.go()

    assert chosen.names == ["a", "b", "c"]
    assert silent.names == ["a"]


def test_the_order_in_which_branches_are_written_decides_nothing() -> None:
    """Spec 1.4: it is no part of the version, so a run must be walked alike by code that writes them in another: here into a cycle."""
    ways = {"left": "b", "right": "c"}
    one, other = (
        graph("e", e={"next": dict(order)}, b={"next": {"on": "c", "out": []}}, c={"next": {"on": "b", "out": []}})
        for order in (list(ways.items()), list(reversed(ways.items())))
    )
    edges = [("e", "b"), ("e", "c"), ("b", "c"), ("c", "b")]

    assert one.version == other.version
    assert [shape_of(one).is_back(*edge) for edge in edges] == [shape_of(other).is_back(*edge) for edge in edges]


def test_a_branch_that_a_node_does_not_have_fails_the_run() -> None:
    """A misspelt branch must not end a run as if all were well."""
    strider = Strider(graph(a={"next": {"yes": "b", "no": "b"}}, b=None), {"a": gave(branch="yees")})

    trouble = strider.go().trouble

    assert trouble is not None
    assert trouble.node == "a"
    assert "did you mean 'yes'?" in trouble.why


def test_a_branch_that_fits_two_templates_is_not_guessed() -> None:
    """T13.4: a branch key may be a template; one that fits two of them fails the run and names both."""
    made = graph(a={"next": {"sent to ${name}": "b", "${what} to all": "c"}}, b=None, c=None)

    fits = Strider(made, {"a": gave(branch="sent to Bob")})
    fits.go()
    trouble = Strider(made, {"a": gave(branch="sent to all")}).go().trouble

    assert fits.names == ["a", "b"]
    assert trouble is not None
    assert "sent to ${name}" in trouble.why
    assert "${what} to all" in trouble.why


def test_converging_edges_begin_a_node_once() -> None:
    """T13.5: a join fires when it is first reached, and never again."""
    strider = Strider(graph(a=["b", "c"], b="d", c="d", d=None), reloads=True)

    strider.go()

    assert strider.begun == [("a", None), ("b", "a"), ("c", "a"), ("d", "b")]


@pytest.mark.parametrize("first", [0, 1])
def test_a_join_waits_for_what_it_refers_to(first: int) -> None:
    """Spec 3.3: a join fires once its referenced inputs are there, whichever branch was quicker, and after the same node."""
    made = graph(a=["b", "c"], b="d", c="d", d={"input": {"x": ref("b"), "y": ref("c")}})
    strider = Strider(made, reloads=True)
    strider.begin()
    strider.end("a")
    strider.begin()

    strider.end(["b", "c"][first])
    assert not strider.begin().begin
    strider.end(["c", "b"][first])
    strider.begin()

    assert strider.begun[-1] == ("d", "b")


def test_going_round_begins_nodes_again_with_numbers() -> None:
    """T13.6, spec 1.2: walking a, b, a, c gives a, b, a#1, c, and a#1 came after b."""
    made = graph(a={"next": {"on": "b", "out": "c"}}, b="a", c=None)
    strider = Strider(made, {"a": gave(branch="on"), "a#1": gave(branch="out")}, reloads=True)

    strider.go()

    assert strider.begun == [("a", None), ("b", "a"), ("a#1", "b"), ("c", "a#1")]


def test_a_join_inside_a_cycle_fires_once_a_round() -> None:
    """Spec 3.3: converging edges never fire twice, in any round, and a round's join takes that round's results."""
    made = graph(
        a=["b", "c"],
        b="d",
        c="c2",
        c2="d",
        d={"input": [ref("b"), ref("c2")], "next": {"again": "a", "out": "e"}},
        e={"input": [ref("d")]},
    )

    def outcomes(begin: Any) -> Any:
        return gave(f"of {begin.name}", {"d": "again", "d#1": "out"}.get(begin.name))

    strider = Strider(made, outcomes, reloads=True)
    taken = []
    while strider.begin().begin or strider.walk.open:
        for name in list(strider.walk.open):
            begin = strider.walk.open[name]
            if begin.node.id == "d":
                taken.append(strider.walk.taken(begin, begin.node.input))
            strider.end(name)

    assert strider.names == ["a", "b", "c", "c2", "d", "a#1", "b#1", "c#1", "c2#1", "d#1", "e"]
    assert taken == [["of b", "of c2"], ["of b#1", "of c2#1"]]


def test_a_cycle_may_read_its_round_before() -> None:
    """A reference that only a further round can fill is absent in the first, and waits for nobody."""
    made = graph(a={"input": {"last": ref("b")}, "next": "b"}, b={"next": {"again": "a"}})
    strider = Strider(made, {"b": gave("first", "again")}, reloads=True)
    taken = []
    while strider.begin().begin or strider.walk.open:
        for name, begin in list(strider.walk.open.items()):
            if begin.node.id == "a":
                taken.append(strider.walk.taken(begin, begin.node.input))
            strider.end(name)

    assert taken == [{}, {"last": "first"}]


def test_a_cycle_is_bounded() -> None:
    """Bad input (issue E): a cycle that finds no way out fails the run, and names the node and the bound."""
    made = graph(a={"next": {"again": "a", "out": "b"}}, b=None)
    strider = Strider(made, lambda _begin: gave(branch="again"))

    trouble = strider.go(20_001).trouble

    assert len(strider.begun) == 10_000
    assert trouble is not None
    assert trouble.why == "Node 'a' was begun 10000 times, which is the most that max_visits allows."


def test_an_unrecovered_failure_fails_the_run() -> None:
    """Spec 3.6: the node is named; nothing more is begun."""
    strider = Strider(graph(a=["b", "c"], b="d", c=None, d=None), {"b": failed()}, reloads=True)

    trouble = strider.go().trouble

    assert trouble is not None
    assert (trouble.node, trouble.step) == ("b", "b")
    assert "d" not in strider.names


def test_a_recover_node_takes_over_and_sees_what_it_recovers() -> None:
    """T13.16: it fires once, after the failed node; recover nodes chain, and a node reached normally sees nothing."""
    made = graph(
        a={"next": "b", "recover": "fix"}, b=None, fix={"recover": "fix2"}, fix2={"next": "after"}, after={"next": None}
    )
    strider = Strider(made, {"a": failed("one"), "fix": failed("two")}, reloads=True)
    before = {}
    while strider.begin().begin or strider.walk.open:
        for name, begin in list(strider.walk.open.items()):
            before[name] = strider.walk.failure_before(begin)
            strider.end(name)

    assert strider.begun == [("a", None), ("fix", "a"), ("fix2", "fix"), ("after", "fix2")]
    assert before == {"a": None, "fix": "a", "fix2": "fix", "after": None}


def test_each_failure_is_recovered_by_itself() -> None:
    """Two nodes with one recover node: it is begun for each, so that no failure is passed over; what follows it fires once."""
    made = graph(a=["b", "c"], b={"recover": "fix"}, c={"recover": "fix", "next": "d"}, fix="d", d=None)
    strider = Strider(made, {"b": failed("one"), "c": failed("two")}, reloads=True)

    strider.go()

    assert strider.begun == [("a", None), ("b", "a"), ("c", "a"), ("fix", "b"), ("fix#1", "c"), ("d", "fix")]


def test_an_ignored_failure_is_done_without_an_output() -> None:
    """T13.16: ``recover: "ignore"``; what follows fires, and what reads it finds nothing there."""
    made = graph(a={"next": "b", "recover": "ignore"}, b={"input": {"x": ref("a"), "y": ref("a", "z"), "n": 1}})
    strider = Strider(made, {"a": failed()}, reloads=True)
    strider.begin()
    strider.end("a")
    strider.begin()

    begin = strider.walk.open[next(iter(strider.walk.open))]
    assert begin.name == "b"
    assert strider.walk.taken(begin, begin.node.input) == {"x": None, "n": 1}
    assert strider.walk.failure_before(begin) is None


def test_who_reads_a_recovered_failure_is_skipped() -> None:
    """T13.16: it is not waited for, and the run completes."""
    made = graph(a=["b", "c"], b={"recover": "fix"}, c="d", d={"input": {"x": ref("b")}}, fix=None)
    strider = Strider(made, {"b": failed()}, reloads=True)

    plan = strider.go()

    assert plan.trouble is None
    assert strider.names == ["a", "b", "c", "fix"]


# --- for_each -----------------------------------------------------------------------------------------------------------


def test_a_parallel_for_each_begins_every_item_and_then_its_list() -> None:
    """T13.13: instances ``b[i]`` in one plan; the list is in their order, and what follows fires once, after it."""
    made = graph(a="b", b={"for_each": ref("a", "lines"), "next": "c"}, c={"input": [ref("b")]})
    strider = Strider(made, lambda begin: gave({"lines": [1, 2]} if begin.name == "a" else begin.name), reloads=True)
    strider.begin()
    strider.end("a")
    assert [one.name for one in strider.begin().begin] == ["b[0]", "b[1]"]
    assert [strider.walk.item(begin) for begin in strider.walk.open.values()] == [1, 2]
    strider.end("b[1]")
    assert not strider.begin().begin
    strider.end("b[0]")
    strider.go()

    assert strider.begun == [("a", None), ("b[0]", "a"), ("b[1]", "a"), ("b", "a"), ("c", "b")]
    last = Begin(name=StepName("c"), node=made.nodes["c"], ordinal=0, after=StepName("b"))
    assert strider.walk.taken(last, last.node.input) == [["b[0]", "b[1]"]]


def test_a_sequential_for_each_has_one_item_in_flight() -> None:
    """T13.13: in their order."""
    made = graph(a={"for_each": "trigger", "mode": "sequential"})
    strider = Strider(made, trigger=["x", "y", "z"], reloads=True)
    open_at_a_time = []
    while strider.begin().begin or strider.walk.open:
        open_at_a_time.append(list(strider.walk.open))
        strider.end(open_at_a_time[-1][0])

    assert open_at_a_time == [["a[0]"], ["a[1]"], ["a[2]"], ["a"]]


def test_no_items_complete_the_node_with_an_empty_list() -> None:
    """T13.13: downstream fires."""
    strider = Strider(graph(a={"for_each": "trigger", "next": "b"}, b=None), trigger=[], reloads=True)

    strider.go()

    assert strider.begun == [("a", None), ("b", "a")]


def test_what_is_no_list_fails_the_run() -> None:
    """T13.13: loudly, with the node and the source."""
    strider = Strider(graph(a="b", b={"for_each": ref("a", "lines")}), {"a": gave({"lines": "text"})})

    trouble = strider.go().trouble

    assert trouble is not None
    assert trouble.why == "Node 'b' is to be worked for each item of 'a' at 'lines', which is str and no list."


def test_a_failing_item_fails_its_node_after_the_others_have_ended() -> None:
    """T13.14: the run fails instead of stalling; a sequential one begins no further item."""
    made = graph(a={"for_each": "trigger", "mode": "sequential", "recover": "fix"}, fix=None)
    strider = Strider(made, {"a[1]": failed()}, trigger=[1, 2, 3], reloads=True)

    strider.go()

    assert strider.names == ["a[0]", "a[1]", "a", "fix"]


def test_fan_outs_chain() -> None:
    """T13.13: a list of results is the source of the next fan-out."""
    made = graph(a={"for_each": "trigger", "next": "b"}, b={"for_each": "a"})
    strider = Strider(made, trigger=[1, 2], reloads=True)

    strider.go()

    assert strider.names == ["a[0]", "a[1]", "a", "b[0]", "b[1]", "b"]


def test_a_fan_out_keeps_the_items_that_it_began_with() -> None:
    """A cycle that makes a new list meanwhile does not change the items of the fan-out that is at work."""
    made = graph(a={"next": {"again": ["a", "b"]}}, b={"for_each": "a", "mode": "sequential"})
    strider = Strider(made, {"a": gave([1, 2], "again"), "a#1": gave([7, 8, 9])}, reloads=True)
    strider.begin()
    strider.end("a")
    strider.begin()
    strider.end("a#1")
    strider.go()

    assert [name for name in strider.names if name.startswith("b")] == ["b[0]", "b[1]", "b"]
