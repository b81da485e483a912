"""What a killed process held is taken over within seconds, as a counted attempt under the same key (design 3.9, scenario 50)."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from pikkuflow import RunFailed
from tests.acceptance.deployment import Deployment, attempts_of, step_of
from tests.servers.processes import wait_until

PLACES = [pytest.param({}, id="in-place"), pytest.param({"dispatch": "queue"}, id="dispatched")]
SOON = 8.0
"""Far below the leases of the deployment (30 s for a run, 60 s for a step): nobody waited for one to lapse."""


@pytest.fixture(scope="module")
def running(shared_deployment: Deployment) -> Deployment:
    """One prefork worker of three processes: what dies leaves others that work."""
    shared_deployment.worker("steps", concurrency=3)
    return shared_deployment


@pytest.fixture(scope="module")
def steps(running: Deployment) -> Any:
    """The client."""
    return running.load("steps")


def _keys(lines: list[dict[str, Any]]) -> set[str]:
    return {line["key"] for line in lines}


@pytest.mark.parametrize("options", PLACES)
def test_a_killed_child_costs_an_attempt_and_a_second(running: Deployment, steps: Any, options: dict[str, Any]) -> None:
    """T6.2, T6.16: SIGKILL of a prefork child in a step: the next attempt begins soon, with the same invocation id."""
    run = steps.one.start("steps.hang_until", 2, **options)
    (begun,) = running.wait_for_journal("begun", run=run)
    _wait_until_recorded(run)
    os.kill(begun["pid"], signal.SIGKILL)
    again = running.wait_for_journal("begun", run=run, count=2, seconds=SOON)
    assert run.result(timeout=SOON) == 2
    assert [line["attempt"] for line in again] == [1, 2]
    assert len(_keys(again)) == 1
    assert again[1]["pid"] != begun["pid"]
    lost, good = attempts_of(steps, run, "work")
    assert (lost.attempt, lost.status) == (1, "running")
    assert (good.attempt, good.status) == (2, "succeeded")


@pytest.mark.parametrize("options", PLACES)
@pytest.mark.parametrize("task", ["steps.die_until", "steps.exit_until"])
def test_a_poison_step_ends_failed_and_others_keep_flowing(
    running: Deployment, steps: Any, task: str, options: dict[str, Any]
) -> None:
    """T6.6, scenario 50: each death is an attempt; when they are spent the step fails and says that its worker was lost."""
    poison = steps.one.start(task, 99, retries=2, **options)
    others = [steps.row.start("steps.touch", [1, 2, 3]) for _ in range(5)]
    assert [other.result(timeout=30) for other in others] == [[1, 2, 3]] * 5
    with pytest.raises(RunFailed, match=r"lost|lease"):
        poison.result(timeout=30)
    assert [line["attempt"] for line in running.journal("begun", run=poison)] == [1, 2, 3]
    row = step_of(steps, poison, "work")
    assert (row.status, row.attempt) == ("failed", 3)
    assert row.error is not None
    assert "lease" in row.error.message


@pytest.mark.parametrize("options", PLACES)
def test_a_step_without_retries_never_starts_twice(running: Deployment, steps: Any, options: dict[str, Any]) -> None:
    """D10: ``retries=0`` whose process dies ends failed, though it may have worked (design 3.11)."""
    run = steps.one.start("steps.die_until", 99, retries=0, **options)
    with pytest.raises(RunFailed):
        run.result(timeout=20)
    assert len(running.journal("begun", run=run)) == 1
    assert step_of(steps, run, "work").attempt == 1


def test_members_of_a_fan_out_survive_the_death_of_one(running: Deployment, steps: Any) -> None:
    """Only the member whose process died is worked again."""
    run = steps.fan.start("steps.die_until", [1, 2, 1, 1], retries=2)
    assert run.result(timeout=20) == [1, 2, 1, 1]
    assert [line["attempt"] for line in running.journal("begun", run=run) if line["step"] == "work[1]"] == [1, 2]
    assert len(running.journal("begun", run=run)) == 5


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_worker_that_comes_back_under_its_name_takes_over(deployment: Deployment, pool: str) -> None:
    """SIGKILL of the whole worker, then the same node name again: no lease of 30 or 60 s has to lapse."""
    worker = deployment.worker("steps", pool=pool, name="same")
    runs = _hanging_in_both_places(deployment)
    worker.kill_all()
    deployment.worker("steps", pool=pool, name="same")
    _end_at_the_second_attempt(deployment, runs)


def test_without_take_over_the_leases_lapse(deployment: Deployment) -> None:
    """T6.5: a machine that is gone, and nobody of its name: another worker goes on when the short leases are over."""
    deployment.processes.env.update(PIKKUFLOW_RUN_LEASE_SECONDS="3", PIKKUFLOW_STEP_LEASE_SECONDS="3")
    gone = deployment.worker("steps", name="gone")
    runs = _hanging_in_both_places(deployment)
    gone.kill_all()
    deployment.worker("steps", name="other")
    _end_at_the_second_attempt(deployment, runs)


def _hanging_in_both_places(deployment: Deployment) -> list[Any]:
    steps = deployment.load("steps")
    runs = [steps.one.start("steps.hang_until", 2, **options) for options in ({}, {"dispatch": "queue"})]
    for run in runs:
        deployment.wait_for_journal("begun", run=run)
        _wait_until_recorded(run)
    return runs


def _end_at_the_second_attempt(deployment: Deployment, runs: list[Any]) -> None:
    for run in runs:
        assert run.result(timeout=20) == 2
        lines = deployment.journal("begun", run=run)
        assert [line["attempt"] for line in lines] == [1, 2]
        assert len(_keys(lines)) == 1


def _wait_until_recorded(run: Any) -> None:
    """A step in place is a row once it has worked for a moment; a dispatched one is a row from its beginning."""
    wait_until(lambda: run.status().steps, what="the row of the step")
