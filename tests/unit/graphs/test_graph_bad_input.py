"""Bad input (issue E): one clear error and no run, whether a graph is written in Python, as a mapping, in JSON or in YAML."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from pikkuflow import Node, ref
from pikkuflow.domain.run import RunFilter
from pikkuflow.engine.current_step import current_step
from pikkuflow.errors import RunFailed, WorkflowDefinitionError
from tests.unit.graphs.stage import PLACES, Stage, staged

yaml: Any = import_module("yaml")
"""It says nothing of its types."""

T: dict[str, Any] = {"task": "do", "compensate": False}
Graph = dict[str, Any]
Way = Callable[[Stage, Path, Graph], Any]


def _in_python(stage: Stage, _folder: Path, graph: Graph) -> Any:
    nodes = {node_id: Node(**fields) for node_id, fields in graph["nodes"].items()}
    return stage.pikku.graph("flow", **{**graph, "nodes": nodes})


def _as_a_mapping(stage: Stage, _folder: Path, graph: Graph) -> Any:
    return stage.pikku.graph("flow", **graph)


def _in_json(stage: Stage, folder: Path, graph: Graph) -> Any:
    (folder / "flow.json").write_text(json.dumps({"name": "flow", **graph}))
    return stage.pikku.graph_file(folder / "flow.json")


def _in_yaml(stage: Stage, folder: Path, graph: Graph) -> Any:
    (folder / "flow.yaml").write_text(yaml.safe_dump({"name": "flow", **graph}, sort_keys=False))
    return stage.pikku.graph_file(folder / "flow.yaml")


WAYS: Mapping[str, Way] = {"python": _in_python, "mapping": _as_a_mapping, "json": _in_json, "yaml": _in_yaml}

BROKEN: Mapping[str, tuple[Graph, str]] = {
    "an unknown entry": ({"entry": "b", "nodes": {"a": T}}, "Graph 'flow' has an entry that is no node: 'b'"),
    "an unknown next": (
        {"entry": "a", "nodes": {"a": T | {"next": "b"}}},
        "Node 'a' names a next that is no node: 'b' is not there",
    ),
    "an unknown recover": (
        {"entry": "a", "nodes": {"a": T | {"recover": ["b"]}}},
        "Node 'a' names a recover that is no node: 'b' is not there",
    ),
    "an unknown reference": (
        {"entry": "a", "nodes": {"a": T | {"input": [ref("b")]}}},
        "Node 'a' refers to a node that does not exist: 'b' is not there",
    ),
    "an unknown source": (
        {"entry": "a", "nodes": {"a": T | {"for_each": "b"}}},
        "Node 'a' refers to a node that does not exist: 'b' is not there",
    ),
    "a cycle without exit": (
        {"entry": "a", "nodes": {"a": T | {"next": "b"}, "b": T | {"next": "a"}}},
        "Node 'a' begins itself again for ever (a -> b -> a): no node of this cycle chooses what follows",
    ),
    "an option that no step can carry": (
        {"entry": "a", "nodes": {"a": T | {"options": {"link": "do"}}}},
        "Node 'a' has the option link, which no step can carry. Write what comes next as another step.",
    ),
    "an ambiguous template": (
        {"entry": "a", "nodes": {"a": T | {"next": "to Bob"}, "to ${x}": T, "${x} Bob": T}},
        "Node 'a' names a next that is more than one node: 'to Bob' fits 'to ${x}' and '${x} Bob'",
    ),
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    """How the graph is written."""
    return WAYS[request.param]


def _runs(stage: Stage) -> int:
    return len(stage.world.store.list_runs(RunFilter(), limit=10))


@pytest.mark.parametrize("what", BROKEN)
def test_a_graph_that_cannot_work_is_refused_and_makes_no_run(way: Way, what: str, tmp_path: Path) -> None:
    """T13.3, T13.4, spec 3.2: with the node's name, the same however it is written; nothing is registered, so nothing starts."""
    graph, message = BROKEN[what]
    with staged("here") as stage:
        with pytest.raises(WorkflowDefinitionError) as refused:
            way(stage, tmp_path, graph)

        assert str(refused.value).startswith(message)
        assert stage.pikku.registry.find("flow") is None
        assert _runs(stage) == 0


@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_list_makes_no_run(way: Way, place: str, tmp_path: Path) -> None:
    """T13.13: where the trigger has it, before a run exists, whoever starts it and wherever it is to be worked."""
    graph: Graph = {"entry": "a", "nodes": {"a": T | {"for_each": ref("trigger", "lines")}}}
    with staged(place) as stage:
        flow = way(stage, tmp_path, graph | ({"dispatch": "queue"} if place == "away" else {}))

        with pytest.raises(WorkflowDefinitionError) as refused:
            stage.start(flow, {"lines": "abc"})

        said = "Node 'a' is to be worked for each item of 'trigger' at 'lines', which is str and no list."
        assert str(refused.value).startswith(said)
        assert _runs(stage) == 0


@pytest.mark.parametrize("place", PLACES)
def test_a_cycle_that_finds_no_exit_reaches_its_bound(way: Way, place: str, tmp_path: Path) -> None:
    """``max_visits`` is settable wherever a graph is written; the run fails at it, with the node and the number."""
    graph: Graph = {
        "entry": "a",
        "max_visits": 7,
        "nodes": {"a": T | {"next": {"again": "a", "out": "b"}}, "b": T},
    }
    with staged(place) as stage:
        stage.says["a"] = lambda *_: current_step().branch("again")
        run = stage.start(way(stage, tmp_path, graph | ({"dispatch": "queue"} if place == "away" else {})))

        with pytest.raises(RunFailed, match="Node 'a' was begun 7 times, which is the most that max_visits allows"):
            run.result(timeout=0)
        assert stage.code == "GRAPH_NODE_FAILED"
        assert len(stage.steps()) == 7


def test_a_bound_that_is_none_is_refused(way: Way, tmp_path: Path) -> None:
    """It is a number from 1."""
    with staged("here") as stage, pytest.raises(WorkflowDefinitionError, match="max_visits"):
        way(stage, tmp_path, {"entry": "a", "max_visits": 0, "nodes": {"a": T}})


def test_a_branch_that_fits_two_templates_fails_the_run(stage: Stage) -> None:
    """T13.4: known only when the node has chosen; nothing is guessed, and nothing follows."""
    stage.says["a"] = lambda *_: current_step().branch("to Bob")
    run = stage.play(a={"next": {"to ${x}": "b", "${x} Bob": "c"}}, b=None, c=None)

    with pytest.raises(RunFailed, match=r"'to Bob' fits 'to \$\{x\}' and '\$\{x\} Bob'"):
        run.result(timeout=0)
    assert stage.code == "GRAPH_NODE_FAILED"
    assert [step.name for step in stage.steps() if not step.name.endswith(":compensate")] == ["a"]


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_file_of_another_schema_is_refused(suffix: str, tmp_path: Path) -> None:
    """A version file of another schema: the file is named, and which schema this is."""
    graph = {"schema": 2, "name": "flow", "entry": "a", "nodes": {"a": T}}
    file = tmp_path / f"flow.{suffix}"
    file.write_text(json.dumps(graph) if suffix == "json" else yaml.safe_dump(graph))
    with staged("here") as stage:
        with pytest.raises(WorkflowDefinitionError) as refused:
            stage.pikku.graph_file(file)

        assert str(refused.value) == f"Graph file flow.{suffix}: schema is wrong: input should be 1."
        assert stage.pikku.registry.find("flow") is None
