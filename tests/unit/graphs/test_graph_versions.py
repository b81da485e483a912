"""Graph runs whose graph changes under them: they finish on the one that they were started with (spec 3.7, 13.14)."""

from __future__ import annotations

from typing import Any

from pikkuflow import current_step
from pikkuflow.adapters.celery.graph_nodes import graph_definition
from pikkuflow.domain.definition import WorkflowDefinition
from pikkuflow.domain.graph_read import graph_from_json
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.run import NewRun
from pikkuflow.domain.version import NewVersion, VersionKind
from pikkuflow.engine.start import start_runs
from tests.unit.graphs.stage import Stage


def wait_then_send(stage: Stage) -> None:
    """A run of the first graph that waits to be resumed."""
    stage.play(
        a={"next": "wait"}, wait={"suspend": "wait", "next": "choose"}, choose={"next": {"on": "sent"}}, sent=None
    )


def change(stage: Stage, becomes: WorkflowDefinition | None = None) -> None:
    """Another process has other code: a graph with one node, or what it becomes."""
    del stage.pikku.registry._definitions["flow"]
    stage.world.runtime.versions.clear()
    other = graph_definition("flow", {"other": {"task": "do"}}, "other", {}, stage.pikku.app)
    stage.pikku.registry.add(becomes or other)


def resume(stage: Stage) -> None:
    """The run goes on."""
    stage.says["choose"] = lambda *_: current_step().branch("on")
    stage.run.resume()
    if stage.place == "inline":
        stage.go_on()
    else:
        # Not until all has settled: what is suspended for code is tried again for ever.
        stage.world.work()


def test_a_start_stores_its_graph_and_a_change_keeps_both(stage: Stage) -> None:
    """T14.1, T14.2: before the run is there, the whole graph is, under its hash."""
    wait_then_send(stage)
    change(stage)
    stage.pikku.workflow_named("flow").using(run_id="r2").start(None)
    stored = stage.world.store.list_versions("flow")
    graphs = {one.version: graph_from_json("flow", one.definition) for one in stored}

    assert {one.kind for one in stored} == {VersionKind.GRAPH}
    assert [graph.version for graph in graphs.values()] == list(graphs)
    assert sorted(len(graph.nodes) for graph in graphs.values()) == [1, 4]


def test_a_start_writes_its_graph_once(stage: Stage) -> None:
    """Spec 1.4: a process stores what it starts once, not with every run."""
    flow = stage.graph(a=None)
    stage.start(flow)
    stored = stage.world.store.list_versions("flow")
    stage.world.store._tables.versions.clear()
    flow.using(run_id="r2").start(None)

    assert len(stored) == 1
    assert not stage.world.store.list_versions("flow")


def test_a_start_with_a_hash_that_is_not_loaded_stores_nothing(stage: Stage) -> None:
    """T14.3: what is loaded is not what that run is of."""
    stage.graph(a=None)
    rt = stage.world.runtime
    start_runs(rt, [NewRun(id=RunId("r1"), workflow="flow", version="other", input='{"args": [], "kwargs": {}}')])

    assert not stage.world.store.list_versions("flow")


def test_a_run_finishes_on_the_graph_that_it_was_started_with(stage: Stage) -> None:
    """T14.4, T1.6: the definition that is loaded has another hash, and is not what the run goes on with."""
    wait_then_send(stage)
    change(stage)
    resume(stage)

    assert stage.status == "completed"
    assert [name for name, _ in stage.begun()] == ["a", "__workflow_suspend:wait", "choose", "sent"]


def test_a_run_finishes_on_its_graph_when_the_workflow_has_become_a_function(stage: Stage) -> None:
    """T14.5: the stored version says what the run is; the function is not called."""

    def body(wf: Any) -> None:
        raise AssertionError(wf)

    wait_then_send(stage)
    change(stage, WorkflowDefinition(name="flow", body=body, version="v2"))
    resume(stage)

    assert stage.status == "completed"
    assert [name for name, _ in stage.begun()] == ["a", "__workflow_suspend:wait", "choose", "sent"]


def test_a_graph_that_was_never_stored_fails_its_run(stage: Stage) -> None:
    """T14.6: VERSION_NOT_FOUND, naming both hashes, once what it did is undone; nothing is guessed."""
    wait_then_send(stage)
    started = stage.pikku.registry.get("flow").version
    change(stage)
    stage.world.store._tables.versions.clear()
    resume(stage)

    assert (stage.status, stage.code) == ("compensated", "VERSION_NOT_FOUND")
    loaded = stage.pikku.registry.get("flow").version
    stored = stage.world.store.get_run(stage.run.run_id)
    assert stored is not None
    assert stored.error is not None
    assert stored.error.type == "pikkuflow.errors.VersionNotFound"
    assert stored.error.message == (
        f"Workflow 'flow' is now version {loaded}; the run was started with {started}, and that graph was never stored. "
        "Start it again as a new run."
    )
    assert stage.diary == ["a", "una"]


def test_a_graph_that_is_restored_continues_its_runs(stage: Stage) -> None:
    """Spec 3.7: a run whose hash is loaded again needs no stored version."""
    wait_then_send(stage)
    loaded = stage.pikku.registry.get("flow")
    change(stage)
    change(stage, loaded)
    stage.world.store._tables.versions.clear()
    resume(stage)

    assert stage.status == "completed"


def test_a_graph_stored_by_another_release_waits_for_it(stage: Stage) -> None:
    """Bad input (issue E): a stored version of another form suspends the run, since the release that wrote it can go on with it."""
    wait_then_send(stage)
    started = stage.pikku.registry.get("flow").version
    change(stage)
    stage.world.store._tables.versions.clear()
    kind = VersionKind.GRAPH
    stage.world.store.store_version(NewVersion(workflow="flow", version=started, kind=kind, definition='{"schema": 2}'))
    resume(stage)

    assert (stage.status, stage.code) == ("suspended", "VERSION_CONFLICT")
    assert stage.diary == ["a"]


def test_a_function_that_has_become_a_graph_leaves_its_runs_to_workers_with_the_function(stage: Stage) -> None:
    """Spec 3.7, D17: what is stored describes the function and cannot be run; the run is suspended until matching code meets it."""
    wait_then_send(stage)
    started = stage.pikku.registry.get("flow").version
    change(stage)
    stage.world.store._tables.versions.clear()
    kind = VersionKind.FUNCTION
    stage.world.store.store_version(NewVersion(workflow="flow", version=started, kind=kind, definition="{}"))
    resume(stage)

    assert (stage.status, stage.code) == ("suspended", "VERSION_CONFLICT")
