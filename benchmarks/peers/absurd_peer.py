"""Absurd: a run's steps are checkpoints in PostgreSQL, written by the worker that has claimed the run.

Modes:
    fast: two worker processes, each polling every 5 ms (its default is 250).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from absurd_sdk import Absurd
from measure import (
    Numbers,
    Options,
    Postgres,
    await_all,
    chain_numbers,
    expect,
    history_numbers,
    latency_numbers,
    measure,
    read_options,
    timed_each,
    versions_of,
)

POLL = 0.005
IMPATIENT = 0.002
QUEUE, PARKED = "bench", "parked"


def define(absurd: Absurd, queue: str) -> None:
    """The measured workflows."""

    @absurd.register_task("chain", queue=queue)
    def chain(params: dict[str, Any], ctx: Any) -> int:
        x = 0
        for index in range(params["steps"]):
            x = ctx.step(f"s{index}", lambda x=x: x + 1)
        return x

    @absurd.register_task("history", queue=queue)
    def history(params: dict[str, Any], ctx: Any) -> list[float]:
        ends, x = [], 0
        for index in range(params["steps"]):
            x = ctx.step(f"s{index}", lambda x=x: x + 1)
            ends.append(time.perf_counter())
        return ends


class AbsurdPeer:
    """Absurd with workers that poll fast."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.postgres = Postgres(options.database, f"bench_absurd_{options.mode}")
        subprocess.run(
            [Path(sys.executable).parent / "absurdctl", "init"],
            env={**os.environ, "ABSURD_DATABASE_URL": self.postgres.url},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        self.absurd, self.parked = (Absurd(self.postgres.url, queue_name=name) for name in (QUEUE, PARKED))
        for client, name in ((self.absurd, QUEUE), (self.parked, PARKED)):
            client.create_queue(name)
            define(client, name)
        argv = [sys.executable, __file__, "--work", self.postgres.url]
        self.workers = [subprocess.Popen(argv, stderr=subprocess.DEVNULL) for _ in range(options.processes)]
        time.sleep(1)

    def close(self) -> None:
        """End the workers."""
        for one in self.workers:
            one.kill()
            one.wait()

    def result(self, task: str, argument: dict[str, int], every: float = IMPATIENT) -> Any:
        """One run from its start to its result, as its client sees it."""
        started = self.absurd.spawn(task, argument)["task_id"]
        while True:
            found = self.absurd.fetch_task_result(started, QUEUE)
            if found and found.state == "completed":
                return found.result
            time.sleep(every)

    def ended(self) -> int:
        """How many runs have ended well."""
        return self.postgres.number("SELECT count(*) FROM absurd.t_bench WHERE state = 'completed'")

    # --- workloads ---------------------------------------------------------------------------------------------------
    def w1(self) -> Numbers:
        """Many runs submitted at once."""
        runs, steps, before = self.options.runs, self.options.steps, self.ended()
        begun = time.perf_counter()
        for _ in range(runs):
            self.absurd.spawn("chain", {"steps": steps})
        await_all(lambda: self.ended() >= before + runs)
        seconds = time.perf_counter() - begun
        took = self.postgres.rows(
            "SELECT extract(epoch FROM r.completed_at - t.enqueue_at) FROM absurd.t_bench t "
            "JOIN absurd.r_bench r ON r.task_id = t.task_id WHERE t.state = 'completed' AND r.completed_at IS NOT NULL "
            f"ORDER BY t.enqueue_at DESC LIMIT {runs}"
        )
        return chain_numbers(seconds, runs, steps, [float(row[0]) for row in took])

    def w2(self) -> Numbers:
        """One run at a time."""
        steps = self.options.steps
        one = timed_each(self.options.latency_runs, lambda: expect(self.result("chain", {"steps": steps}), steps))
        return latency_numbers(one, steps)

    def w4(self) -> Numbers:
        """Many steps in sequence."""
        begun = time.perf_counter()
        ends = self.result("history", {"steps": self.options.history}, 0.01)
        return history_numbers(time.perf_counter() - begun, ends)

    def w5(self) -> Numbers:
        """Starts that no worker takes."""
        steps = self.options.steps
        took = sum(timed_each(self.options.starts, lambda: self.parked.spawn("chain", {"steps": steps})))
        return {"starts_per_s": self.options.starts / took}

    def cost(self) -> Numbers:
        """What a step costs the database."""
        return self.postgres.cost(lambda steps: self.result("chain", {"steps": steps}, 0.05))


def work(url: str) -> None:
    """Be a worker until killed."""
    absurd = Absurd(url, queue_name=QUEUE)
    define(absurd, QUEUE)
    absurd.start_worker(concurrency=1, batch_size=4, poll_interval=POLL, claim_timeout=120)


def main() -> None:
    """Measure, or be a worker of the measured."""
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2])
        return
    options = read_options(__doc__ or "")
    peer = AbsurdPeer(options)
    workloads = {"chain": peer.w1, "latency": peer.w2, "history": peer.w4, "start": peer.w5, "cost": peer.cost}
    try:
        measure(options, "absurd", workloads, versions_of("absurd-sdk", "absurdctl", "psycopg"))
    finally:
        peer.close()


if __name__ == "__main__":
    main()
