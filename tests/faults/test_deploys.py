"""Old and new code side by side, as in the middle of a deployment (D5, design 3.10; scenario 33)."""

from __future__ import annotations

import pytest

from tests.acceptance.deployment import Deployment, step_of
from tests.faults.site import LONG
from tests.servers.processes import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


def test_a_worker_that_does_not_know_spends_nothing_beside_one_that_does(deployment: Deployment) -> None:
    """Scenario 33, D5: messages for new code go to old and new workers alike: each run ends by itself, with no attempt spent."""
    older = deployment.worker("bad", name="older", concurrency=1)
    deployment.settings = {**deployment.settings, "BAD_NEWER": "1"}
    bad = deployment.load("bad")
    met = bad.missing_task.start(), bad.unknown_there.start()
    for run in met:
        wait_until(lambda run=run: run.head().status == "suspended", seconds=LONG, what=run.id)  # type: ignore[misc]
    deployment.worker("bad", name="newer", concurrency=1, env={"BAD_NEWER": "1"})
    deployment.beat("bad", env={"BAD_NEWER": "1"})
    tasks = [met[0], *(bad.missing_task.start() for _ in range(3))]
    workflows = [met[1], *(bad.unknown_there.start() for _ in range(3))]
    for run, output in [*((run, "late") for run in tasks), *((run, "known by now") for run in workflows)]:
        assert run.result(timeout=240) == output
        assert {step.attempts for step in run.status().steps} == {1}
    assert older.is_running
    assert all(step_of(bad, run, "missing").attempt == 1 for run in tasks)
    assert [line["attempt"] for line in deployment.journal("late")] == [1] * 4
