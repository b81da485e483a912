"""Valkey and PostgreSQL die, freeze, forget and come back: nobody has to help (issue B 3; scenarios 05, 14, 17, 40)."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from pikkuflow import Call, PikkuFlowError
from tests.acceptance.deployment import wait_for_status
from tests.faults.site import LONG, Site, attempts_begun, keys_of, resume, wait_for_steps
from tests.servers.processes import Program, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


def _all_end_well(site: Site, runs: list[Any], *, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    for run in runs:
        result = run.result(timeout=max(1.0, deadline - time.monotonic()))
        last = [line for line in site.deployment.journal("done", run=run) if line["step"] == "last"]
        assert result["last"]["last"] in {line["token"] for line in last}


@pytest.mark.parametrize("forget", [False, True], ids=["remembers", "forgets"])
def test_a_valkey_that_is_killed_and_comes_back_loses_no_run(site: Site, *, forget: bool) -> None:
    """Scenario 17, celery-notes 2.1: leases, hints and messages may be gone; workers stay up; work old and new is done."""
    worker = site.deployment.worker("faulty", concurrency=3)
    site.deployment.beat("faulty")
    asleep = site.faulty.sleeper.start(6.0)
    wait_for_steps(asleep, "nap")
    busy = [site.faulty.storm.start(2, 0.4) for _ in range(4)]
    site.deployment.wait_for_journal("begun", count=5, seconds=LONG)
    site.valkey.restart(forget=forget)
    more = [site.faulty.storm.start(2, 0.1) for _ in range(4)]
    _all_end_well(site, busy + more)
    asleep.result(timeout=LONG)
    assert worker.is_running
    begun = site.deployment.journal("begun")
    assert len({(line["key"], line["attempt"]) for line in begun}) == len(begun)


def test_idle_workers_take_up_work_after_valkey_came_back_empty(site: Site) -> None:
    """Scenario 17: they were connected and idle when it restarted with an empty memory; new work is done, old work woken."""
    site.deployment.worker("faulty", name="w1")
    site.deployment.worker("faulty", name="w2")
    asleep = site.faulty.sleeper.start(1.0)
    wait_for_steps(asleep, "nap")
    site.valkey.restart(forget=True)
    new = site.faulty.row.start(2)
    assert len(new.result(timeout=LONG)) == 2
    asleep.result(timeout=LONG)


def test_an_emptied_valkey_fences_nobody_out(site: Site) -> None:
    """FLUSHALL in mid-run, five times: the row decides; nothing is worked twice and nothing waits for a person (D19)."""
    site.deployment.worker("faulty", name="w1")
    site.deployment.worker("faulty", name="w2")
    site.deployment.beat("faulty")
    runs = [site.faulty.storm.start(2, 0.3) for _ in range(5)]
    for count in (2, 6, 10, 14, 18):
        site.deployment.wait_for_journal("begun", count=count, seconds=LONG)
        site.valkey.flush()
    _all_end_well(site, runs)
    begun = site.deployment.journal("begun")
    assert len({line["key"] for line in begun}) == len(begun)


def test_a_valkey_that_is_frozen_for_a_minute_costs_a_minute(site: Site) -> None:
    """Scenario 05, issue B 3: unreachable, not refused: the server is stopped by SIGSTOP. Steps in hand end; the rest waits for it."""
    site.deployment.worker("faulty", concurrency=3)
    site.deployment.beat("faulty")
    runs = [site.faulty.storm.start(2, 0.4) for _ in range(4)]
    site.deployment.wait_for_journal("begun", count=4, seconds=LONG)
    site.valkey.program.send(signal.SIGSTOP)
    stopped_at = time.monotonic()
    wait_until(lambda: time.monotonic() - stopped_at > 60, seconds=70, every=1.0)
    resume(site.valkey.program)
    _all_end_well(site, runs, seconds=180)
    assert all(set(attempts_begun(site.deployment, run)) == {1} for run in runs)


def test_a_start_while_the_broker_is_down_is_durable_and_begins_by_itself(site: Site) -> None:
    """Scenario 14: the caller gets a run; once the broker is back it is done within 30 s, with nobody's help."""
    site.deployment.worker("faulty")
    site.deployment.beat("faulty")
    site.valkey.kill()
    run = site.faulty.row.start(2, run_id="while-down")
    assert run.status().status == "running"
    site.valkey.start()
    back_at = time.monotonic()
    assert len(run.result(timeout=LONG)) == 2
    assert time.monotonic() - back_at < 30


def test_a_worker_and_a_beat_that_start_before_the_broker_wait_for_it(site: Site, tmp_path: Path) -> None:
    """Issue B 3: the broker is down at start."""
    site.valkey.kill()
    worker = site.deployment.processes.celery(
        "tests.acceptance.apps.faulty", "worker", "-n", "early@%h", "-c", "2", "-l", "INFO", name="early"
    )
    worker.start()
    beat = site.deployment.beat("faulty")
    wait_until(lambda: "Trying again" in worker.log() or "Cannot connect" in worker.log(), seconds=LONG)
    run = site.faulty.row.start(2)
    site.valkey.start()
    assert len(run.result(timeout=120)) == 2
    assert worker.is_running
    assert beat.is_running


