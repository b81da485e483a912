"""Every picture is valid text of its language, whatever nodes are called."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given, reject
from hypothesis import strategies as st

from pikkuflow.domain.graph import Graph
from pikkuflow.domain.graph_picture import picture_of_graph
from pikkuflow.domain.graph_read import graph_of
from pikkuflow.domain.picture import Link, Picture
from pikkuflow.domain.picture_dot import dot_of
from pikkuflow.domain.picture_mermaid import mermaid_of
from pikkuflow.domain.picture_text import text_of
from pikkuflow.domain.run_picture import picture_of_plan
from pikkuflow.errors import WorkflowDefinitionError
from tests.unit.domain.walking import graph

# What stands between the quotes has no quote of its own, and nothing that Mermaid takes for markup but its line breaks.
_TEXT = r'"(?:[^"<>`|#&]|#\w+;|<br/>)*"'
_MERMAID = re.compile(
    "|".join(
        (
            r'---|title: "(?:[^"\\]|\\.)*"|flowchart TD|  start\(\["start"\]\)|  start --> n\d+',
            rf" {{2,4}}n\d+(?:\[{_TEXT}\]|\[\[{_TEXT}\]\]|\{{\{{{_TEXT}\}}\}})",
            rf"  n\d+ (?:-->|==>|-\.->)(?:\|{_TEXT}\|)? n\d+",
            r"  classDef \w+ fill:#\w{6},stroke:#\w{6},color:#\w{6}|  class n\d+(?:,n\d+)* \w+",
            rf"  subgraph together\d+ \[{_TEXT}\]|  end",
        )
    )
)
_DOT_TEXT = r'"(?:[^"\\]|\\[n"\\])*"'
_DOT = re.compile(
    "|".join(
        (
            rf"digraph {_DOT_TEXT} \{{|\}}|  (?:graph|node|edge) \[[^\n]*\];|  start \[label=start, shape=oval\];|  start -> n\d+;",
            rf" {{2,4}}n\d+ \[label={_DOT_TEXT}(?:, \w+=(?:\w+|\"#\w{{6}}\"))*\];",
            rf"  n\d+ -> n\d+(?: \[(?:label={_DOT_TEXT})?(?:(?:, )?(?:style=dotted|penwidth=2\.5))?\])?;",
            r"  subgraph cluster_\d+ \{|    label=together; style=dashed; color=gray;|  \}",
        )
    )
)

_NAMES = st.lists(
    st.text(min_size=1, max_size=12).filter(lambda text: not set(text) & set("[#$") and not text.startswith("__")),
    min_size=1,
    max_size=4,
    unique=True,
)


def check(picture: Picture) -> None:
    """Each line of each form is of its language."""
    for line in mermaid_of(picture).splitlines():
        assert _MERMAID.fullmatch(line), line
    for line in dot_of(picture).splitlines():
        assert _DOT.fullmatch(line), line
    assert "\x1b" not in text_of(picture)


@given(_NAMES, st.text(max_size=8))
def test_names_never_break_the_language_of_a_picture(names: list[str], key: str) -> None:
    """T13.18: valid Mermaid text, and valid DOT, for ids and branches with quotes, brackets, line ends and anything else."""
    nodes: dict[str, Any] = {
        name: {"task": name, "next": {key: names[1:]} if name == names[0] else None} for name in names
    }
    try:
        made = graph_of("g", nodes=nodes, entry=[names[0]])
    except WorkflowDefinitionError:
        # A name that no graph takes.
        reject()
    check(picture_of_graph(made))
    check(picture_of_plan("shop\n.order", names, deterministic=True))


def test_graphviz_shows_an_ampersand_as_it_is_written() -> None:
    """T13.18: it reads HTML entities in texts: ``&quot;`` would be shown as a quote, and one that it does not know breaks its SVG."""
    nodes = {"&quot; & &nosuch;": {"task": "t"}}

    drawn = dot_of(picture_of_graph(graph_of("a&b", nodes=nodes, entry=list(nodes))))

    assert 'digraph "a&amp;b" {' in drawn
    assert '"&amp;quot; &amp; &amp;nosuch;\\ntask t"' in drawn


def order() -> Graph:
    """Branches, a list, recovery, a gate and a cycle."""
    return graph(
        "check",
        check={"next": {"large": "release", "small": "pack", "none": []}},
        release={"approval": "release", "next": {"decided": "pack", "expired": []}},
        pack={"for_each": "trigger", "mode": "sequential", "recover": "fix", "next": "send"},
        fix={"recover": "ignore", "next": "send"},
        send={"next": {"again": "check", "still": "check"}},
    )


def test_a_graph_is_drawn_with_its_branches_and_what_recovers() -> None:
    """T13.18: every node and edge; branches are named, and edges of errors are dotted."""
    picture = picture_of_graph(order())

    check(picture)
    found = {(edge.source, edge.target, edge.label, edge.link) for edge in picture.edges}
    assert found == {
        ("check", "release", "large", Link.NEXT),
        ("check", "pack", "small", Link.NEXT),
        ("release", "pack", "decided", Link.NEXT),
        ("pack", "send", "", Link.NEXT),
        ("pack", "fix", "recover", Link.RECOVER),
        ("fix", "send", "", Link.NEXT),
        ("send", "check", "again, still", Link.NEXT),
    }
    notes = {node.id: node.notes for node in picture.nodes}
    assert notes["check"] == ("task t", "nothing follows none")
    assert notes["pack"] == ("task t", "for each of trigger, one after the other")
    assert notes["fix"] == ("task t", "failure ignored")
    assert [line.strip() for line in mermaid_of(picture).splitlines() if "-.->" in line] == ['n2 -.->|"recover"| n3']
    assert [line.strip() for line in dot_of(picture).splitlines() if "dotted" in line] == [
        'n2 -> n3 [label="recover", style=dotted];'
    ]
    assert not any(node.status for node in picture.nodes)


def test_a_plan_is_a_line_only_when_it_is_always_kept_to() -> None:
    """V10: what a function plans is drawn; a plan that is no promise has an order and no edges."""
    names = ["reserve", "__workflow_approval:release", "charge"]

    assert len(picture_of_plan("shop.order", names, deterministic=True).edges) == len(names) - 1
    loose = picture_of_plan("shop.order", names, deterministic=False)
    assert loose.edges == ()
    assert text_of(loose).splitlines() == ["shop.order", "  [ ] reserve", "  [ ] release", "  [ ] charge"]
