"""A process that works eight runs at once with group commit, and notes in a file what each body saw: ``grouped_runs URL LEDGER STEPS``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pikkuflow.adapters.sql import SqlRunStore
from pikkuflow.domain.ids import RunId
from pikkuflow.engine.group_commit import GroupWriter
from pikkuflow.engine.orchestrate import orchestrate
from pikkuflow.engine.start import start_runs
from tests.unit.engine.bench import Bench, Task

RUNS = [RunId(f"r{number}") for number in range(8)]


def work(url: str, ledger: Path, steps: int) -> None:
    """Work the runs to their end."""
    file = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    bench = Bench()
    store = SqlRunStore(url, pool_size=10)
    rt = bench.other(store=store, writer=GroupWriter(store))
    bench.task(lambda: "x", name="work")

    def flow(wf: Any) -> None:
        for number in range(steps):
            wf.do(f"s{number}", Task("work"))
            os.write(file, f"{wf.run_id} s{number}\n".encode())

    bench.workflow(flow)
    start_runs(rt, [bench.new_run("flow", run_id=run_id) for run_id in RUNS])
    orchestrate(rt, RUNS)
    store.close()
    os.close(file)


if __name__ == "__main__":
    work(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
