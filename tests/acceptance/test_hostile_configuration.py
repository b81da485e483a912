"""What a house configures for its own tasks does not reach the engine's (issue A; design 7)."""

from __future__ import annotations

import time
from typing import Any

import pytest
from redis import Redis

from pikkuflow.adapters.redis import redis_url_of
from tests.acceptance.deployment import Deployment
from tests.servers.processes import wait_until

ENGINE = ("pikkuflow.orchestrate", "pikkuflow.step", "pikkuflow.sweep")


@pytest.fixture(scope="module")
def running(shared_deployment: Deployment) -> Deployment:
    """A worker of the house's queue, which is the only one that anybody consumes, and a beat."""
    shared_deployment.worker("hostile", queues=["house"], concurrency=4)
    shared_deployment.beat("hostile")
    return shared_deployment


@pytest.fixture(scope="module")
def hostile(running: Deployment) -> Any:
    """The client."""
    return running.load("hostile")


def test_a_run_completes_without_being_rate_limited(running: Deployment, hostile: Any) -> None:
    """Five runs of ten steps each, where the house allows one task a minute; sweeps go on meanwhile."""
    begun = time.monotonic()
    runs = [hostile.many.start(5) for _ in range(5)]
    assert [run.result(timeout=30) for run in runs] == [[*range(5), *range(5)]] * 5
    assert time.monotonic() - begun < 20
    assert len(running.journal("touched")) == 50


def test_the_engines_tasks_are_of_their_own_class(running: Deployment, hostile: Any) -> None:
    """The house's hooks are called for the house's tasks (steps included), never for a message of the engine."""
    told = {line["task"] for line in running.journal("house")}
    assert told == {"hostile.touch"}
    assert not running.journal("annotated")
    for name in ENGINE:
        task = hostile.app.tasks[name]
        assert not isinstance(task, hostile.HouseTask)
        assert (task.rate_limit, task.acks_late, task.reject_on_worker_lost) in {(0, False, None), (0, False, False)}


def test_engine_messages_are_acknowledged_before_they_are_worked(running: Deployment, hostile: Any) -> None:
    """While steps are worked, the broker holds no message for them: not in a queue, not unacknowledged. For a task of the house it does."""
    gate = running.folder / "gate"
    runs = [hostile.waits.start(str(gate), **options) for options in ({}, {"dispatch": "queue"})]
    running.wait_for_journal("waits", count=2)
    wait_until(lambda: not any(_held(running).values()), seconds=5, what=lambda: f"an empty broker: {_held(running)}")
    hostile.app.send_task("hostile.wait", (str(gate),))
    running.wait_for_journal("waits", count=3)
    assert _held(running) == {"queued": 0, "unacked": 1, "unacked_index": 1}, "what a late acknowledgement looks like"
    assert not any(run.head().completed_at for run in runs)
    gate.touch()
    assert [run.result(timeout=15) for run in runs] == ["opened"] * 2


def _held(deployment: Deployment) -> dict[str, int]:
    """Messages that wait in a queue, and messages that a worker took and has not acknowledged."""
    url = redis_url_of(deployment.broker_url)
    assert url is not None
    with Redis.from_url(url) as client:
        return {
            "queued": int(client.llen("house")),
            "unacked": int(client.hlen("unacked")),
            "unacked_index": int(client.zcard("unacked_index")),
        }
