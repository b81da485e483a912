"""What every measured program shares: its options, its statistics, the ledger of executed steps, and the line that it prints.

Runs under each peer's own interpreter, so it imports the standard library and, for ``Postgres``, psycopg.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

Numbers = dict[str, float | None]
Workload = Callable[[], Numbers]

SETTLE_SECONDS: Final = 11.5
"""PostgreSQL's idle backends hand in their statistics after ten seconds."""


class WrongAnswer(Exception):
    """A peer computed something else than the workload asks for: its figure would mean nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is measured, and how large. ``database`` is a server's URL without a database, ``broker`` one of Redis with one."""

    mode: str
    workloads: tuple[str, ...]
    runs: int
    steps: int
    fanout: int
    history: int
    latency_runs: int
    starts: int
    crash_runs: int
    step_ms: float
    kills: int
    processes: int
    database: str
    broker: str


def read_options(description: str, arguments: Sequence[str] | None = None) -> Options:
    """The options of a measured program, from its command line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--mode", required=True)
    add("--workloads", default="chain", help="comma-separated")
    add("--runs", type=int, default=300, help="W1: runs submitted at once")
    add("--steps", type=int, default=5, help="W1, W2, W6: steps of a run")
    add("--fanout", type=int, default=500, help="W3: parallel steps")
    add("--history", type=int, default=1000, help="W4: steps in sequence")
    add("--latency-runs", type=int, default=50, help="W2: runs, one by one")
    add("--starts", type=int, default=1000, help="W5: starts")
    add("--crash-runs", type=int, default=50, help="W6: runs in flight when the worker is killed")
    add("--step-ms", type=float, default=20.0, help="W6: what each step takes")
    add("--kills", type=int, default=1, help="W6: how often")
    add("--processes", type=int, default=2, help="worker processes")
    add("--database", default=os.environ.get("BENCH_DATABASE", "postgresql://postgres@127.0.0.1:5432"))
    add("--broker", default=os.environ.get("BENCH_BROKER", "redis://127.0.0.1:6379/1"))
    found = vars(parser.parse_args(arguments))
    return Options(**{**found, "workloads": tuple(found["workloads"].split(","))})


def versions_of(*distributions: str) -> dict[str, str]:
    """The installed versions of these distributions."""
    return {name: metadata.version(name) for name in distributions}


def measure(options: Options, peer: str, workloads: Mapping[str, Workload], versions: Mapping[str, str]) -> None:
    """Run the workloads that were asked for and print one line of JSON."""
    results = {}
    units = {"chain": options.runs, "latency": options.latency_runs, "history": 1}
    for name in options.workloads:
        begun, used = time.perf_counter(), cpu_seconds()
        results[name] = {key: rounded(value) for key, value in workloads[name]().items()}
        results[name]["took_s"] = rounded(time.perf_counter() - begun)
        if used is not None and name in units:
            results[name]["cpu_ms"] = rounded(((cpu_seconds() or used) - used) / units[name] * 1000)
    line = {
        "peer": peer,
        "mode": options.mode,
        "versions": {"python": platform.python_version(), **versions},
        "load": os.getloadavg()[0],
        "results": results,
    }
    print(json.dumps(line), flush=True)


def cpu_seconds() -> float | None:
    """What this program, its workers and the servers have used of all cores; None where there is no ``/proc``.

    Unlike the clock this hardly moves when a machine is shared.
    """
    if not Path("/proc/self/stat").exists():
        return None
    roots = {os.getpid(), *map(int, os.environ.get("BENCH_SERVERS", "").split())}
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[int(entry.name)] = int(fields[1])
            used[int(entry.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return sum(seconds for pid, seconds in used.items() if _descends(pid, roots, parents))


def _descends(pid: int, roots: set[int], parents: Mapping[int, int]) -> bool:
    while pid not in roots:
        if pid not in parents:
            return False
        pid = parents[pid]
    return True


def rounded(value: float | None) -> float | None:
    """A figure with the digits that mean something."""
    return None if value is None else float(f"{value:.5g}")


def expect(found: object, wanted: object) -> None:
    """Raise ``WrongAnswer`` unless the peer computed what it should."""
    if found != wanted:
        raise WrongAnswer(f"{found!r} instead of {wanted!r}")


def percentile(values: Iterable[float], q: float) -> float | None:
    """The value that ``q`` percent of them do not exceed, None for no values."""
    ordered = sorted(values)
    return ordered[round(q / 100 * (len(ordered) - 1))] if ordered else None


def chain_numbers(seconds: float, runs: int, steps: int, latencies: Sequence[float]) -> Numbers:
    """W1: throughput, and the seconds from a run's start to its end."""
    return {
        "seconds": seconds,
        "runs_per_s": runs / seconds,
        "steps_per_s": runs * steps / seconds,
        "p50_s": percentile(latencies, 50),
        "p99_s": percentile(latencies, 99),
    }


