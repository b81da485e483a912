"""Deploys that change a graph under its runs, on real workers with PostgreSQL, their steps in place and dispatched (spec 3.7, V4)."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from tests.acceptance.deployment import Deployment, step_of, steps_of, wait_for_status
from tests.faults.site import LONG
from tests.servers.processes import Program

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

OLD_WAY = ["reserve", "__workflow_suspend:night", "charge", "ship"]
NEW_WAY = ["reserve", "__workflow_suspend:night", "receipts[0]", "receipts[1]", "receipts", "ship"]
PLACES = {"": "pass", ".queue": "worker"}


@pytest.fixture(params=PLACES, ids=["in place", "dispatched"])
def ending(request: pytest.FixtureRequest) -> str:
    """What the names of the workflows end in whose steps are worked there."""
    return str(request.param)


def _workflow(shop: Any, name: str, ending: str) -> Any:
    return shop.pikku.workflow_named(f"graphs.{name}{ending}")


def _rows(shop: Any, run: Any) -> list[tuple[Any, ...]]:
    """What must be the same wherever a run is worked."""
    return [(row.name, row.status, row.attempt, row.args, row.result, row.from_step) for row in steps_of(shop, run)]


def _names(shop: Any, run: Any) -> list[str]:
    return [row.name for row in steps_of(shop, run)]


def _asleep(shop: Any, name: str, ending: str, *trigger: Any) -> Any:
    """A run that a worker has brought to its suspension: one step is worked."""
    run = _workflow(shop, name, ending).start(*trigger)
    wait_for_status(run, "suspended", seconds=LONG)
    assert [row.name for row in steps_of(shop, run)] == OLD_WAY[:2]
    assert step_of(shop, run, "reserve").place.startswith(PLACES[ending])
    return run


def _wake(run: Any) -> str:
    run.resume("night")
    return wait_for_status(run, "completed", "failed", "compensated", seconds=LONG)


def _replace(deployment: Deployment, worker: Program, code: str) -> Program:
    """A deploy: a warm shutdown, and a worker with other code."""
    worker.stop()
    return deployment.worker(f"graphs_{code}", name=code)


def _forget(deployment: Deployment, workflow: str, version: str) -> None:
    engine = create_engine(make_url(deployment.database_url).set(drivername="postgresql+psycopg"))
    statement = text("DELETE FROM pikkuflow_version WHERE workflow = :workflow AND version = :version")
    with engine.begin() as connection:
        assert connection.execute(statement, {"workflow": workflow, "version": version}).rowcount == 1
    engine.dispose()


def test_runs_finish_on_what_they_were_started_with(deployment: Deployment, ending: str) -> None:
    """V4, T1.6, T14.1, T14.2, T14.4, T14.5: baseline, stored, started, one node worked, changed, resumed on what is stored."""
    worker = deployment.worker("graphs_old", name="old")
    old, new = deployment.load("graphs_old"), deployment.load("graphs_new")
    order = _workflow(old, "order", ending)
    baseline = order.run_inline(["a", "b"])
    baseline.resume("night")
    baseline.result(timeout=LONG)
    assert _stored(old, order.name) == [_version(old, order.name)]

    run, moved = _asleep(old, "order", ending, ["a", "b"]), _asleep(old, "moved", ending)
    grown = _asleep(old, "grown", ending)
    _replace(deployment, worker, "new")
    assert _stored(old, order.name) == [_version(shop, order.name) for shop in (old, new)]

    assert [_wake(one) for one in (run, moved, grown)] == ["completed"] * 3
    assert _names(old, run) == _names(old, moved) == OLD_WAY
    assert _rows(old, run) == _rows(old, baseline)
    assert _names(old, grown) == [*OLD_WAY[:2], "ship", "receipt"]
    assert {line["code"] for line in deployment.journal(run=run)} == {"old", "new"}


def test_a_graph_that_is_nowhere_fails_its_runs_and_one_that_is_back_ends_them(
    deployment: Deployment, ending: str
) -> None:
    """V4, T14.6: an unknown hash is VERSION_NOT_FOUND, naming both; a hash that is loaded again needs no stored version."""
    worker = deployment.worker("graphs_old", name="old")
    old, new = deployment.load("graphs_old"), deployment.load("graphs_new")
    lost, spared = _asleep(old, "lost", ending), _asleep(old, "lost", ending)
    name, version = f"graphs.lost{ending}", _version(old, f"graphs.lost{ending}")
    worker = _replace(deployment, worker, "new")
    _forget(deployment, name, version)

    assert _wake(lost) == "failed"
    assert lost.head().code == "VERSION_NOT_FOUND"
    assert lost.head().error == (
        f"Workflow {name!r} is now version {_version(new, name)}; the run was started with {version}, "
        "and that graph was never stored. Start it again as a new run."
    )
    assert _names(old, lost) == OLD_WAY[:2]

    worker.stop()
    deployment.worker("graphs_old", name="back")
    assert _wake(spared) == "completed"
    assert _names(old, spared) == OLD_WAY


def _version(shop: Any, workflow: str) -> str:
    return str(shop.pikku.registry.get(workflow).version)


def _stored(shop: Any, workflow: str) -> list[str]:
    return [one.version for one in shop.pikku.runtime.store.list_versions(workflow)]


def test_old_and_new_workers_work_runs_of_both_graphs(deployment: Deployment, ending: str) -> None:
    """V4, T14.4, D17: side by side, in both orders of a deploy, each run on the graph that it was started with, whoever meets it."""
    first = deployment.worker("graphs_new", name="new")
    old, new = deployment.load("graphs_old"), deployment.load("graphs_new")
    early = [_workflow(new, "order", ending).start(["a", "b"]) for _ in range(4)]
    for run in early:
        wait_for_status(run, "suspended", seconds=LONG)
    deployment.worker("graphs_old", name="old")
    late = [_workflow(shop, "order", ending).start(["a", "b"]) for shop in (old, new) for _ in range(4)]
    for run in late:
        wait_for_status(run, "suspended", seconds=LONG)
    for run in late:
        assert _wake(run) == "completed"
    first.stop()
    for run in early:
        assert _wake(run) == "completed"

    assert [_names(old, run) for run in late[:4]] == [OLD_WAY] * 4
    assert [_names(old, run) for run in [*late[4:], *early]] == [NEW_WAY] * 8
    assert {row.attempt for run in [*late, *early] for row in steps_of(old, run)} == {1}
    assert {line["code"] for run in late for line in deployment.journal(run=run)} == {"old", "new"}
