"""Two sets of workers with different code, and runs asleep across the change (D17, scenarios 32 and 33)."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from tests.acceptance.deployment import Deployment, steps_of
from tests.servers.processes import Program, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

PATHS = {
    "old": ["reserve", "charge", "ship"],
    "new": ["reserve", "pay", "receipt", "ship"],
}
LATE = 300.0
"""Until everything has ended: a run that a worker could not go on with is tried again after 5, 5, 10, 20 … seconds."""


def morning(deployment: Deployment) -> None:
    """The night is over: whatever sleeps is due. Sleeps of eight hours are not waited for."""
    engine = create_engine(make_url(deployment.database_url).set(drivername="postgresql+psycopg"))
    sleeps = "kind = 'sleep' AND status NOT IN ('succeeded', 'failed', 'cancelled')"
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE pikkuflow_step SET due_at = now() WHERE due_at > now() AND {sleeps}"))  # noqa: S608
        connection.execute(
            text(
                "UPDATE pikkuflow_run SET due_at = now() WHERE due_at > now() AND status = 'running' AND id IN"  # noqa: S608
                f" (SELECT run_id FROM pikkuflow_step WHERE {sleeps})"
            )
        )
    engine.dispose()


def asleep(module: Any, run: Any, nap: str) -> bool:
    """The run lies there: its sleep is recorded, and no pass works on it."""
    rows = {str(step.name): step for step in steps_of(module, run)}
    stored = module.pikku.runtime.store.get_run(run.run_id)
    return nap in rows and not rows[nap].is_settled and stored.pass_id is None


def wait_asleep(module: Any, runs: list[Any], nap: str) -> None:
    """Until every run sleeps that."""
    wait_until(
        lambda: all(asleep(module, run, nap) for run in runs),
        seconds=LATE,
        every=0.3,
        what=lambda: f"all asleep: {[run.status().to_dict() for run in runs if not asleep(module, run, nap)][:3]}",
    )


def sleep_on(deployment: Deployment, module: Any, runs: list[Any]) -> None:
    """Until every run sleeps its second night."""
    wait_asleep(module, runs, "first night")
    morning(deployment)
    wait_asleep(module, runs, "second night")


def end_all(deployment: Deployment, runs: list[Any]) -> None:
    """Night after night until every run has ended."""

    def ended() -> bool:
        morning(deployment)
        return all(run.head().completed_at is not None for run in runs)

    wait_until(
        ended,
        seconds=LATE,
        every=1.0,
        what=lambda: f"open: {[run.head().to_dict() for run in runs if run.head().completed_at is None][:5]}",
    )


def worked(deployment: Deployment, run: Any) -> list[str]:
    """What was done for a run, in order."""
    return [line["event"] for line in deployment.journal(run=run)]


def workers(deployment: Deployment, code: str) -> list[Program]:
    """Two workers with that code."""
    return [deployment.worker(f"versions_{code}", name=f"{code}{n}", concurrency=2) for n in range(2)]


def stop(programs: list[Program]) -> None:
    """Warm shutdowns, as a deploy does it."""
    for program in programs:
        program.stop()


def orders(client: Any, count: int) -> list[Any]:
    """Runs whose steps are worked in place, and as many whose steps are dispatched."""
    return [client.order.start(("auto", "queue")[number % 2]) for number in range(count)]


def judge(deployment: Deployment, client: Any, runs: list[Any], *paths: str) -> None:
    """Each run went one of these ways, each step of it once, at its first attempt, and new steps by new code only."""
    for run in runs:
        assert run.head().status == "completed", run.status().to_dict()
        lines = deployment.journal(run=run)
        done = [line["event"] for line in lines]
        assert done in [PATHS[path] for path in paths], run.status().to_dict()
        assert {line["attempt"] for line in lines} == {1}
        assert all(line["code"] == "new" for line in lines if line["event"] in {"pay", "receipt"})
        names = [step.name for step in steps_of(client, run)]
        assert ("__patch:receipts" in names) == (done == PATHS["new"]), names


def test_a_deploy_with_runs_asleep_fails_nothing_and_mixes_no_code(deployment: Deployment) -> None:
    """D17, V4, scenario 33: old workers, then old and new ones together, then new ones; with tasks and a workflow that are new."""
    old, new = deployment.load("versions_old"), deployment.load("versions_new")
    deployment.beat("versions_old")
    before = workers(deployment, "old")
    further = orders(old, 6)
    sleep_on(deployment, old, further)
    asleep_early = orders(old, 6)
    wait_asleep(old, asleep_early, "first night")

    workers(deployment, "new")
    started = orders(new, 6)
    gifts = [new.gift.start() for _ in range(4)]
    wait_asleep(new, started, "first night")
    morning(deployment)
    stop(before)
    end_all(deployment, [*further, *asleep_early, *started, *gifts])

    judge(deployment, new, further, "old")
    judge(deployment, new, [*asleep_early, *started], "old", "new")
    for run in gifts:
        assert run.result() == ["receipt", "shipped"]
        assert worked(deployment, run) == ["receipt", "ship"]
    assert {line["code"] for line in deployment.journal()} == {"old", "new"}


def test_a_deploy_that_is_taken_back_leaves_the_new_runs_waiting(deployment: Deployment) -> None:
    """D17, V4, scenario 33: new workers, then old ones beside and instead of them; what the old code cannot do waits, and nothing fails."""
    old, new = deployment.load("versions_old"), deployment.load("versions_new")
    deployment.beat("versions_old")
    first = workers(deployment, "new")
    marked = orders(new, 6)
    sleep_on(deployment, new, marked)
    unmarked = orders(new, 6)
    wait_asleep(new, unmarked, "first night")

    back = workers(deployment, "old")
    stop(first)
    gifts = [new.gift.start() for _ in range(2)]
    started = orders(old, 4)
    end_all(deployment, [*unmarked, *started])
    wait_until(
        lambda: all(run.head().code is not None for run in [*marked, *gifts]), seconds=LATE, what="what waits shows it"
    )
    assert {run.head().status for run in [*marked, *gifts]} == {"suspended"}
    assert {run.head().code for run in marked} == {"VERSION_CONFLICT"}
    assert {run.head().code for run in gifts} == {"WORKFLOW_NOT_FOUND"}
    assert "expected patch 'receipts', found step 'versions.charge'" in str(marked[0].head().error)
    judge(deployment, old, [*unmarked, *started], "old")

    stop(back)
    workers(deployment, "new")
    end_all(deployment, [*marked, *gifts])

    judge(deployment, new, marked, "new")
    assert [worked(deployment, run) for run in gifts] == [["receipt", "ship"]] * 2


def test_a_deploy_strands_nothing_but_what_does_not_fit(deployment: Deployment) -> None:
    """Scenario 32: a comment changes nothing for 50 sleeping runs; another order of steps stops its runs, until the old worker is back."""
    old, new = deployment.load("versions_old"), deployment.load("versions_new")
    deployment.beat("versions_old")
    before = deployment.worker("versions_old", name="before", concurrency=2)
    commented = [old.commented.start() for _ in range(50)]
    changed = [old.reordered.start() for _ in range(3)]
    wait_asleep(old, [*commented, *changed], "night")
    before.stop()
    after = deployment.worker("versions_new", name="after", concurrency=2)
    end_all(deployment, commented)
    wait_until(lambda: all(run.head().status == "suspended" for run in changed), seconds=LATE, what="stopped runs")

    assert {run.head().status for run in commented} == {"completed"}
    listed = new.pikku.runs.list(code="VERSION_CONFLICT")
    assert {head.id for head in listed} == {run.run_id for run in changed}
    for head in listed:
        assert "expected step 'versions.reserve' (task), found step 'versions.charge' (task)" in str(head.error)
    assert all(worked(deployment, run) == ["reserve", "charge"] for run in changed)

    after.stop()
    deployment.worker("versions_old", name="again", concurrency=2)
    end_all(deployment, changed)

    assert all(worked(deployment, run) == ["reserve", "charge", "ship"] for run in changed)
    assert {run.head().status for run in changed} == {"completed"}
