"""What a house configures for its own tasks does not reach the engine's (issue A; design 7)."""

from __future__ import annotations

import time
from typing import Any

import pytest
from redis import Redis

from pikkuflow.adapters.redis import redis_url_of
from tests.acceptance.deployment import Deployment

ENGINE = ("pikkuflow.orchestrate", "pikkuflow.step", "pikkuflow.sweep")


@pytest.fixture(scope="module")
def running(shared_deployment: Deployment) -> Deployment:
    """A worker of the house's queue, which is the only one that anybody consumes, and a beat."""
    shared_deployment.worker("hostile", queues=["house"])
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


def test_engine_messages_are_acknowledged_before_they_are_worked(deployment: Deployment) -> None:
    """While a step is worked, the broker holds no message for it."""
    deployment.worker("steps", concurrency=1)
    steps = deployment.load("steps")
    run = steps.one.start("steps.slow", 1.5, dispatch="queue")
    deployment.wait_for_journal("begun", run=run)
    url = redis_url_of(deployment.broker_url)
    assert url is not None
    with Redis.from_url(url) as client:
        assert client.hlen("unacked") == 0
    run.result(timeout=15)
