"""Many at one run: held leases, steps that end in one instant, clocks that disagree (V7, V8, V9; scenarios 07, 13, 37, 44)."""

from __future__ import annotations

import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from pikkuflow import Call
from pikkuflow.adapters.celery.names import ORCHESTRATE_TASK
from pikkuflow.domain.ids import RunId
from pikkuflow.engine.front_door import run_key
from pikkuflow.engine.orchestrate import orchestrate
from tests.acceptance.deployment import Deployment, step_of
from tests.faults.site import LONG, attempts_begun, wait_for_steps
from tests.faults.tracing import CLOCK_OFFSET, CLOCK_STANDS, TRACE
from tests.servers.processes import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


def _overlaps(lines: list[dict[str, Any]], begin: str, end: str, what: str) -> list[Any]:
    """Pairs that were open at once. ``begin`` is written after the fact and ``end`` before it: what overlaps here did overlap."""
    held: dict[str, dict[str, Any]] = {}
    found = []
    for line in lines:
        key = str(line.get("run") or line.get("key"))
        if line["event"] == begin:
            if key in held and held[key][what] != line[what]:
                found.append((held[key], line))
            held[key] = line
        elif line["event"] == end and held.get(key, {}).get(what) == line[what]:
            del held[key]
    return found


def _passes_without_lease(lines: list[dict[str, Any]]) -> list[Any]:
    """Passes that opened while their run's lease was not theirs."""
    holders: dict[str, str] = {}
    found = []
    for line in lines:
        if line["event"] == "taken":
            holders[line["key"]] = line["holder"]
        elif line["event"] == "opened" and not holders.get(run_key(line["run"]), "").endswith(line["pass"]):
            found.append(line)
    return found


@pytest.mark.parametrize("workers", [1, 2])
def test_steps_that_end_in_one_instant_never_make_two_passes(deployment: Deployment, workers: int) -> None:
    """V8, scenarios 13 and 29: 20 function runs and 5 graph runs of ten parallel steps each, all ending on the same ticks; at most 90 s."""
    for number in range(workers):
        deployment.worker("faulty", name=f"w{number}", pool="threads", concurrency=20, env={TRACE: "1"})
    faulty = deployment.load("faulty")
    begun_at = time.monotonic()
    runs = faulty.fan.start_many(
        [Call(("faulty.on_the_tick", list(range(number, number + 10)))) for number in range(20)]
    )
    # Their single steps are worked in place in three of them, and dispatched in two.
    runs += [faulty.ticks[number % 2].start(list(range(number, number + 10))) for number in range(20, 25)]
    deployment.wait_for_journal("begun", count=10, seconds=LONG)
    doors = {run_key(run.run_id) for run in runs}

    def crowd() -> list[dict[str, Any]]:
        """Only the last member of a fan wakes its run, so contention has to be made; passes are short, so it may take a few."""
        for run in runs:
            for _ in range(5):
                faulty.app.send_task(ORCHESTRATE_TASK, ([run.id],), ignore_result=True)
        return [line for line in deployment.journal("refused") if line["key"] in doors]

    wait_until(crowd, seconds=60, every=0.5, what="a pass that finds its run held")
    for number, run in enumerate(runs):
        result = run.result(timeout=90)
        expected = [value * value for value in range(number, number + 10)]
        assert (result if number < 20 else run.results()["after"]) == expected
    assert time.monotonic() - begun_at < 90
    lines = deployment.journal()
    assert not _overlaps(lines, "taken", "releasing", "holder")
    assert not _overlaps(lines, "opened", "closing", "pass")
    assert {line["run"] for line in lines if line["event"] == "opened"} == {run.id for run in runs}
    assert not _passes_without_lease(lines)
    assert not [line for line in lines if line["event"] == "lost" and line["key"] in doors]
    assert all(attempts_begun(deployment, run) == [1] * 10 for run in runs[:20])
    assert all(attempts_begun(deployment, run) == [1] * 12 for run in runs[20:])


