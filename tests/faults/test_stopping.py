"""Ways to stop a worker: warm, cold, soft, remapped, over and over; each lets go of what it holds (design 2, 3.9; scenario 16)."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from tests.acceptance.deployment import Deployment, attempts_of, steps_of
from tests.faults.site import LONG, attempts_begun, freeze, keys_of, resume, wait_for_steps
from tests.servers.processes import Program, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]
LEASES = {"PIKKUFLOW_RUN_LEASE_SECONDS": "600", "PIKKUFLOW_STEP_LEASE_SECONDS": "600"}
"""No lease lapses while a test waits: what goes on was let go of."""
SOON = 30.0


def _working(deployment: Deployment, seconds: float, **env: str) -> tuple[Program, list[Any]]:
    """A worker with a step in place and a dispatched one in hand."""
    deployment.processes.env.update(LEASES)
    worker = deployment.worker("faulty", name="stopped", env=env)
    faulty = deployment.load("faulty")
    runs = [faulty.two.start(seconds, **options) for options in ({"record_start": True}, {"dispatch": "queue"})]
    for run in runs:
        deployment.wait_for_journal("begun", run=run, seconds=LONG)
    return worker, runs


def test_a_warm_shutdown_ends_the_step_in_hand_and_hands_the_run_on(deployment: Deployment) -> None:
    """Design 2: SIGTERM: the step in hand is recorded, the continuation is a message, no attempt is spent."""
    worker, runs = _working(deployment, 3.0)
    worker.send(signal.SIGTERM)
    assert worker.wait(seconds=LONG) == 0
    assert all(len(deployment.journal("begun", run=run)) == 1 for run in runs)
    assert all(len(deployment.journal("done", run=run)) == 1 for run in runs)
    deployment.worker("faulty", name="next")
    for run in runs:
        run.result(timeout=SOON)
        assert attempts_begun(deployment, run) == [1, 1]


@pytest.mark.parametrize(
    ("number", "env"),
    [
        pytest.param(signal.SIGQUIT, {}, id="cold"),
        pytest.param(signal.SIGTERM, {"REMAP_SIGTERM": "SIGQUIT"}, id="remapped"),
        pytest.param(signal.SIGQUIT, {"FAULTS_SOFT_SHUTDOWN": "1"}, id="soft-too-short"),
    ],
)
def test_a_cold_shutdown_lets_go_of_what_it_holds(
    deployment: Deployment, number: signal.Signals, env: dict[str, str]
) -> None:
    """Issue B 2: steps of half a minute are cut off; another worker, of another name, goes on long before their leases lapse."""
    worker, runs = _working(deployment, 3600.0, **env)
    worker.send(number)
    worker.wait(seconds=LONG)
    deployment.worker("faulty", name="next")
    for run in runs:
        lines = deployment.wait_for_journal("begun", run=run, count=2, seconds=SOON)
        assert [line["attempt"] for line in lines[:2]] == [1, 2]
        assert len(keys_of(lines)) == 1


def test_a_soft_shutdown_that_is_long_enough_ends_the_step_in_hand(deployment: Deployment) -> None:
    """Issue B 2: SIGQUIT with a soft wait: as warm, if the step ends within it."""
    worker, runs = _working(deployment, 3.0, FAULTS_SOFT_SHUTDOWN="30")
    worker.send(signal.SIGQUIT)
    worker.wait(seconds=LONG)
    assert all(len(deployment.journal("done", run=run)) == 1 for run in runs)
    deployment.worker("faulty", name="next")
    for run in runs:
        run.result(timeout=SOON)
        assert attempts_begun(deployment, run) == [1, 1]


def test_warm_restarts_without_a_pause_swallow_no_step(deployment: Deployment) -> None:
    """Scenario 16: 500 quick steps, and a worker that is told to stop 2 s after it was ready, again and again."""
    deployment.worker("faulty", name="steady", concurrency=1)
    deployment.beat("faulty")
    restless = deployment.worker("faulty", name="restless")
    faulty = deployment.load("faulty")
    runs = [faulty.fan.start("faulty.work", [0.02] * 25) for _ in range(20)]
    deadline = time.monotonic() + 200
    while not all(run.head().completed_at for run in runs):
        assert time.monotonic() < deadline, [run.status().to_dict() for run in runs if not run.head().completed_at]
        ready_at = time.monotonic()
        wait_until(lambda ready_at=ready_at: time.monotonic() - ready_at >= 2, seconds=5)  # type: ignore[misc]
        restless.send(signal.SIGTERM)
        assert restless.wait(seconds=LONG) == 0
        seen = len(restless.log())
        restless.start()
        restless.wait_until(lambda seen=seen: " ready." in restless.log()[seen:], seconds=LONG)  # type: ignore[misc]
    for run in runs:
        assert len(set(run.result(timeout=LONG))) == 25
    begun = deployment.journal("begun")
    assert len(begun) == 500
    assert {line["attempt"] for line in begun} == {1}


@pytest.mark.parametrize("task", ["faulty.wait_for", "faulty.fail_late"], ids=["ends", "fails"])
@pytest.mark.parametrize("options", [{"record_start": True}, {"dispatch": "queue"}], ids=["in-place", "dispatched"])
def test_a_frozen_worker_that_wakes_up_changes_nothing(
    deployment: Deployment, options: dict[str, Any], task: str
) -> None:
    """Scenarios 03 and 11: A is stopped past its lease, B takes over and ends the step; A wakes up and ends it too, well or badly.

    A's outcome is refused, and A says so; the rows, the attempts and the result stay B's.
    """
    deployment.processes.env.update(PIKKUFLOW_RUN_LEASE_SECONDS="3", PIKKUFLOW_STEP_LEASE_SECONDS="3")
    gate = deployment.folder / "gate"
    frozen = deployment.worker("faulty", name="frozen")
    faulty = deployment.load("faulty")
    run = faulty.one.start(task, str(gate), 2, **options)
    deployment.wait_for_journal("begun", run=run, seconds=LONG)
    wait_for_steps(run, "work")
    freeze(frozen)
    deployment.worker("faulty", name="other")
    deployment.beat("faulty")
    result = run.result(timeout=LONG)
    recorded = steps_of(faulty, run), run.head()
    gate.touch()
    resume(frozen)
    deployment.wait_for_journal("done", run=run, count=2, seconds=LONG)
    wait_until(lambda: "outdated" in frozen.log() or "Another pass took" in frozen.log(), seconds=LONG)
    assert (steps_of(faulty, run), run.head()) == recorded
    assert run.result(timeout=1) == result == [2, deployment.journal("begun", run=run)[1]["pid"]]
    assert attempts_begun(deployment, run) == [1, 2]
    assert [one.status for one in attempts_of(faulty, run, "work")] == ["running", "succeeded"]


def test_a_supervisor_that_restarts_quickly_need_not_wait_for_the_lease(deployment: Deployment) -> None:
    """Scenario 20: killed and back under its name; nothing else restarts, the lease is long; the step goes on at once."""
    worker, runs = _working(deployment, 3600.0)
    worker.kill_all()
    deployment.worker("faulty", name="stopped")
    for run in runs:
        deployment.wait_for_journal("begun", run=run, count=2, seconds=SOON)