def latency_numbers(seconds: Sequence[float], steps: int) -> Numbers:
    """W2: what one run takes for the client that waits for it."""
    run_ms = statistics.median(seconds) * 1000
    slowest = percentile(seconds, 99) or 0.0
    return {"run_ms": run_ms, "run_ms_p99": slowest * 1000, "step_ms": run_ms / steps}


def history_numbers(seconds: float, ends: Sequence[float]) -> Numbers:
    """W4: the whole, and the milliseconds of a step among the first and the last hundred. ``ends``: when each step ended."""
    took = [(after - before) * 1000 for before, after in pairwise(ends)]
    first, last = statistics.fmean(took[:100]), statistics.fmean(took[-100:])
    return {"seconds": seconds, "first100_ms": first, "last100_ms": last, "growth": last / first}


def timed_each(times: int, act: Callable[[], object]) -> list[float]:
    """The seconds that each call took."""
    took = []
    for _ in range(times):
        begun = time.perf_counter()
        act()
        took.append(time.perf_counter() - begun)
    return took


def timed(act: Callable[[], object]) -> float:
    """The seconds that a call took."""
    return timed_each(1, act)[0]


def wait_until(ready: Callable[[], bool], *, every: float = 0.02, seconds: float = 300.0) -> bool:
    """Ask again and again; whether it came true in time."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True


def _die_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def start_worker(argv: Sequence[str | Path], folder: Path, log: str) -> subprocess.Popen[Any]:
    """Start a worker in a session of its own; on Linux the kernel ends it when the measuring program dies."""
    parent = os.getpid()
    with Path(os.environ.get("BENCH_LOGS", tempfile.gettempdir()), log).open("ab") as output:
        return subprocess.Popen(
            argv,
            cwd=folder,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=(lambda: _die_with(parent)) if sys.platform == "linux" else None,  # noqa: PLW1509 - two system calls
        )


def kill_session(worker: subprocess.Popen[Any]) -> None:
    """Kill -9 a worker and its pool."""
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


def await_all(ended: Callable[[], bool]) -> None:
    """Wait until every run has ended; ``WrongAnswer`` when that takes minutes."""
    expect(wait_until(ended), True)  # noqa: FBT003 - the value that is expected


class Ledger:
    """An append-only file with one line for each executed step, written before its work; it outlives ``kill -9`` of the writer."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def write(self, run: str, step: int) -> None:
        """Note that a step is being executed, whole or not at all."""
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, f"{run} {step}\n".encode())
        finally:
            os.close(file)

    def lines(self) -> list[str]:
        """The executions so far."""
        return self.path.read_text().splitlines() if self.path.exists() else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """W6: many runs in flight on a worker that is killed when 40% of the steps have been executed, and started again at once."""

    options: Options
    submit: Callable[[str, str], object]
    """Start one run: its name, and the ledger's path."""
    finished: Callable[[], int]
    """How many of these runs have ended well so far, over all kills."""
    start_worker: Callable[[], subprocess.Popen[Any]]
    """Give a worker of concurrency 8 that consumes."""
    kill_worker: Callable[[subprocess.Popen[Any]], None]
    in_flight: int = 8

    def measure(self) -> Numbers:
        """Kill as often as the options say. Seconds are medians; duplicates are the worst; lost and unfinished are sums."""
        kills = [self._kill() for _ in range(self.options.kills)]
        return {
            "recover_s": statistics.median(one["recover_s"] for one in kills),
            "ideal_s": statistics.median(one["ideal_s"] for one in kills),
            "duplicates": max(one["duplicates"] for one in kills),
            "lost": sum(one["lost"] for one in kills),
            "unfinished": sum(one["unfinished"] for one in kills),
            "kills": len(kills),
        }

    def _kill(self) -> dict[str, float]:
        runs, steps = self.options.crash_runs, self.options.steps
        ledger = Ledger(Path(tempfile.mkdtemp(prefix="pf-bench-"), "ledger"))
        before, worker = self.finished(), self.start_worker()
        for index in range(runs):
            self.submit(f"r{index}", str(ledger.path))
        wait_until(lambda: len(ledger.lines()) >= 0.4 * runs * steps, every=0.002)
        self.kill_worker(worker)
        begun, executed = time.perf_counter(), len(set(ledger.lines()))
        worker = self.start_worker()
        wait_until(lambda: self.finished() >= before + runs, every=0.01, seconds=90)
        recovered, lines = time.perf_counter() - begun, ledger.lines()
        unfinished = before + runs - self.finished()
        self.kill_worker(worker)
        shutil.rmtree(ledger.path.parent)
        return {
            "recover_s": recovered,
            "ideal_s": (runs * steps - executed) * self.options.step_ms / 1000 / self.in_flight,
            "duplicates": len(lines) - len(set(lines)),
            "lost": runs * steps - len(set(lines)),
            "unfinished": unfinished,
        }


