"""Versions that are stored and shown, and plans (spec 1.3, 1.4)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.domain.definition import Registry
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import RunStatus
from pikkuflow.domain.summary import summary_of
from pikkuflow.domain.version import VersionKind
from pikkuflow.engine.versions import store_versions, versions_of, wake_for_code
from pikkuflow.errors import WorkflowNotFound
from tests.unit.engine.bench import Bench, Child
from tests.unit.engine.fleet import Fleet


def test_a_worker_stores_what_it_has_once_and_for_all() -> None:
    """Spec 1.4: both versions of a changed workflow are kept, with what they plan, and the first is never overwritten."""
    fleet = Fleet()
    store_versions(fleet.old)
    fleet.bench.clock.advance(60)
    store_versions(fleet.new)
    store_versions(fleet.old)
    stored = fleet.bench.store.list_versions("order")

    assert [(one.version, one.kind) for one in stored] == [("v1", VersionKind.FUNCTION), ("v2", VersionKind.FUNCTION)]
    assert '"source": "tests.unit.engine.fleet.before"' in stored[0].definition


def test_versions_are_shown_with_the_runs_that_need_them() -> None:
    """Spec 1.4: stored ones first; one that only runs know, and what this process has, are among them."""
    fleet = Fleet()
    store_versions(fleet.old)
    fleet.bench.start("order", run_id="r1")
    fleet.bench.start("order", run_id="r2")
    fleet.bench.work(rt=fleet.old)
    run = fleet.bench.store._tables.runs[RunId("r2")]
    run.version = "v0"

    shown = {one.version: one for one in versions_of(fleet.new, "order")}

    assert list(shown) == ["v1", "v0", "v2"]
    assert {version: one.open_runs for version, one in shown.items()} == {"v1": 1, "v0": 1, "v2": 0}
    assert [version for version, one in shown.items() if one.here] == ["v2"]
    assert shown["v0"].kind is None
    assert shown["v1"].to_dict()["kind"] == "function"
    assert "storedAt" not in shown["v2"].to_dict()


def test_a_starting_worker_tries_what_waits_for_its_code() -> None:
    """D17, design 3.10: at once, however long the backoff has become; what it does not know, and what waits for people, is left."""
    fleet = Fleet()
    fleet.begin(nights=2, process=fleet.new)
    fleet.bench.start("gift", run_id="gift")
    fleet.bench.start("nobody", run_id="nobody")
    fleet.bench.workflow(lambda wf: wf.suspend("people"), name="waits")
    fleet.bench.start("waits", run_id="waits")
    fleet.bench.work(rt=fleet.bench.rt)
    for _ in range(6):
        for workflow, run_id in (("order", "r1"), ("gift", "gift"), ("nobody", "nobody")):
            fleet.bench.wake(workflow, run_id)
        fleet.bench.work(rt=fleet.old)
        fleet.bench.clock.advance(100)
    codes = {run_id: fleet.bench.run(run_id).code for run_id in ("r1", "gift", "nobody", "waits")}
    assert list(codes.values()) == [
        "VERSION_CONFLICT",
        "WORKFLOW_NOT_FOUND",
        "WORKFLOW_NOT_FOUND",
        "WORKFLOW_SUSPENDED",
    ]
    assert wake_for_code(fleet.bench.other(registry=Registry())) == 0

    assert wake_for_code(fleet.new) == 2
    fleet.bench.work(rt=fleet.new)

    assert fleet.bench.run("gift").status is RunStatus.COMPLETED
    assert fleet.bench.run("r1").status is not RunStatus.SUSPENDED
    assert {fleet.bench.run(run_id).code for run_id in ("nobody", "waits")} == {codes["nobody"], codes["waits"]}


def test_versions_of_a_workflow_nobody_has_heard_of_are_an_error() -> None:
    """One that is stored or has runs is shown though this process does not know it."""
    fleet = Fleet()
    with pytest.raises(WorkflowNotFound):
        versions_of(fleet.old, "gift")
    store_versions(fleet.new)

    assert [one.here for one in versions_of(fleet.old, "gift")] == [False]


def test_a_child_run_has_its_workflows_plan_and_flag() -> None:
    """V10, D16: both are copied when the run begins, and shown with its status."""
    bench = Bench()

    def child(wf: Any) -> int:
        wf.do("a", lambda: 1)
        return int(wf.do("b", lambda: 2))

    bench.workflow(child, planned_steps=("a", "b"), deterministic=True)
    bench.workflow(lambda wf: wf.do(Child("child")), name="flow")
    bench.start("flow")
    bench.work()
    run_id = bench.step("child").child_run_id
    assert run_id is not None

    shown = summary_of(bench.run(run_id), bench.steps(run_id), bench.rt.codec.decode)

    assert shown.deterministic
    assert shown.planned_steps == tuple(step.name for step in shown.steps) == ("a", "b")
    assert not summary_of(bench.run(), bench.steps(), bench.rt.codec.decode).deterministic
