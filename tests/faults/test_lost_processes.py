"""SIGKILL of whatever there is: workers, beat; nothing is lost, doubled or stuck (spec 13.19 V6, 13.20 C3, C4; design 3.9)."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from pikkuflow import RunFailed
from pikkuflow.adapters.redis import redis_url_of
from pikkuflow.engine.sweep import SweepKind, sweep
from tests.acceptance.deployment import Deployment, attempts_of, step_of
from tests.faults.site import LONG, attempts_begun, keys_of, wait_for_steps
from tests.faults.tracing import HANG_SWEEP
from tests.servers.processes import wait_until

ONLY_SWEEPS = {
    "PIKKUFLOW_STEP_LEASE_SECONDS": "3",
    "PIKKUFLOW_RUN_LEASE_SECONDS": "3",
    "PIKKUFLOW_STALLED_SECONDS": "0.01",
    "PIKKUFLOW_UNDISPATCHED_SECONDS": "0.01",
    "PIKKUFLOW_RECOVERY": "false",
}
"""V6: leases of 3 s, sweeps with threshold 0, and none but those that the test asks for."""


def _hung(deployment: Deployment, *, retries: int) -> Any:
    run = deployment.load("steps").one.start("steps.hang_until", 99, dispatch="queue", retries=retries, retry_delay=0)
    deployment.wait_for_journal("begun", run=run, seconds=LONG)
    return run


def _sweep_by_hand(deployment: Deployment) -> int:
    rt = deployment.load("steps").pikku.runtime
    return sum(bool(sweep(rt, kind)) for kind in (SweepKind.STALLED, SweepKind.UNDISPATCHED))


def _is_lapsed(deployment: Deployment, run: Any) -> bool:
    return step_of(deployment.load("steps"), run, "work").is_lapsed


@pytest.mark.faults
def test_a_killed_machines_step_is_worked_by_another_after_its_lease(deployment: Deployment) -> None:
    """V6 (V6.1): attempt 1 killed with its worker; only the sweep brings it back; the result comes from the second process."""
    deployment.processes.env.update(ONLY_SWEEPS)
    first = deployment.worker("steps", name="first")
    steps = deployment.load("steps")
    run = steps.one.start("steps.hang_until", 2, dispatch="queue")
    (begun,) = deployment.wait_for_journal("begun", run=run, seconds=LONG)
    first.kill_all()
    deployment.worker("steps", name="second")
    wait_until(lambda: _is_lapsed(deployment, run), what="the lapse of the lease", seconds=LONG)
    assert _sweep_by_hand(deployment)
    assert run.result(timeout=LONG) == 2
    assert run.status().status == "completed"
    assert [one.status for one in attempts_of(steps, run, "work")] == ["running", "succeeded"]
    (done,) = deployment.journal("done", run=run)
    assert done["pid"] != begun["pid"]
    assert keys_of(deployment.journal("begun", run=run)) == {begun["key"]}


@pytest.mark.faults
def test_a_step_whose_worker_is_lost_at_every_attempt_fails_the_run(deployment: Deployment) -> None:
    """V6 (V6.2), T6.6: retries 1, both attempts killed: the step fails by its lease, the run fails, no third start."""
    deployment.processes.env.update(ONLY_SWEEPS)
    first = deployment.worker("steps", name="w1")
    run = _hung(deployment, retries=1)
    first.kill_all()
    second = deployment.worker("steps", name="w2")
    wait_until(lambda: _is_lapsed(deployment, run), what="the first lapse", seconds=LONG)
    _sweep_by_hand(deployment)
    deployment.wait_for_journal("begun", run=run, count=2, seconds=LONG)
    second.kill_all()
    deployment.worker("steps", name="w3")
    wait_until(lambda: _is_lapsed(deployment, run), what="the second lapse", seconds=LONG)
    wait_until(lambda: _sweep_by_hand(deployment), what="the sweep", seconds=LONG, every=0.5)
    with pytest.raises(RunFailed, match="lease"):
        run.result(timeout=LONG)
    assert run.status().status == "failed"
    row = step_of(deployment.load("steps"), run, "work")
    assert (row.status, row.attempt) == ("failed", 2)
    assert row.error is not None
    assert row.error.type.endswith("StepLeaseExpired")
    assert _sweep_by_hand(deployment) == 0
    assert attempts_begun(deployment, run) == [1, 2]


@pytest.mark.faults
def test_only_a_sweep_after_the_lapse_brings_a_step_back(deployment: Deployment) -> None:
    """V6 (V6.4): a sweep during the lease does nothing; after the lapse nothing moves by itself for 5 s; the next sweep drives it."""
    deployment.processes.env.update(ONLY_SWEEPS)
    first = deployment.worker("steps", name="first")
    steps = deployment.load("steps")
    run = steps.one.start("steps.hang_until", 2, dispatch="queue")
    deployment.wait_for_journal("begun", run=run, seconds=LONG)
    deployment.worker("steps", name="second")
    assert _sweep_by_hand(deployment) == 0
    first.kill_all()
    assert _sweep_by_hand(deployment) == 0
    wait_until(lambda: _is_lapsed(deployment, run), what="the lapse", seconds=LONG)
    lapsed_at = time.monotonic()
    wait_until(lambda: time.monotonic() - lapsed_at >= 5, what="5 s", seconds=10)
    assert attempts_begun(deployment, run) == [1]
    assert step_of(steps, run, "work").status == "running"
    assert _sweep_by_hand(deployment)
    assert run.result(timeout=LONG) == 2
    assert attempts_begun(deployment, run) == [1, 2]


@pytest.mark.faults
def test_three_phases_survive_a_kill_in_a_sleep_a_kill_in_a_step_and_a_restart(deployment: Deployment) -> None:
    """C4: the run completes without help, in order; each phase's effect once, the killed step's under the same key."""
    worker = deployment.worker("faulty", name="w")
    deployment.beat("faulty")
    run = deployment.load("faulty").phases.start(1.5, 3.0)
    wait_for_steps(run, "first", "nap")
    worker.kill_all()
    worker = deployment.worker("faulty", name="w")
    wait_until(lambda: len(deployment.journal("begun", run=run)) == 2, what="the second phase", seconds=LONG)
    worker.kill_all()
    worker = deployment.worker("faulty", name="w")
    wait_for_steps(run, "nap#1")
    worker.stop(seconds=LONG)
    deployment.worker("faulty", name="w")
    tokens = run.result(timeout=LONG)
    done = deployment.journal("done", run=run)
    assert [line["token"] for line in done] == tokens
    assert [line["step"] for line in deployment.journal("begun", run=run)] == ["first", "second", "second", "third"]
    assert len(keys_of(deployment.journal("begun", run=run))) == 3


@pytest.mark.faults
def test_a_poisoned_shard_does_not_touch_the_healthy_ones(deployment: Deployment) -> None:
    """C3: one shard takes its process down each time: the others are recorded once and never worked again."""
    deployment.worker("steps", name="shards", concurrency=3)
    steps = deployment.load("steps")
    run = steps.fan.start("steps.die_until", [1, 1, 99, 1, 1, 1], retries=2, retry_delay=0)
    with pytest.raises(RunFailed, match="lease"):
        run.result(timeout=LONG)
    begun = [line["step"] for line in deployment.journal("begun", run=run)]
    assert sorted(begun) == [
        "work[0]", "work[1]", "work[2]", "work[2]", "work[2]", "work[3]", "work[4]", "work[5]",
    ]  # fmt: skip
    rows = {step.name: step.status for step in run.status().steps}
    assert rows.pop("work[2]") == "failed"
    assert set(rows.values()) == {"succeeded"}


@pytest.mark.faults
def test_a_step_outgrows_its_service_being_away(deployment: Deployment, tmp_path: Path) -> None:
    """C5: the service is off for several attempts; once it is back the step succeeds, and what was recorded stands."""
    deployment.worker("faulty")
    service = tmp_path / "service"
    run = deployment.load("faulty").one.start("faulty.ask_service", str(service), retries=60, retry_delay=0.3)
    deployment.wait_for_journal("begun", run=run, count=3, seconds=LONG)
    service.write_text("here again")
    assert run.result(timeout=LONG) == "here again"
    begun = deployment.journal("begun", run=run)
    assert [line["attempt"] for line in begun] == list(range(1, len(begun) + 1))
    assert len(keys_of(begun)) == 1


@pytest.mark.faults
def test_two_runs_of_equal_input_share_nothing(deployment: Deployment) -> None:
    """C6: two runs, two sets of rows, two keys."""
    deployment.worker("faulty")
    faulty = deployment.load("faulty")
    one, other = faulty.row.start(3), faulty.row.start(3)
    assert not set(one.result(timeout=LONG)) & set(other.result(timeout=LONG))
    assert one.id != other.id
    assert not keys_of(deployment.journal("begun", run=one)) & keys_of(deployment.journal("begun", run=other))


@pytest.mark.faults
@pytest.mark.parametrize("options", [{}, {"dispatch": "queue"}], ids=["in-place", "dispatched"])
def test_a_step_short_of_memory_is_tried_again(deployment: Deployment, options: dict[str, Any]) -> None:
    """Scenario 50, the kind one: MemoryError is a failure like any other; the process goes on."""
    deployment.worker("faulty")
    run = deployment.load("faulty").one.start("faulty.eat_memory", 512, 2, retry_delay=0, **options)
    assert run.result(timeout=LONG) == 2
    assert attempts_begun(deployment, run) == [1, 2]


@pytest.mark.faults
@pytest.mark.parametrize("options", [{"record_start": True}, {"dispatch": "queue"}], ids=["in-place", "dispatched"])
def test_a_c_call_that_holds_the_gil_past_its_lease_keeps_it(deployment: Deployment, options: dict[str, Any]) -> None:
    """Scenario 39, first half, T6.4, design 3.9: the parent process renews, the child need not be able to."""
    deployment.processes.env.update(PIKKUFLOW_RUN_LEASE_SECONDS="2", PIKKUFLOW_STEP_LEASE_SECONDS="2")
    deployment.worker("faulty", name="holds")
    deployment.worker("faulty", name="looks")
    deployment.beat("faulty")
    run = deployment.load("faulty").one.start("faulty.hold_gil", 9, **options)
    assert run.result(timeout=LONG) == 9
    assert attempts_begun(deployment, run) == [1]


@pytest.mark.faults
def test_a_killed_beat_delays_repair_by_three_intervals_at_most(deployment: Deployment) -> None:
    """Design 3.8: beat is dead and Valkey forgot the hint; a worker's own thread sweeps."""
    deployment.worker("faulty")
    _wait_for_startup_pass(deployment)
    beat = deployment.beat("faulty")
    run = deployment.load("faulty").sleeper.start(2.0)
    wait_for_steps(run, "nap")
    beat.kill_all()
    _forget_hints(deployment)
    run.result(timeout=LONG)
    assert [line["step"] for line in deployment.journal("begun", run=run)] == ["before", "after"]


