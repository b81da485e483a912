"""Group commit on PostgreSQL: what it saves, counted by the server, and that it keeps what a body saw."""

from __future__ import annotations

import sys
from pathlib import Path

from pikkuflow.domain.status import StepStatus
from tests.integration.sql.conftest import Meter
from tests.integration.sql.grouped_runs import RUNS, work
from tests.servers.processes import CeleryProcesses, wait_until


def test_eight_runs_at_once_share_their_commits(meter: Meter, tmp_path: Path) -> None:
    """Issue C, Build 4: eight threads, eight runs of fifty steps: far fewer statements, each of them one commit, than steps."""
    url = meter.store.database.url.render_as_string(hide_password=False)
    cost = meter.cost(lambda: work(url, tmp_path / "ledger", 50))
    for run_id in RUNS:
        assert len(meter.store.list_steps(run_id)) == 50
    assert cost.statements - len(RUNS) * 4 - 1 < 250


def test_a_killed_process_had_stored_every_outcome_that_a_body_saw(
    meter: Meter, tmp_path: Path, celery_processes: CeleryProcesses
) -> None:
    """Issue C, Build 4, design 2: kill -9 in the middle of eight runs; "recorded before the next step" holds for each."""
    url = meter.store.database.url.render_as_string(hide_password=False)
    ledger = tmp_path / "ledger"
    argv = [sys.executable, "-m", "tests.integration.sql.grouped_runs", url, str(ledger), "5000"]
    program = celery_processes.program(argv, name="grouped")
    program.start()
    wait_until(lambda: ledger.exists() and ledger.stat().st_size > 6000, what="outcomes that were seen")
    program.kill()
    seen = {line for line in ledger.read_text().splitlines(keepends=True) if line.endswith("\n")}
    stored = {
        f"{run_id} {step.name}\n"
        for run_id in RUNS
        for step in meter.store.list_steps(run_id)
        if step.status is StepStatus.SUCCEEDED
    }
    assert len(seen) > 400
    assert seen <= stored
    # One that was stored and not yet seen, for each run.
    assert len(stored - seen) <= len(RUNS)
