"""Quick steps and group commit on real workers: the same results, in fewer commits (issue C, Build 3 and 4)."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pikkuflow import Call
from pikkuflow.domain.status import StepStatus
from tests.acceptance.conftest import on_valkey
from tests.acceptance.deployment import Deployment, steps_of
from tests.servers.postgres import PostgresServer
from tests.servers.valkey import ValkeyServer

SECONDS = 40


@pytest.fixture(params=["prefork", "threads"])
def running(
    tmp_path: Path, request: pytest.FixtureRequest, valkey_server: ValkeyServer, postgres_server: PostgresServer
) -> Iterator[Deployment]:
    """A worker of each pool with ``group_commit`` on."""
    for deployment in on_valkey(tmp_path, valkey_server, postgres_server, {"PIKKUFLOW_GROUP_COMMIT": "1"}):
        deployment.worker("steps", pool=request.param, concurrency=4)
        yield deployment


def test_runs_worked_at_once_come_to_the_same_results(running: Deployment) -> None:
    """Issue C, Build 3 and 4: runs of one message at once in one process, their steps as they are and quick; each has its own results."""
    steps = running.load("steps")
    options: list[dict[str, Any]] = [{}, {"quick": True}, {"dispatch": "queue"}]
    calls = [
        Call(("steps.touch", [f"{number}-{step}" for step in range(4)]), options[number % 3]) for number in range(36)
    ]
    runs = steps.row.start_many(calls)
    for number, run in enumerate(runs):
        assert run.result(timeout=SECONDS) == [f"{number}-{step}" for step in range(4)]
        assert [(step.status, step.attempt) for step in steps_of(steps, run)] == [(StepStatus.SUCCEEDED, 1)] * 4


def test_a_killed_worker_repeats_only_quick_steps_that_were_kept(running: Deployment) -> None:
    """Issue C, Build 3: SIGKILL in a chain of quick steps: at most the twenty kept and the one in hand run again, by the same keys."""
    steps = running.load("steps")
    run = steps.row.start("steps.touch", list(range(1500)), quick=True)
    lines = running.wait_for_journal("touched", run=run, count=100)
    worker = running.processes.programs[0]
    is_whole = lines[-1]["pid"] == worker.pid
    os.kill(lines[-1]["pid"], signal.SIGKILL)
    if is_whole:
        worker.wait()
        running.worker("steps", pool="threads", concurrency=4)
    assert run.result(timeout=SECONDS) == list(range(1500))
    keys = Counter(line["key"] for line in running.journal("touched", run=run))
    assert len(keys) == 1500
    assert set(keys.values()) <= {1, 2}
    assert sum(keys.values()) - 1500 <= 21
