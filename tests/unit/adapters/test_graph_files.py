"""Graphs as data: mappings, JSON and YAML files, and the form that is published (spec 3.1)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from importlib import resources
from pathlib import Path
from typing import Any, cast

import pytest
from celery import Celery, shared_task

import pikkuflow
from pikkuflow import Node, PikkuFlow, Workflow, ref
from pikkuflow.adapters import graph_files
from pikkuflow.adapters.graph_files import graph_schema, read_graph_file
from pikkuflow.errors import SettingError, WorkflowDefinitionError

NODES: dict[str, Any] = {"a": {"task": "t", "next": {"yes": "b", "no": []}}, "b": {"sleep": "1h"}}
YAML = """
schema: 1
name: shop.order
entry: a
nodes:
  a: {task: t, next: {"yes": b, "no": []}}
  b: {sleep: 1h}
"""


@pytest.fixture
def pikku() -> PikkuFlow:
    """An extension that starts nothing."""
    return PikkuFlow(Celery("graphs", broker="memory://", set_as_current=False))


def _version(pikku: PikkuFlow) -> str:
    return pikku.registry.get("shop.order").version


def test_objects_mappings_and_files_are_the_same_graph(tmp_path: Path) -> None:
    """Spec 3.1, 1.4: whatever it was written in, the version is the same."""
    (tmp_path / "order.json").write_text(json.dumps({"name": "shop.order", "entry": "a", "nodes": NODES}))
    (tmp_path / "order.yaml").write_text(YAML)
    versions = set()
    ways: list[Callable[[PikkuFlow], Any]] = [
        lambda pikku: pikku.graph("shop.order", nodes=NODES, entry="a"),
        lambda pikku: pikku.graph(
            "shop.order",
            nodes={"a": Node(task="t", next={"yes": "b", "no": []}), "b": Node(sleep="1h")},
            entry="a",
        ),
        lambda pikku: pikku.graph_file(tmp_path / "order.json"),
        lambda pikku: pikku.graph_file(tmp_path / "order.yaml"),
    ]
    for define in ways:
        made = PikkuFlow(Celery("graphs", broker="memory://", set_as_current=False))
        define(made)
        versions.add(_version(made))

    assert len(versions) == 1


def test_a_node_takes_tasks_signatures_and_workflows(pikku: PikkuFlow) -> None:
    """Spec 3.1: by themselves; a signature's options are its message's, its arguments the node's input."""

    @pikku.app.task(name="t", shared=False)
    def t(x: int) -> int:
        return x

    @pikku.workflow(name="w")
    def w(wf: Workflow) -> None: ...

    pikku.graph(
        "shop.order",
        entry=["a", "b", "c"],
        nodes={
            "a": Node(task=t, retry_delay=timedelta(seconds=3)),
            "b": Node(task=w),
            "c": Node(task=t.s(7).set(queue="slow", priority=3)),
            "d": Node(task=t.s(x=7), next="b"),
        },
    )

    graph = pikku.registry.get("shop.order").graph
    assert graph is not None
    assert [node.what for node in graph.nodes.values()] == ["t", "w", "t", "t"]
    assert graph.nodes["a"].fields["retry_delay"] == 3.0
    assert graph.nodes["c"].fields["options"] == {"queue": "slow", "priority": 3}
    assert graph.nodes["c"].input == [7]
    assert graph.nodes["d"].input == {"x": 7}


def test_defining_a_graph_makes_no_task_and_configures_nothing() -> None:
    """Recipes 10: a task that Celery has not made yet is named without making it, whatever it was declared by."""
    app = Celery("lazy", broker="memory://", set_as_current=False)
    pikku, late = PikkuFlow(app), PikkuFlow()

    @app.task(shared=False)
    def plain() -> None: ...

    @app.task(name="named", shared=False)
    def named() -> None: ...

    @shared_task(name="graphs.shared")
    def everywhere() -> None: ...

    @pikku.workflow(name="flow")
    def flow(wf: Workflow) -> None: ...

    @late.workflow(name="late.flow")
    def late_flow(wf: Workflow) -> None: ...

    tasks = {"a": plain, "b": named, "c": everywhere, "d": flow, "e": late_flow}
    pikku.graph("shop.order", nodes={node_id: Node(task=task) for node_id, task in tasks.items()}, entry="a")

    assert not cast("Any", app).finalized
    assert not cast("Any", app).configured
    graph = pikku.registry.get("shop.order").graph
    assert graph is not None
    named_as = {node.id: node.what for node in graph.nodes.values()}
    assert named_as == {"a": f"{__name__}.plain", "b": "named", "c": "graphs.shared", "d": "flow", "e": "late.flow"}
    assert [plain.name, named.name, flow.name] == [named_as["a"], named_as["b"], named_as["d"]]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ({"a": {"task": "t", "retires": 3}}, "Node 'a' has a wrong retires: extra inputs are not permitted"),
        ({"a": {"task": "t", "retries": "3"}}, "Node 'a' has a wrong retries: input should be a valid integer"),
        ({"a": {"task": "t", "next": {"x": 7}}}, "Node 'a' has a wrong next"),
        ({"a": {"task": 7}}, "Node 'a' has the task 7, which is none"),
        ({"a": 7}, "Node 'a' is int"),
        ({"a": {"task": "t", "mode": "both"}}, "Node 'a' has a wrong mode"),
    ],
)
def test_a_wrong_field_is_named_with_its_node(pikku: PikkuFlow, nodes: Any, message: str) -> None:
    """Spec 3.2: one clear error, when the graph is defined."""
    with pytest.raises(WorkflowDefinitionError) as refused:
        pikku.graph("shop.order", nodes=nodes, entry="a")

    assert str(refused.value).startswith(message)
    assert pikku.registry.find("shop.order") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "schema: 2\nname: x\nentry: a\nnodes: {a: {task: t}}",
            "Graph file g.yaml: schema is wrong: input should be 1.",
        ),
        ("name: x\nentry: a\nnodes: {a: {task: t, retries: no}}", "Graph file g.yaml: nodes.a.retries is wrong"),
        ("name: x\nentry: a\nnodes:\n  a: {task: t}\n  a: {task: u}", "'a' is in it twice"),
        ("name: x\nnodes: {a: {task: t}}", "Graph file g.yaml: entry is wrong: field required."),
        ("name: x\nentry: a\nnodes: {a: {task: t, next: {yes: a}}}", "a key is text: write it in quotes"),
        ("[1, 2]", "Graph file g.yaml: the whole is wrong"),
        ("{", "Graph file g.yaml cannot be read"),
        ("name: x\nentry: a\nnodes:\n  ? [a]\n  : {task: t}", "Graph file g.yaml cannot be read: ['a'] is no key"),
        ("name: x\nentry: a\nnodes: {a: {sleep: -1}}", "Graph file g.yaml: nodes.a.sleep is wrong: input should be"),
    ],
)
def test_a_file_that_is_no_graph_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """Bad input (issue E), a file of another schema among it: the file is named, and the place in it."""
    (tmp_path / "g.yaml").write_text(text)

    with pytest.raises(WorkflowDefinitionError) as refused:
        read_graph_file(tmp_path / "g.yaml")

    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ('{"name": "ä"}'.encode("latin-1"), "Graph file g.json cannot be read: 'utf-8' codec"),
        (b'{"name": ' + b"[" * 100_000, "Graph file g.json cannot be read: it is nested too deeply"),
    ],
)
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, written: bytes, message: str) -> None:
    """Bad input (issue E): as any other file that cannot be read."""
    (tmp_path / "g.json").write_bytes(written)

    with pytest.raises(WorkflowDefinitionError) as refused:
        read_graph_file(tmp_path / "g.json")

    assert str(refused.value).startswith(message)


