"""What is wrong with a graph is said before a run exists, with the node's name (spec 3.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pikkuflow.domain.graph import Graph, Node
from pikkuflow.domain.graph_input import ABSENT, Ref, plain_input, ref, resolved, template
from pikkuflow.domain.graph_read import check_start, graph_from_json, graph_of
from pikkuflow.errors import WorkflowDefinitionError
from tests.unit.domain.walking import graph

T = {"task": "t"}


def _graph(entry: Any = "a", **nodes: Any) -> Graph:
    return graph_of("g", nodes=nodes, entry=entry)


BROKEN: dict[str, tuple[Callable[[], Graph], str]] = {
    "an entry": (lambda: _graph("b", a=T), "Graph 'g' has an entry that is no node: 'b' is not there"),
    "no entry": (lambda: _graph([], a=T), "Graph 'g' has no entry"),
    "no nodes": (_graph, "Graph 'g' has no nodes"),
    "a next": (
        lambda: _graph(a=T | {"next": "bee"}, bees=T),
        "Node 'a' names a next that is no node: 'bee' is not there; did you mean 'bees'?",
    ),
    "a next of a branch": (lambda: _graph(a=T | {"next": {"x": ["b"]}}), "Node 'a' names a next that is no node: 'b'"),
    "a recover": (lambda: _graph(a=T | {"recover": "b"}), "Node 'a' names a recover that is no node: 'b'"),
    "a reference": (
        lambda: _graph(a=T | {"input": {"x": [ref("b")]}}),
        "Node 'a' refers to a node that does not exist",
    ),
    "a for_each": (lambda: _graph(a=T | {"for_each": "b"}), "Node 'a' refers to a node that does not exist: 'b'"),
    "a mode": (lambda: _graph(a=T | {"for_each": "trigger", "mode": "both"}), "Node 'a' has the mode 'both'"),
    "a mode alone": (lambda: _graph(a=T | {"mode": "parallel"}), "Node 'a' has a mode and no for_each"),
    "an item alone": (lambda: _graph(a=T | {"input": ref("$item")}), "Node 'a' refers to $item and has no for_each"),
    "a template": (
        lambda: _graph(a=T | {"input": template("$0 and $1", [ref("trigger")])}),
        "Node 'a' has a template with more placeholders than references",
    ),
    "a target that fits two": (
        lambda: _graph(**{"a": T | {"next": "to Bob"}, "to ${x}": T, "${x} Bob": T}),
        "Node 'a' names a next that is more than one node: 'to Bob' fits 'to ${x}' and '${x} Bob'",
    ),
    "nothing to do": (lambda: _graph(a={"next": "a"}), "Node 'a' has nothing to do"),
    "two things to do": (lambda: _graph(a={"task": "t", "sleep": "1h"}), "Node 'a' has task and sleep"),
    "a strange field": (lambda: _graph(a=T | {"retry": 1}), "Node 'a' has a field 'retry'"),
    "a field of another": (lambda: _graph(a={"sleep": "1h", "retries": 1}), "Node 'a' has a field 'retries'"),
    "retries": (lambda: _graph(a=T | {"retries": -1}), "Node 'a' cannot work"),
    "a duration": (lambda: _graph(a={"sleep": "soon"}), "Node 'a' cannot work"),
    "a place": (lambda: _graph(a=T | {"dispatch": "there"}), "Node 'a' cannot work"),
    "a flag": (lambda: _graph(a=T | {"compensate": "no"}), "Node 'a' cannot work: 'no' is neither true nor false"),
    "a name": (lambda: _graph("a[0]", **{"a[0]": T}), "Node 'a[0]' cannot work"),
    "a name that no database keeps": (
        lambda: _graph("a\0", **{"a\0": T}),
        "Node 'a\\x00' cannot work: Step name 'a\\x00' has a character that cannot be stored",
    ),
    "half a character": (lambda: _graph("\ud800", **{"\ud800": T}), "Node '\\ud800' cannot work"),
    "a reason that no database keeps": (lambda: _graph(a={"suspend": "a\0"}), "Node 'a' cannot work"),
    "a milestone's name": (
        lambda: _graph(a={"milestone": "b#1"}),
        "Node 'a' cannot work: Step name 'b#1' has a shape kept for the engine",
    ),
    "a kept name": (lambda: _graph("trigger", trigger=T), "Node 'trigger' has an id that means something else"),
    "no JSON": (lambda: _graph(a=T | {"input": {"x": {1, 2}}}), "Node 'a' holds what JSON has not"),
    "no number": (lambda: _graph(a=T | {"input": float("nan")}), "Node 'a' holds what JSON has not"),
    "a context": (lambda: graph_of("g", nodes={"a": T}, entry="a", context=object()), "The context of graph 'g' holds"),
    "a long name": (lambda: _graph("a" * 201, **{"a" * 201: T}), "Node 'aaaaaaaaaaaaaaaaaaaa…' has an id of 201"),
    "an expiry without a branch": (
        lambda: _graph(a={"approval": "go", "expiry": 1, "next": {"decided": "b"}}, b=T),
        "Node 'a' may expire and has no branch 'expired'",
    ),
    "a reason twice": (
        lambda: _graph(a={"suspend": "stock", "next": "b"}, b={"suspend": "stock"}),
        "Node 'b' waits for the same as node 'a'",
    ),
    "a branch of a sleep": (lambda: _graph(a={"sleep": 1, "next": {"x": "a"}}), "Node 'a' cannot choose a branch"),
    "a branch of an approval": (
        lambda: _graph(a={"approval": "go", "next": {"yes": "b"}}, b=T),
        "Node 'a' has a branch 'yes'",
    ),
    "a cycle without exit": (
        lambda: _graph(a=T | {"next": "b"}, b=T | {"next": ["a", "c"]}, c=T),
        "Node 'a' begins itself again for ever (a -> b -> a)",
    ),
    "a bound": (lambda: graph_of("g", nodes={"a": T}, entry="a", max_visits=0), "Graph 'g' has max_visits=0"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_cannot_work_is_refused_with_the_nodes_name(what: str) -> None:
    """T13.3, T13.4, T13.13, T13.16, spec 3.2: one clear error for each, when the graph is defined, so that no run is made."""
    make, message = BROKEN[what]

    with pytest.raises(WorkflowDefinitionError) as refused:
        make()

    assert str(refused.value).startswith(message)


def test_a_node_id_may_be_a_template() -> None:
    """Spec 3.1: what names a node may be what its template gives, when no other fits."""
    made = _graph(**{"a": T | {"next": "to Bob"}, "to ${name}": T})

    assert made.nodes["a"].targets == ("to ${name}",)


def test_items_that_the_trigger_has_not_are_refused_at_the_start() -> None:
    """Bad input (issue E): an entry over something in the trigger that is no list, before a run is made."""
    made = _graph(a=T | {"for_each": ref("trigger", "lines")})

    check_start(made, {"lines": [1]})
    with pytest.raises(WorkflowDefinitionError, match="'trigger' at 'lines', which is str and no list"):
        check_start(made, {"lines": "abc"})


def test_notes_do_not_change_the_version() -> None:
    """Spec 1.4: twelve digits over what a run does; notes are for readers, everything else counts."""
    plain = _graph(a=T | {"next": "b"}, b=T)
    noted = graph_of("g", nodes={"a": T | {"next": "b", "notes": "first"}, "b": T}, entry="a", notes="all")
    other = _graph(a=T | {"next": ["b"], "retries": 1}, b=T)

    assert len(plain.version) == 12
    assert noted.version == plain.version
    assert other.version != plain.version


def test_a_graph_is_read_again_from_what_it_stores() -> None:
    """Spec 1.4: a stored version is the same graph, whether it was written in Python or as data."""
    made = graph_of(
        "g",
        nodes={
            "a": Node(task="t", input={"x": template("Dear $0", [ref("trigger", "name")])}, next={"x": "b", "y": []}),
            "b": Node(task="u", for_each=ref("a", "lines"), mode="sequential", recover="ignore", retry_delay="5s"),
        },
        entry="a",
        context={"team": "shop"},
        max_visits=7,
    )

    again = graph_from_json("g", made.to_json())

    assert again.fields() == made.fields()
    assert again.version == made.version
    assert again.max_visits == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema": 2, "nodes": {}, "entry": "a"}', "Graph 'g' is stored in form 2, and this is form 1"),
        ('{"nodes": {"a": {"task": "t"}}, "entry": "a"}', "What is stored of graph 'g' is no graph"),
        ('{"schema": 1, "nodes": {"a": {"task": "t"}}, "entry": "a", "more": 1}', "What is stored of graph 'g' is no"),
        ('{"schema": 1, "nodes": {"a": {"task": "t", "more": 1}}, "entry": "a"}', "Node 'a' has a field 'more'"),
        ('{"schema": 1}', "What is stored of graph 'g' is no graph"),
        ('{"schema": 1, "nodes": {"a": 7}, "entry": "a"}', "What is stored of graph 'g' is no graph"),
        ("[1]", "What is stored of graph 'g' is no graph"),
        ("nothing", "What is stored of graph 'g' is no graph"),
    ],
)
def test_a_stored_graph_of_another_form_is_refused(text: str, message: str) -> None:
    """Bad input (issue E): a version of another schema, with one clear error."""
    with pytest.raises(WorkflowDefinitionError) as refused:
        graph_from_json("g", text)

    assert str(refused.value).startswith(message)


# --- inputs -----------------------------------------------------------------------------------------------------------


def _given(value: Any) -> Any:
    values = {"trigger": {"name": "Ada", "tags": ["x", "y"], "n": None}, "$item": {"sku": 7}, "a": 3}
    return resolved(plain_input(value), lambda one: one.read(values.get(one.node, ABSENT)))


def test_references_are_read_by_their_path() -> None:
    """Spec 3.1, T13.12: keys and indexes with dots between them; the whole value without a path; ``$item`` with and without one."""
    value = {
        "a": ref("trigger", "tags.1"),
        "b": [ref("a"), 1],
        "c": ref("$item", "sku"),
        "d": ref("$item"),
        "e": "text",
    }

    assert _given(value) == {"a": "y", "b": [3, 1], "c": 7, "d": {"sku": 7}, "e": "text"}


def test_what_is_absent_is_left_out() -> None:
    """Spec 2.1: a missing argument reports as missing; null is a value."""
    assert _given({"a": ref("trigger", "no.where"), "b": ref("trigger", "n"), "c": [ref("trigger", "tags.9")]}) == {
        "b": None,
        "c": [None],
    }


@pytest.mark.parametrize(
    ("text", "refs", "expected"),
    [
        ("Dear $0!", [ref("trigger", "name")], "Dear Ada!"),
        ("$0-$1-$0", [ref("a"), ref("$item", "sku")], "3-7-3"),
        ("$0$1", [ref("a"), ref("a")], "33"),
        ("nothing", [], "nothing"),
        ("[$0]", [ref("trigger", "n")], "[]"),
        ("[$0]", [ref("trigger", "nowhere")], "[]"),
        ("$0", [ref("$item")], '{"sku": 7}'),
    ],
)
def test_templates_are_texts_with_references(text: str, refs: list[Any], expected: str) -> None:
    """T13.15: one placeholder, several, adjacent, none; null and absent are empty texts."""
    assert _given(template(text, refs)) == expected
    assert _given({"$template": text, "refs": refs}) == expected


def test_a_template_keeps_paths_and_calls_what_is_out_of_range_unknown() -> None:
    """T13.15: parts and expressions; a path that was not given is left out."""
    assert template("x $0 y $1", [ref("a", "b.c")]) == {
        "$template": {"parts": ["x ", " y ", ""], "expressions": [{"$ref": "a", "path": "b.c"}, {"$ref": "unknown"}]}
    }
    assert Ref("a").fields() == {"$ref": "a"}


@pytest.mark.parametrize("value", [{"$ref": 1}, {"$ref": "a", "more": 1}, {"$ref": "a", "path": ""}, {"$template": 1}])
def test_what_is_no_reference_is_refused(value: Any) -> None:
    """Spec 3.2: with the node's name."""
    with pytest.raises(WorkflowDefinitionError, match="Node 'a' has the"):
        graph(a={"input": {"x": value}})