@pytest.mark.faults
def test_two_beats_cost_work_and_not_results(deployment: Deployment) -> None:
    """Celery-notes 2.12: each tick is there twice; nothing is worked twice."""
    deployment.processes.env.update(PIKKUFLOW_SWEEP_INTERVAL="0.5", PIKKUFLOW_UNDISPATCHED_SECONDS="0.1")
    deployment.worker("faulty", concurrency=3)
    beats = [deployment.beat("faulty", name=name) for name in ("one", "two")]
    faulty = deployment.load("faulty")
    runs = [faulty.storm.start(3, 0.1) for _ in range(10)]
    for run in runs:
        run.result(timeout=LONG)
        assert set(attempts_begun(deployment, run)) == {1}
        begun = [line["key"] for line in deployment.journal("begun", run=run)]
        assert len(begun) == len(set(begun))
    assert all(beat.is_running for beat in beats)


@pytest.mark.faults
def test_a_sweep_killed_in_the_middle_does_not_block_the_next(deployment: Deployment, tmp_path: Path) -> None:
    """Scenario 18: beat's sweep is killed while it holds and renews its lease: the lease lapses, the next sweep runs within two periods."""
    period, hang = 5.0, tmp_path / "hang"
    deployment.processes.env.update(PIKKUFLOW_SWEEP_INTERVAL=str(period))
    deployment.worker("faulty", env={HANG_SWEEP: str(hang)})
    _wait_for_startup_pass(deployment)
    run = deployment.load("faulty").sleeper.start(3.0)
    wait_for_steps(run, "nap")
    _forget_hints(deployment)
    hang.touch()
    deployment.beat("faulty")
    (sweeping,) = deployment.wait_for_journal("sweeping", seconds=LONG)
    wait_until(lambda: time.time() - sweeping["at"] > 2 * period, what="renewals of the lease", seconds=LONG)
    assert attempts_begun(deployment, run) == [1]
    os.kill(sweeping["pid"], signal.SIGKILL)
    killed_at = time.time()
    run.result(timeout=LONG)
    after = deployment.journal("begun", run=run)[-1]
    assert after["step"] == "after"
    assert after["at"] - killed_at < 2 * period + 3


