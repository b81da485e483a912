"""Plain Celery canvas on Redis: not durable, the ceiling of what the same broker does.

Modes:
    prefork: two worker processes; chain for steps in sequence, chord and group for parallel ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import redis
from measure import (
    Numbers,
    Options,
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
PARKED = {"queue": "parked"}


class CeleryPeer:
    """Celery with a prefork pool."""

    def __init__(self, options: Options) -> None:
        os.environ["BENCH_BROKER"] = options.broker
        import celery_app  # noqa: PLC0415 - it reads the variable above
        from celery import chain, chord, group  # noqa: PLC0415 - with it

        self.options, self.tasks = options, celery_app
        self.chain, self.chord, self.group = chain, chord, group
        self.redis = redis.Redis.from_url(options.broker)
        self.redis.flushdb()
        self.worker = self.start_worker()
        for _ in range(50):
            celery_app.inc.delay(0).get(timeout=120)

    def start_worker(self) -> subprocess.Popen[bytes]:
        """A worker, with everything left out that a broker on one machine does not need."""
        argv = [sys.executable, "-m", "celery", "-A", "celery_app", "worker", "-P", "prefork", "-Q", "bench"]
        argv += ["-c", str(self.options.processes), "-l", "WARNING", "-n", "bench@h"]
        argv += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        return start_worker(argv, HERE, "bench-celery.log")

    def close(self) -> None:
        """End the worker and its pool."""
        kill_session(self.worker)

    def steps(self, count: int) -> Any:
        """Steps in sequence."""
        return self.chain(self.tasks.inc.s(0), *[self.tasks.inc.s() for _ in range(count - 1)])

    # --- workloads ---------------------------------------------------------------------------------------------------
    def w1(self) -> Numbers:
        """Many chains submitted at once."""
        runs, steps = self.options.runs, self.options.steps
        begun, submitted, results = time.perf_counter(), [], []
        for _ in range(runs):
            submitted.append(time.time())
            results.append(self.steps(steps).apply_async())
        for one in results:
            expect(one.get(timeout=300), steps)
        seconds = time.perf_counter() - begun
        took = [one.date_done.timestamp() - at for one, at in zip(results, submitted, strict=True)]
        for one in results:
            one.forget()
        return chain_numbers(seconds, runs, steps, took)

    def w2(self) -> Numbers:
        """One chain at a time."""
        steps = self.options.steps
        took = timed_each(
            self.options.latency_runs, lambda: expect(self.steps(steps).apply_async().get(timeout=30), steps)
        )
        return latency_numbers(took, steps)

    def w3(self) -> Numbers:
        """Many parallel tasks: with a callback that sums, and as a plain group."""
        count, inc = self.options.fanout, self.tasks.inc
        wanted = count * (count + 1) // 2
        header = [inc.s(index) for index in range(count)]
        summed = timed(lambda: expect(self.chord(header, self.tasks.total.s()).apply_async().get(timeout=120), wanted))
        plain = timed(lambda: expect(sum(self.group(header).apply_async().get(timeout=120)), wanted))
        return {"seconds": summed, "group_seconds": plain}

    def w4(self) -> Numbers:
        """Tasks in sequence, driven by the client: one static chain would carry its whole rest in every message."""
        ends: list[float] = []

        def drive() -> None:
            x = 0
            for _ in range(self.options.history):
                x = self.tasks.inc.delay(x).get(timeout=30, interval=0.001)
                ends.append(time.perf_counter())

        return history_numbers(timed(drive), ends)

    def w5(self) -> Numbers:
        """Publishes that no worker takes: a bare task, and a chain."""
        count = self.options.starts
        bare = sum(timed_each(count, lambda: self.tasks.noop.apply_async((1,), **PARKED)))
        first = self.tasks.inc.s(0).set(**PARKED)
        rest = [self.tasks.inc.s() for _ in range(self.options.steps - 1)]
        chains = sum(timed_each(count, lambda: self.chain(first, *rest).apply_async()))
        self.redis.delete("parked")
        return {"starts_per_s": count / bare, "chain_starts_per_s": count / chains}


def main() -> None:
    """Measure."""
    options = read_options(__doc__ or "")
    peer = CeleryPeer(options)
    workloads = {"chain": peer.w1, "latency": peer.w2, "fanout": peer.w3, "history": peer.w4, "start": peer.w5}
    try:
        measure(options, "celery", workloads, versions_of("celery", "kombu", "redis", "hiredis"))
    finally:
        peer.close()


if __name__ == "__main__":
    main()