class Postgres:
    """The server under test, asked on one kept connection: a new one for each question would cost the peer a core."""

    def __init__(self, server_url: str, database: str) -> None:
        import psycopg  # noqa: PLC0415 - the Celery peer has none

        self.database = database
        self.url = f"{server_url}/{database}"
        with psycopg.connect(f"{server_url}/postgres", autocommit=True) as admin:
            admin.execute(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')
            admin.execute(f'CREATE DATABASE "{database}"')
        self._kept = psycopg.connect(self.url, autocommit=True)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return self._kept.execute(query).fetchall()

    def do(self, statement: str) -> None:
        """Execute a statement that gives no rows."""
        self._kept.execute(statement)

    def number(self, query: str) -> int:
        """The one number that a query gives."""
        return int(self.rows(query)[0][0])

    def counters(self) -> dict[str, int]:
        """Commits of this database, and the server's WAL fsyncs and bytes, once idle backends have handed theirs in."""
        time.sleep(SETTLE_SECONDS)
        commits = self.number(f"SELECT xact_commit FROM pg_stat_database WHERE datname = '{self.database}'")
        fsyncs = self.number("SELECT coalesce(sum(fsyncs), 0) FROM pg_stat_io WHERE object = 'wal'")
        return {"commits": commits, "fsyncs": fsyncs, "wal_bytes": self.number("SELECT wal_bytes FROM pg_stat_wal")}

    def cost(self, chain: Callable[[int], object], *, runs: int = 20, short: int = 5, long: int = 25) -> Numbers:
        """What a step and what a run costs the database: the slope between short and long runs, and the rest."""
        taken = []
        before = self.counters()
        for steps in (short, long):
            for _ in range(runs):
                chain(steps)
            after = self.counters()
            taken.append({key: (after[key] - before[key]) / runs for key in after})
            before = after
        few, many = taken
        a_step = {key: (many[key] - few[key]) / (long - short) for key in few}
        per_step: Numbers = {f"{key}_per_step": value for key, value in a_step.items()}
        return per_step | {f"{key}_per_run": few[key] - short * a_step[key] for key in few}