@pytest.mark.faults
def test_steps_that_end_in_any_order_outlive_twenty_crashes_of_their_body(
    deployment: Deployment, tmp_path: Path
) -> None:
    """Scenario 29: the process dies between the first outcome and the join, twenty times: no step runs again, none is renamed."""
    deployment.worker("faulty", concurrency=4)
    run = deployment.load("faulty").joined.start(str(tmp_path), 20)
    assert run.result(timeout=240) == list(range(60))
    assert len(list(tmp_path.glob("[0-9]*"))) == 20
    begun = deployment.journal("begun", run=run)
    assert sorted(line["step"] for line in begun) == sorted(["side", *(f"side#{number}" for number in range(1, 60))])
    assert {line["attempt"] for line in begun} == {1}


@pytest.mark.faults
def test_children_that_are_replaced_for_their_memory_lose_nothing(deployment: Deployment) -> None:
    """Issue B 5: with ``--max-memory-per-child`` at next to nothing each message ends its process: no attempt is spent."""
    deployment.worker("faulty", options=("--max-memory-per-child", "1000"))
    faulty = deployment.load("faulty")
    runs = [faulty.fan.start("faulty.work", [0.0] * 6), faulty.row.start(6), faulty.storm.start(2, 0.0)]
    for run in runs:
        run.result(timeout=LONG)
        assert set(attempts_begun(deployment, run)) == {1}
        begun = [line["key"] for line in deployment.journal("begun", run=run)]
        assert len(begun) == len(set(begun))
    assert len({line["pid"] for line in deployment.journal("begun")}) > 4