def test_a_file_may_begin_with_a_byte_order_mark(pikku: PikkuFlow, tmp_path: Path) -> None:
    """Some editors write one, and nobody sees it."""
    text = json.dumps({"name": "shop.order", "entry": "a", "nodes": NODES})
    (tmp_path / "g.json").write_text(text, encoding="utf-8-sig")

    pikku.graph_file(tmp_path / "g.json")

    assert pikku.registry.find("shop.order") is not None


def test_a_file_may_say_where_its_runs_go(pikku: PikkuFlow, tmp_path: Path) -> None:
    """What ``pikku.graph`` takes beside the nodes; the call that reads the file has the last word."""
    (tmp_path / "g.yaml").write_text(YAML + "queue: slow\ndispatch: queue\ntimeout: 2h\nmax_visits: 5\n")

    pikku.graph_file(tmp_path / "g.yaml", dispatch="inline")

    made = pikku.registry.get("shop.order")
    assert (made.queue, made.dispatch, made.timeout_seconds) == ("slow", "inline", 7200.0)
    assert made.graph is not None
    assert made.graph.max_visits == 5


def test_a_json_file_with_a_key_twice_is_refused(tmp_path: Path) -> None:
    """Of two nodes with one id, one would be lost without a word."""
    (tmp_path / "g.json").write_text('{"name": "x", "entry": "a", "nodes": {"a": {"task": "t"}, "a": {"task": "u"}}}')

    with pytest.raises(WorkflowDefinitionError, match="'a' is in it twice"):
        read_graph_file(tmp_path / "g.json")


def test_without_pyyaml_a_yaml_file_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON needs nothing; YAML is an extra."""

    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(graph_files, "import_module", missing)
    (tmp_path / "g.yaml").write_text(YAML)

    with pytest.raises(SettingError) as refused:
        read_graph_file(tmp_path / "g.yaml")
    assert 'pip install "pikkuflow[yaml]"' in refused.value.hint


def test_the_published_form_is_the_one_that_is_read() -> None:
    """Issue E, Build 1: ``graph.schema.json`` is in the package. It is written anew from ``graph_schema()``."""
    published = json.loads(resources.files(pikkuflow).joinpath("graph.schema.json").read_text(encoding="utf-8"))

    assert published == graph_schema()


def test_two_graphs_of_one_name_are_refused(pikku: PikkuFlow) -> None:
    """The same graph may be registered again (a module loaded twice); another one may not."""
    pikku.graph("shop.order", nodes=NODES, entry="a")
    pikku.graph("shop.order", nodes=NODES, entry="a")

    with pytest.raises(WorkflowDefinitionError, match=r"Two workflows are named 'shop\.order'"):
        pikku.graph("shop.order", nodes={"a": {"task": "t", "input": ref("trigger")}}, entry="a")


@pytest.mark.parametrize(
    ("nodes", "planned", "certain"),
    [
        ({"a": {"task": "t", "next": "b"}, "b": {"suspend": "x"}}, ("a", "__workflow_suspend:x"), True),
        (NODES, ("a", "b"), False),
        ({"a": {"task": "t", "for_each": "trigger"}}, None, False),
        ({"a": {"task": "t", "recover": "b"}, "b": {"task": "t"}}, ("a", "b"), False),
    ],
)
def test_a_graph_knows_its_planned_steps(
    pikku: PikkuFlow, nodes: Any, planned: tuple[str, ...] | None, *, certain: bool
) -> None:
    """Spec 1.3: a straight line is certain, branches are listed, a fan-out has no plan."""
    pikku.graph("shop.order", nodes=nodes, entry="a")

    definition = pikku.registry.get("shop.order")
    assert (definition.planned_steps, definition.deterministic) == (planned, certain)
