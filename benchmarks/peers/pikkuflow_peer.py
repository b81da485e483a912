"""pikkuflow, as its users deploy it: one Celery worker of two processes, settings at their defaults.

Modes:
    place: steps in place, the default.
    queue: ``pikkuflow_dispatch = "queue"``: each step on a step worker.
    quick: as place, with the workflow's steps marked ``quick=True``.
    many: as place, started by ``start_many`` with fifty runs a call, and ``pikkuflow_group_commit = True``.
    fan: parallel steps, one message each, and chunked by ten.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from measure import (
    Crash,
    Numbers,
    Options,
    Postgres,
    await_all,
    chain_numbers,
    expect,
    history_numbers,
    kill_session,
    latency_numbers,
    measure,
    read_options,
    start_worker,
    timed,
    timed_each,
    versions_of,
)

HERE = Path(__file__).resolve().parent
BATCH, CHUNK = 50, 10

_SETTINGS = {"queue": {"PIKKUFLOW_DISPATCH": "queue"}, "many": {"PIKKUFLOW_GROUP_COMMIT": "1"}}
"""The opt-ins of a mode that are settings."""


class PikkuFlowPeer:
    """pikkuflow in one mode."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.postgres = Postgres(options.database, f"bench_pikkuflow_{options.mode}")
        os.environ["BENCH_BROKER"] = options.broker
        os.environ["BENCH_PIKKUFLOW_DATABASE"] = self.postgres.url.replace("postgresql://", "postgresql+psycopg://")
        os.environ |= _SETTINGS.get(options.mode, {})
        import pikkuflow_app  # noqa: PLC0415 - it reads the variables above
        from redis import Redis  # noqa: PLC0415 - with it

        from pikkuflow import Call  # noqa: PLC0415 - with it
        from pikkuflow.adapters.sql import migrations  # noqa: PLC0415 - with it

        self.app, self.call = pikkuflow_app, Call
        self.chain = pikkuflow_app.quick_chain if options.mode == "quick" else pikkuflow_app.chain
        migrations.upgrade(os.environ["BENCH_PIKKUFLOW_DATABASE"])
        Redis.from_url(options.broker).flushdb()
        self.worker = self.start_worker(options.processes)
        for _ in range(50):
            self.chain.start(1).result(timeout=120)

    def start_worker(self, processes: int) -> subprocess.Popen[bytes]:
        """A worker, with everything left out that a broker on one machine does not need."""
        argv = [sys.executable, "-m", "celery", "-A", "pikkuflow_app", "worker", "-P", "prefork", "-Q", "bench"]
        argv += ["-c", str(processes), "-l", "WARNING", "-n", "bench@h"]
        argv += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        return start_worker(argv, HERE, "bench-pikkuflow.log")

    @staticmethod
    def kill(worker: subprocess.Popen[bytes]) -> None:
        """Kill -9 the worker and its pool."""
        kill_session(worker)

    def close(self) -> None:
        """End the worker."""
        if self.worker.poll() is None:
            self.kill(self.worker)

    def ended(self, workflow: str) -> int:
        """How many runs of a workflow have ended well."""
        return self.postgres.number(
            f"SELECT count(*) FROM pikkuflow_run WHERE workflow = '{workflow}' AND status = 'completed'"
        )

    def start_all(self, runs: int, steps: int) -> None:
        """Start the runs of W1."""
        if self.options.mode != "many":
            for _ in range(runs):
                self.chain.start(steps)
            return
        for first in range(0, runs, BATCH):
            self.chain.start_many([self.call((steps,)) for _ in range(min(BATCH, runs - first))])

    # --- workloads ---------------------------------------------------------------------------------------------------
    def w1(self) -> Numbers:
        """Many runs submitted at once."""
        runs, steps = self.options.runs, self.options.steps
        before, begun = self.ended(self.chain.name), time.perf_counter()
        self.start_all(runs, steps)
        await_all(lambda: self.ended(self.chain.name) >= before + runs)
        seconds = time.perf_counter() - begun
        took = self.postgres.rows(
            "SELECT extract(epoch FROM finished_at - created_at) FROM pikkuflow_run "
            f"WHERE workflow = '{self.chain.name}' ORDER BY created_at DESC LIMIT {runs}"
        )
        return chain_numbers(seconds, runs, steps, [float(row[0]) for row in took])

    def w2(self) -> Numbers:
        """One run at a time."""
        steps = self.options.steps
        took = timed_each(self.options.latency_runs, lambda: expect(self.chain.start(steps).result(timeout=30), steps))
        return latency_numbers(took, steps)

    def w3(self) -> Numbers:
        """Many parallel steps of one run: a message each, and ten to a message."""
        count = self.options.fanout
        wanted = count * (count + 1) // 2

        def one(chunk: int) -> float:
            return timed(lambda: expect(self.app.fan.start(count, chunk).result(timeout=120), wanted))

        return {"seconds": one(1), "chunked_seconds": one(CHUNK)}

    def w4(self) -> Numbers:
        """Many steps in sequence."""
        begun = time.perf_counter()
        ends = self.app.history.start(self.options.history).result(timeout=300)
        return history_numbers(time.perf_counter() - begun, ends)

    def w4b(self) -> Numbers:
        """From the commit of the step on a worker to the run's end: opening, loading and replaying every step, and closing."""
        run = self.app.replayed.start(self.options.history)
        expect(run.result(timeout=120), self.options.history)
        took = self.postgres.rows(
            "SELECT extract(epoch FROM r.finished_at - s.settled_at) FROM pikkuflow_run r "
            "JOIN pikkuflow_step s ON s.run_id = r.id WHERE r.workflow = 'bench.replayed' AND s.name = 'last' "
            "ORDER BY r.created_at DESC LIMIT 1"
        )
        return {"seconds": float(took[0][0])}

    def w5(self) -> Numbers:
        """Starts that no worker takes: one by one, and fifty in one call."""
        count, steps = self.options.starts, self.options.steps
        one = sum(timed_each(count, lambda: self.app.parked.start(steps)))
        calls = [self.call((steps,)) for _ in range(BATCH)]
        many = sum(timed_each(count // BATCH, lambda: self.app.parked.start_many(calls)))
        return {"starts_per_s": count / one, "batch_starts_per_s": count // BATCH * BATCH / many}

    def w6(self) -> Numbers:
        """Kill -9 and restart under the same name."""
        self.kill(self.worker)

        def submit(run: str, ledger: str) -> Any:
            return self.app.crash.start(run, self.options.steps, self.options.step_ms, ledger)

        return Crash(
            options=self.options,
            submit=submit,
            finished=lambda: self.ended("bench.crash"),
            start_worker=lambda: self.start_worker(8),
            kill_worker=self.kill,
        ).measure()

    def cost(self) -> Numbers:
        """What a step costs the database."""
        return self.postgres.cost(lambda steps: self.chain.start(steps).result(timeout=60))


def main() -> None:
    """Measure."""
    options = read_options(__doc__ or "")
    peer = PikkuFlowPeer(options)
    workloads = {
        "chain": peer.w1,
        "latency": peer.w2,
        "fanout": peer.w3,
        "history": peer.w4,
        "replay": peer.w4b,
        "start": peer.w5,
        "crash": peer.w6,
        "cost": peer.cost,
    }
    try:
        measure(options, "pikkuflow", workloads, versions_of("celery", "kombu", "redis", "sqlalchemy", "psycopg"))
    finally:
        peer.close()


if __name__ == "__main__":
    main()