def test_twenty_steps_of_one_run_end_in_the_same_millisecond(deployment: Deployment) -> None:
    """Issue B 5: the last one counts the fan down to zero and wakes the run, whoever it is; five times over, without a sweep."""
    deployment.processes.env.update(PIKKUFLOW_RECOVERY="false")
    deployment.worker("faulty", name="many", pool="threads", concurrency=24)
    faulty = deployment.load("faulty")
    for _ in range(5):
        run = faulty.fan.start("faulty.on_the_tick", list(range(20)))
        assert run.result(timeout=LONG) == [value * value for value in range(20)]


def test_a_run_whose_lease_an_outsider_holds_waits_and_then_goes_on(deployment: Deployment) -> None:
    """V7: held for 90 s by someone else: completed not before that, and not after 135 s."""
    deployment.worker("faulty")
    deployment.beat("faulty")
    faulty = deployment.load("faulty")
    leases = faulty.pikku.runtime.leases
    held_at = time.monotonic()
    assert leases.acquire(run_key(RunId("v7")), "an outsider", 90.0)
    run = faulty.row.start(2, run_id="v7")
    assert len(run.result(timeout=135)) == 2
    assert 90 <= time.monotonic() - held_at <= 135


def test_processes_whose_clocks_disagree_exclude_each_other(deployment: Deployment) -> None:
    """V9, scenario 44: one worker 90 s ahead, one 90 s behind, leases of 5 s: none is stolen, sleeps last as long as they say."""
    deployment.processes.env.update(PIKKUFLOW_RUN_LEASE_SECONDS="5", PIKKUFLOW_STEP_LEASE_SECONDS="5")
    for name, offset in (("ahead", "90"), ("behind", "-90")):
        deployment.worker("faulty", name=name, env={TRACE: "1", CLOCK_OFFSET: offset})
    deployment.beat("faulty", env={CLOCK_OFFSET: "90"})
    faulty = deployment.load("faulty")
    long_ones = [faulty.one.start("faulty.work", 9.0, **options) for options in ({}, {"dispatch": "queue"})]
    storms = [faulty.storm.start(2, 0.2) for _ in range(4)]
    for run in [*long_ones, *storms]:
        run.result(timeout=LONG)
        assert set(attempts_begun(deployment, run)) == {1}
    lines = deployment.journal()
    assert not _overlaps(lines, "taken", "releasing", "holder")
    assert not _overlaps(lines, "opened", "closing", "pass")
    sleeper = faulty.sleeper.start(3.0)
    sleeper.result(timeout=LONG)
    before, nap = step_of(faulty, sleeper, "before"), step_of(faulty, sleeper, "nap")
    assert before.settled_at is not None
    assert nap.settled_at is not None
    assert 3 <= (nap.settled_at - before.settled_at).total_seconds() < 15


def test_a_worker_whose_wall_clock_stands_still_works_like_any_other(deployment: Deployment) -> None:
    """Issue B 5, scenario 44: leases of 2 s are renewed, sleeps and retries fire, beat sweeps; nothing is worked twice."""
    deployment.processes.env.update(PIKKUFLOW_RUN_LEASE_SECONDS="2", PIKKUFLOW_STEP_LEASE_SECONDS="2")
    deployment.worker("faulty", name="stands", env={CLOCK_STANDS: "wall"})
    deployment.worker("faulty", name="goes")
    deployment.beat("faulty")
    faulty = deployment.load("faulty")
    long_ones = [faulty.one.start("faulty.work", 7.0, **options) for options in ({}, {"dispatch": "queue"})]
    others = [*(faulty.storm.start(2, 0.2) for _ in range(4)), faulty.sleeper.start(2.0)]
    for run in [*long_ones, *others]:
        run.result(timeout=LONG)
        assert set(attempts_begun(deployment, run)) == {1}