def test_a_child_killed_at_any_moment_loses_nothing(deployment: Deployment) -> None:
    """I4, I11: five times a busy child is killed while runs flow; each run's steps are seen once each, in order."""
    deployment.worker("faulty", name="busy", concurrency=3)
    faulty = deployment.load("faulty")
    runs = [faulty.storm.start(2, 0.15) for _ in range(6)]
    for _ in range(5):
        seen = len(deployment.journal("begun"))
        victim = deployment.wait_for_journal("begun", count=seen + 1, seconds=LONG)[-1]["pid"]
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            continue
    for run in runs:
        result = run.result(timeout=LONG)
        seen_by_far = [line["seen"] for line in deployment.journal("begun", run=run) if line["step"] == "far"]
        assert all(tokens == result["sides"] for tokens in seen_by_far)


def _wait_for_startup_pass(deployment: Deployment) -> None:
    """It would leave again the hints that a test takes away."""
    store = deployment.load("faulty").pikku.runtime.store
    wait_until(lambda: len(store.sweep_ages()) == len(SweepKind), seconds=LONG, what="the startup pass")


def _forget_hints(deployment: Deployment) -> None:
    """Take the hint of what sleeps from Redis: the pass that parks leaves it once it has closed, after the row is seen."""
    url = redis_url_of(deployment.broker_url)
    assert url is not None
    with Redis.from_url(url) as client:
        hints = wait_until(
            lambda: [key for key in client.keys("pikkuflow:*") if client.type(key) == b"zset"],
            seconds=LONG,
            what="a hint",
        )
        client.delete(*hints)
