"""Measure pikkuflow and its peers, interleaved, and print ratios: ``python -m benchmarks.run`` (``make bench``).

Only ratios of figures from the same round mean anything: machines differ and are shared.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from benchmarks.environments import python_of
from benchmarks.jobs import JOBS, Job
from benchmarks.report import Rounds, table_of
from benchmarks.servers import Servers, running_servers

RESULTS: Final = Path(__file__).resolve().parent / "results"
_ROOT: Final = Path(__file__).resolve().parents[1]
_LIMIT_SECONDS: Final = 400


def chosen_jobs(options: argparse.Namespace) -> tuple[Job, ...]:
    """The jobs that the command line asks for, each with those of its workloads that it asks for."""
    wanted = set(filter(None, options.workloads.split(",")))
    jobs = (
        replace(job, workloads=",".join(one for one in job.workloads.split(",") if not wanted or one in wanted))
        for job in JOBS
        if (job.is_quick or not options.quick)
        and (not options.only or any(part in job.name for part in options.only.split(",")))
    )
    return tuple(job for job in jobs if job.workloads)


def measured(job: Job, servers: Servers) -> dict[str, Any] | None:
    """The line that a job printed, None when it failed; its last words are shown then."""
    argv = [python_of(job.peer), job.script, "--mode", job.mode, "--workloads", job.workloads, *job.sizes]
    where = {
        "BENCH_DATABASE": servers.far_database if job.is_far else servers.database,
        "BENCH_BROKER": servers.broker,
        "BENCH_SERVERS": " ".join(map(str, servers.pids)),
        "PYTHONPATH": str(_ROOT),
    }
    begun = time.perf_counter()
    try:
        done = subprocess.run(
            argv, env={**os.environ, **where}, capture_output=True, text=True, timeout=_LIMIT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        print(f"    {job.name} {job.workloads}: no result after {_LIMIT_SECONDS} s", flush=True)
        return None
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    print(f"    {job.name} {job.workloads}: {time.perf_counter() - begun:.1f} s", flush=True)
    if not lines:
        print(done.stderr[-2000:], flush=True)
        return None
    return {**json.loads(lines[-1]), "name": job.name}


def measure_rounds(jobs: Sequence[Job], rounds: int, servers: Servers) -> tuple[list[dict[str, Any]], list[str]]:
    """Every line of every round, and the jobs that failed; odd rounds run the jobs backwards."""
    found, failed = [], []
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", flush=True)
        for job in jobs if number % 2 == 0 else jobs[::-1]:
            if job.is_once and number > 0:
                continue
            line = measured(job, servers)
            if line is None:
                failed.append(f"{job.name} {job.workloads} in round {number + 1}")
            else:
                found.append({**line, "round": number})
    return found, failed


def machine() -> dict[str, Any]:
    """What the figures come from."""
    return {
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "at": time.strftime("%Y-%m-%d"),
    }


def main() -> int:
    """Measure, write ``results/*.json`` and print the table. Gives 1 when something could not be measured, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="pikkuflow and Celery only")
    parser.add_argument("--only", default="", help="parts of names of what is measured, comma-separated")
    parser.add_argument("--workloads", default="", help="only jobs that have one of these")
    parser.add_argument("--out", type=Path, default=RESULTS / "last.json")
    options = parser.parse_args()
    jobs = chosen_jobs(options)
    for job in jobs:
        python_of(job.peer)
    begun = time.perf_counter()
    with running_servers() as servers:
        lines, failed = measure_rounds(jobs, options.rounds, servers)
    options.out.parent.mkdir(exist_ok=True)
    result = {"machine": machine(), "took_s": round(time.perf_counter() - begun), "failed": failed, "lines": lines}
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(table_of(Rounds.of(result)))
    print(
        f"\n{options.out} has everything; python -m benchmarks.report --publish makes it the table of docs/performance.md"
    )
    if failed:
        print(f"\nNot measured: {'; '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