@pytest.mark.parametrize("options", [{"record_start": True}, {"dispatch": "queue"}], ids=["in-place", "dispatched"])
def test_a_worker_that_no_longer_sees_time_pass_is_as_good_as_frozen(
    deployment: Deployment, options: dict[str, Any]
) -> None:
    """Issue B 5: durations stand still too, so it renews nothing: another takes over by the database's clock; its outcome is refused."""
    deployment.processes.env.update(PIKKUFLOW_RUN_LEASE_SECONDS="3", PIKKUFLOW_STEP_LEASE_SECONDS="3")
    gate = deployment.folder / "gate"
    stands = deployment.worker("faulty", name="stands", env={CLOCK_STANDS: "all"})
    faulty = deployment.load("faulty")
    run = faulty.one.start("faulty.wait_for", str(gate), 2, **options)
    deployment.wait_for_journal("begun", run=run, seconds=LONG)
    deployment.worker("faulty", name="goes")
    deployment.beat("faulty")
    pids = {child.pid for child in stands.children()}
    result = run.result(timeout=LONG)
    gate.touch()
    deployment.wait_for_journal("done", run=run, count=2, seconds=LONG)
    assert run.result(timeout=1) == result
    assert result[0] == 2
    assert attempts_begun(deployment, run) == [1, 2]
    assert step_of(faulty, run, "work").attempt == 2
    assert deployment.journal("begun", run=run)[0]["pid"] in pids


def test_delayed_starts_and_retries_fire_by_the_databases_clock(deployment: Deployment) -> None:
    """Scenario 44: a client whose clock is right, a worker 90 s ahead: nothing fires early, nothing an age late."""
    deployment.worker("faulty", name="ahead", env={CLOCK_OFFSET: "90"})
    deployment.beat("faulty")
    faulty = deployment.load("faulty")
    asked_at = time.monotonic()
    run = faulty.pikku.runs.get(faulty.row.apply_async((1,), countdown=3).id)
    run.result(timeout=LONG)
    assert 2.9 <= time.monotonic() - asked_at < 20


def test_fifty_passes_share_five_connections(deployment: Deployment) -> None:
    """Scenario 37: no pass holds a connection while user code runs: fifty at once, in threads, on a pool of five and five to spare."""
    faulty = deployment.load("faulty")
    rt = faulty.pikku.compose(connections=5, patience_seconds=30.0)
    runs = faulty.row.start_many([Call((3, 0.3)) for _ in range(50)])
    seen = []
    with ThreadPoolExecutor(50) as threads:
        passes = [threads.submit(orchestrate, rt, [run.run_id]) for run in runs]
        while not all(done.done() for done in passes):
            seen.append(_connections(faulty))
    for done in passes:
        done.result()
    assert all(len(run.result(timeout=1)) == 3 for run in runs)
    clients = 2  # the test's own client, and the one that counts
    assert max(seen) <= 10 + clients
    rt.store.close()


def _connections(faulty: Any) -> int:
    engine = create_engine(faulty.pikku.settings.database_url)
    try:
        with engine.connect() as connection:
            return int(
                connection.execute(
                    text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
                ).scalar_one()
            )
    finally:
        engine.dispose()


def test_children_forked_from_one_process_share_no_connection(deployment: Deployment) -> None:
    """Scenario 41: the app is imported before the fork; 2,000 steps on four children, no protocol error, each child its own."""
    worker = deployment.worker("faulty", name="forks", concurrency=4)
    faulty = deployment.load("faulty")
    runs = [faulty.row.start(100) for _ in range(20)]
    for run in runs:
        assert len(set(run.result(timeout=200))) == 100
    by_run: dict[str, set[int]] = defaultdict(set)
    for line in deployment.journal("begun"):
        by_run[line["run"]].add(line["pid"])
    assert len(set.union(*by_run.values())) == 4
    for sentence in ("Traceback", "lost synchronization", "prepared statement"):
        assert sentence not in worker.log()


def test_recovery_leaves_alone_what_moved_on_since_it_looked(deployment: Deployment) -> None:
    """Scenario 07: the startup pass of a second worker, thresholds 0, in the middle of a busy first one: nothing begins twice."""
    deployment.worker("faulty", name="busy", concurrency=2)
    faulty = deployment.load("faulty")
    runs = [faulty.storm.start(3, 0.2) for _ in range(12)]
    wait_for_steps(runs[0], "first")
    for number in range(2):
        deployment.worker("faulty", name=f"late{number}", concurrency=1)
    for run in runs:
        run.result(timeout=120)
    begun = deployment.journal("begun")
    assert len({line["key"] for line in begun}) == len(begun)
    wait_until(lambda: all(run.head().completed_at for run in runs), seconds=LONG)
