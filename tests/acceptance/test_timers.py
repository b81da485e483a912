"""Time is a column: nothing waits in a worker or in the broker (design 4, scenario 02)."""

from __future__ import annotations

import time
from typing import Any

import pytest
from redis import Redis

from pikkuflow.adapters.redis import redis_url_of
from tests.acceptance.deployment import Deployment
from tests.servers.processes import wait_until


@pytest.fixture(scope="module")
def running(shared_deployment: Deployment) -> Deployment:
    """One prefork worker, no beat."""
    shared_deployment.worker("steps")
    return shared_deployment


@pytest.fixture(scope="module")
def steps(running: Deployment) -> Any:
    """The client."""
    return running.load("steps")


def _messages(deployment: Deployment) -> dict[str, int]:
    """What the broker holds: messages in queues, and messages that a worker took and has not acknowledged."""
    url = redis_url_of(deployment.broker_url)
    assert url is not None
    with Redis.from_url(url) as client:
        kinds = {key.decode(): client.type(key) for key in client.keys("*")}
        queued = {key: client.llen(key) for key, kind in kinds.items() if kind == b"list"}
        return {key: int(count) for key, count in queued.items()} | {"unacked": int(client.hlen("unacked"))}


def _is_asleep(run: Any) -> bool:
    return any(step.name == "nap" for step in run.status().steps)


def test_a_sleep_leaves_no_message_in_the_broker(running: Deployment, steps: Any) -> None:
    """Ten runs sleep: queues are empty and nothing is unacknowledged; each wakes within a fraction of a second."""
    runs = [steps.sleeper.start(3) for _ in range(10)]
    wait_until(lambda: all(_is_asleep(run) for run in runs), what="ten sleepers")
    wait_until(lambda: set(_messages(running).values()) == {0}, seconds=2, what=lambda: str(_messages(running)))
    assert not any(run.head().completed_at for run in runs)
    for run in runs:
        assert run.result(timeout=15) == ["before", "after"]
    for run in runs:
        before, after = running.journal("touched", run=run)
        assert 3.0 <= after["at"] - before["at"] < 5.0


def test_a_delay_between_attempts_leaves_no_message_in_the_broker(running: Deployment, steps: Any) -> None:
    """D21, D22: the next attempt is a row with a due time."""
    run = steps.one.start("steps.fail_until", 2, retry_delay=2, dispatch="queue")
    running.wait_for_journal("tried", run=run)
    wait_until(lambda: set(_messages(running).values()) == {0}, seconds=1.5, what=lambda: str(_messages(running)))
    assert len(running.journal("tried", run=run)) == 1
    assert run.result(timeout=15) == 2


def test_a_countdown_delays_the_first_pass(running: Deployment, steps: Any) -> None:
    """The run is there at once and begins when it is due; no ETA message waits for it."""
    asked = time.time()
    run = steps.pikku.runs.get(steps.sleeper.apply_async((0.1,), countdown=2).id)
    wait_until(lambda: set(_messages(running).values()) == {0}, seconds=1.5, what=lambda: str(_messages(running)))
    assert run.status().steps == ()
    assert run.result(timeout=15) == ["before", "after"]
    before, _ = running.journal("touched", run=run)
    assert 1.9 <= before["at"] - asked < 4.5


def test_a_sleep_outlives_its_worker(deployment: Deployment) -> None:
    """The worker is stopped during the sleep; the next one wakes the run, and what was done before is not done again."""
    worker = deployment.worker("steps", name="first")
    steps = deployment.load("steps")
    run = steps.sleeper.start(4)
    wait_until(lambda: _is_asleep(run), what="a sleeper")
    worker.stop()
    deployment.worker("steps", name="second")
    assert run.result(timeout=20) == ["before", "after"]
    before, after = deployment.journal("touched", run=run)
    assert after["at"] - before["at"] >= 4.0


def test_a_lost_hint_costs_at_most_a_sweep(running: Deployment, steps: Any) -> None:
    """T10.7: with the memory of Valkey gone, beat's sweep for scheduled sleeps wakes the run."""
    run = steps.sleeper.start(2)
    wait_until(lambda: _is_asleep(run), what="a sleeper")
    url = redis_url_of(running.broker_url)
    assert url is not None
    with Redis.from_url(url) as client:
        hints = [key for key in client.keys("pikkuflow:*") if client.type(key) == b"zset"]
        assert hints, client.keys("*")
        client.delete(*hints)
    running.beat("steps")
    assert run.result(timeout=15) == ["before", "after"]
