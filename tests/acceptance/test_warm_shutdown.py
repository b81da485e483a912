"""A warm shutdown ends a pass after the step in hand (design 2; issue A)."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest
from redis import Redis

from pikkuflow.adapters.redis import redis_url_of
from tests.acceptance.deployment import Deployment, steps_of
from tests.servers.processes import Program

PATIENCE = {"PIKKUFLOW_PASS_SECONDS": "30", "PIKKUFLOW_RECOVERY": "false"}
"""A pass of 30 s; no sweep, at the worker's start or later, repairs or doubles what the shutdown itself must do."""


def _waiting(deployment: Deployment) -> int:
    url = redis_url_of(deployment.broker_url)
    assert url is not None
    with Redis.from_url(url) as client:
        return int(client.llen("celery"))


def _stop_in_the_middle(deployment: Deployment, worker: Program, number: signal.Signals, within: float) -> Any:
    """Stop a worker while it is at the fourth of ten steps of half a second; ``within`` seconds later it must be gone."""
    shutdown = deployment.load("shutdown")
    run = shutdown.turns.start(10)
    deployment.wait_for_journal("begun", run=run, count=4)
    worker.send(number)
    asked = time.monotonic()
    worker.wait(seconds=20)
    took = time.monotonic() - asked
    begun, done = deployment.journal("begun", run=run), deployment.journal("done", run=run)
    assert took < within, f"{took} s after {len(begun)} steps"
    assert len(begun) == len(done), "the step in hand was finished"
    assert len(begun) < 10, "no further step was begun"
    recorded = [step.name for step in steps_of(shutdown, run) if step.status == "succeeded"]
    assert recorded == [line["step"] for line in done], "the step in hand is recorded"
    assert _waiting(deployment) == 1, "the continuation is in the queue, once"
    return run


def _goes_on_elsewhere(deployment: Deployment, run: Any, pool: str) -> None:
    deployment.worker("shutdown", name="second", pool=pool, concurrency=1)
    assert run.result(timeout=30) == list(range(10))
    assert [line["step"] for line in deployment.journal("begun", run=run)] == [f"turn {n}" for n in range(10)]
    assert {line["attempt"] for line in deployment.journal("begun", run=run)} == {1}


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_sigterm_ends_a_pass_after_the_step_in_hand(deployment: Deployment, pool: str) -> None:
    """The step is recorded, the continuation is in the queue, a second worker finishes, and no step is worked twice."""
    deployment.processes.env.update(PATIENCE)
    worker = deployment.worker("shutdown", name="first", pool=pool, concurrency=1)
    run = _stop_in_the_middle(deployment, worker, signal.SIGTERM, within=8.0)
    _goes_on_elsewhere(deployment, run, pool)


def test_a_soft_shutdown_ends_a_pass_after_the_step_in_hand(deployment: Deployment) -> None:
    """SIGQUIT with ``worker_soft_shutdown_timeout``: the pass does not work on through the time that it is given.

    Celery sleeps through all of that time, whatever happens: the six steps that were left would have fitted in.
    """
    deployment.processes.env.update(PATIENCE, SOFT_SHUTDOWN_SECONDS="5")
    worker = deployment.worker("shutdown", name="first", concurrency=1)
    run = _stop_in_the_middle(deployment, worker, signal.SIGQUIT, within=15.0)
    _goes_on_elsewhere(deployment, run, "prefork")