def test_a_broker_that_is_down_when_steps_are_sent_delays_them_only(site: Site) -> None:
    """I11: the rows are there, the messages are not; the sweep sends them."""
    site.deployment.worker("faulty")
    site.deployment.beat("faulty")
    gate = site.deployment.folder / "gate"
    first = site.faulty.gated.start(str(gate), 4)
    site.deployment.wait_for_journal("begun", run=first, seconds=LONG)
    site.valkey.kill()
    gate.touch()
    wait_for_steps(first, "side", "side#1", "side#2", "side#3")
    site.valkey.start()
    assert len(first.result(timeout=120)) == 4
    assert set(attempts_begun(site.deployment, first)) == {1}


def test_a_start_by_message_survives_a_restart_in_its_moment(site: Site) -> None:
    """Issue B 3, celery-notes 2.1: ``send_task`` starts are acknowledged late; Valkey is killed while twenty of them arrive, four times.

    One that a worker had taken and not acknowledged comes back once the visibility timeout is over: that is Celery's and Redis' part.
    """
    site.deployment.processes.env.update(FAULTS_VISIBILITY="15")
    site.deployment.worker("faulty")
    site.deployment.beat("faulty")
    ids = [f"by-message-{number}" for number in range(20)]
    for number, run_id in enumerate(ids):
        wait_until(lambda run_id=run_id: _sent(site, run_id), seconds=LONG)  # type: ignore[misc]
        if number % 5 == 4:
            site.valkey.restart()
    worker = site.deployment.processes.programs[0]
    for run_id in ids:
        wait_until(lambda run_id=run_id: _exists_or_mended(site, worker, run_id), seconds=120, what=run_id)  # type: ignore[misc]
        assert len(site.faulty.pikku.runs.get(run_id).result(timeout=LONG)) == 1


def test_a_late_task_of_the_users_may_end_its_worker_and_no_run_is_lost(site: Site) -> None:
    """Celery-notes 2.1, docs/guarantees.md: a worker with an unacknowledged message may end when Redis restarts: a supervisor mends it."""
    worker = site.deployment.worker("faulty", name="late", concurrency=2)
    site.deployment.beat("faulty")
    gate = site.deployment.folder / "late-gate"
    site.faulty.app.send_task("faulty.late", (str(gate),), ignore_result=True)
    site.deployment.wait_for_journal("late begun", seconds=LONG)
    runs = [site.faulty.storm.start(2, 0.3) for _ in range(3)]
    site.deployment.wait_for_journal("begun", count=2, seconds=LONG)
    site.valkey.restart()
    gate.touch()
    site.deployment.wait_for_journal("late done", seconds=LONG)
    for run in runs:
        wait_until(lambda run=run: _ended_or_mended(worker, run), seconds=120, what=run.id)  # type: ignore[misc]
    _all_end_well(site, runs)


def _ended_or_mended(worker: Program, run: Any) -> bool:
    """As a supervisor would: a worker that ended is started again."""
    if not worker.is_running:
        worker.start()
    return run.head().completed_at is not None


def _sent(site: Site, run_id: str) -> bool:
    try:
        site.faulty.app.send_task("faulty.row", (1,), task_id=run_id)
    except (OSError, site.faulty.app.connection().connection_errors):
        return False
    return True


def _exists_or_mended(site: Site, worker: Any, run_id: str) -> bool:
    """As a supervisor would: a worker that ended is started again."""
    if not worker.is_running:
        worker.start()
    try:
        site.faulty.pikku.runs.get(run_id).head()
    except PikkuFlowError:
        return False
    return True


@pytest.mark.parametrize("crash", [False, True], ids=["restarted", "killed"])
def test_two_hundred_runs_outlive_their_database(site: Site, *, crash: bool) -> None:
    """Scenario 40: PostgreSQL is away under 200 runs: none fails for it, none is stuck, no step is counted as failed."""
    site.deployment.worker("faulty", name="w1", concurrency=3)
    site.deployment.worker("faulty", name="w2", concurrency=3)
    site.deployment.beat("faulty")
    runs = site.faulty.fan.start_many(_calls(200))
    site.deployment.wait_for_journal("begun", count=60, seconds=LONG)
    if crash:
        site.postgres.restart(crash=True)
    else:
        site.postgres.program.stop()
        down_at = time.monotonic()
        wait_until(lambda: time.monotonic() - down_at > 10, seconds=20, every=0.5)
        site.postgres.start()
    for run in runs:
        assert len(run.result(timeout=300)) == 2
        assert {step.status for step in run.status().steps} == {"succeeded"}
    again = [line for line in site.deployment.journal("begun") if line["attempt"] > 1]
    assert not again


def _calls(count: int) -> list[Any]:
    return [Call(("faulty.work", [0.05, 0.05])) for _ in range(count)]


def test_a_database_that_dies_under_a_long_step_does_not_fail_it(site: Site) -> None:
    """Scenario 40, I11: the outcome is written once the database is back; the work is not done again."""
    site.deployment.worker("faulty")
    site.deployment.beat("faulty")
    runs = [site.faulty.one.start("faulty.work", 4.0, **options) for options in ({}, {"dispatch": "queue"})]
    for run in runs:
        site.deployment.wait_for_journal("begun", run=run, seconds=LONG)
    site.postgres.program.kill_all()
    for run in runs:
        site.deployment.wait_for_journal("done", run=run, seconds=LONG)
    site.postgres.restart(crash=True)
    for run in runs:
        assert run.result(timeout=LONG) == site.deployment.journal("done", run=run)[0]["token"]
        wait_for_status(run, "completed")
        assert attempts_begun(site.deployment, run) == [1]
        assert len(keys_of(site.deployment.journal("begun", run=run))) == 1
