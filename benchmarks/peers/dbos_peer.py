"""DBOS Transact.

Modes:
    inline: runs in the client's process, as ``DBOS.start_workflow`` does; parallel steps are a gather of async steps.
    queue: two worker processes take runs from a DBOS queue, polled every 20 ms; a run's steps are inline.
    child: as queue, and each step is a workflow on a second queue: the counterpart of a step on a step worker.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

from dbos import DBOS, DBOSClient
from measure import (
    Crash,
    Ledger,
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
    timed,
    timed_each,
    versions_of,
)
from sqlalchemy import create_engine

POLL = 0.02
"""Of 10, 20, 50 and 100 ms the best for latency at no loss of throughput."""
IMPATIENT = 0.002
"""Seconds between a waiting client's polls."""
IN_FLIGHT = 8
"""W6: runs that the worker takes at a time."""


@DBOS.step()
def inc(x: int) -> int:
    """One trivial step."""
    return x + 1


@DBOS.step()
async def async_inc(x: int) -> int:
    """The same for gather."""
    return x + 1


@DBOS.step()
def slow(run: str, index: int, ms: float, ledger: str) -> int:
    """A step that says it is executed, then takes its time."""
    Ledger(ledger).write(run, index)
    time.sleep(ms / 1000)
    return index + 1


@DBOS.workflow()
def child_inc(x: int) -> int:
    """One trivial step as a workflow of its own."""
    return x + 1


def on_a_worker(x: int) -> int:
    """One trivial step, done by another worker."""
    return int(DBOS.enqueue_workflow("steps", child_inc, x).get_result(polling_interval_sec=POLL))


@DBOS.workflow()
def chain(steps: int) -> int:
    """W1, W2: steps in sequence."""
    x = 0
    for _ in range(steps):
        x = inc(x)
    return x


@DBOS.workflow()
def child_chain(steps: int) -> int:
    """The same with each step on a worker."""
    x = 0
    for _ in range(steps):
        x = on_a_worker(x)
    return x


@DBOS.workflow()
async def fan(count: int) -> int:
    """W3: parallel steps."""
    return sum(await asyncio.gather(*[async_inc(index) for index in range(count)]))


@DBOS.workflow()
def child_fan(count: int) -> int:
    """W3 with each step on a worker."""
    handles = [DBOS.enqueue_workflow("steps", child_inc, index) for index in range(count)]
    return sum(handle.get_result(polling_interval_sec=POLL) for handle in handles)


@DBOS.workflow()
def history(steps: int) -> list[float]:
    """W4: many steps in sequence, and when each ended."""
    ends, x = [], 0
    for _ in range(steps):
        x = inc(x)
        ends.append(time.perf_counter())
    return ends


@DBOS.workflow()
def crash(run: str, steps: int, ms: float, ledger: str) -> str:
    """W6: steps that take time."""
    for index in range(steps):
        slow(run, index, ms, ledger)
    return run


def configure(url: str, executor: str) -> None:
    """Set DBOS up on a database; workers have an executor's name each, so that a restarted one recovers its own runs."""
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "application_version": "bench",
            "executor_id": executor,
            "log_level": "ERROR",
            "console_log_level": "ERROR",
        }
    )


def work(url: str, executor: str, concurrency: int | None) -> None:
    """Be a worker until killed."""
    configure(url, executor)
    DBOS.listen_queues(["runs", "steps"])
    DBOS.launch()
    for queue, limit in (("runs", concurrency), ("steps", None)):
        DBOS.register_queue(queue, polling_interval_sec=POLL, worker_concurrency=limit, on_conflict="always_update")
    print("ready", flush=True)
    signal.pause()


class DbosPeer:
    """DBOS in one mode."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.postgres = Postgres(options.database, f"bench_dbos_{options.mode}")
        self.is_inline = options.mode == "inline"
        self.chain_name = "child_chain" if options.mode == "child" else "chain"
        self.workers: list[subprocess.Popen[str]] = []
        configure(self.postgres.url, "client")
        if self.is_inline:
            DBOS.launch()
        else:
            self.workers = [self.worker(f"w{index}") for index in range(options.processes)]
        self.client = DBOSClient(system_database_url=self.postgres.url, application_name="bench")
        time.sleep(1.5)  # until the pollers have read their queues

    def worker(self, executor: str, concurrency: int | None = None) -> subprocess.Popen[str]:
        """A worker process, once it listens."""
        argv = [sys.executable, __file__, "--work", self.postgres.url, executor, str(concurrency or "")]
        started = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if started.stdout is not None:
            started.stdout.readline()
        return started

    def close(self) -> None:
        """End the workers."""
        for one in self.workers:
            one.kill()
            one.wait()
        self.workers.clear()

    def enqueue(self, workflow: str, *args: object, queue: str = "runs") -> object:
        """Put a run on a queue; its handle."""
        return self.client.enqueue(self.where(workflow, queue), *args)

    @staticmethod
    def where(workflow: str, queue: str) -> dict[str, str]:
        """What names a run's function and queue."""
        return {"workflow_name": workflow, "queue_name": queue, "app_version": "bench"}

    def ended(self, workflow: str) -> int:
        """How many runs of a workflow have ended well."""
        return self.postgres.number(
            f"SELECT count(*) FROM dbos.workflow_status WHERE name = '{workflow}' AND status = 'SUCCESS'"
        )

    def run_one(self, workflow: str, argument: int) -> object:
        """One run from its start to its result, as its client sees it."""
        if self.is_inline:
            return {"chain": chain, "history": history}[workflow](argument)
        return self.enqueue(workflow, argument).get_result(polling_interval_sec=IMPATIENT)

    # --- workloads ---------------------------------------------------------------------------------------------------
    def w1(self) -> Numbers:
        """Many runs submitted at once."""
        runs, steps = self.options.runs, self.options.steps
        before, mark = self.ended(self.chain_name), int(time.time() * 1000) - 5
        begun = time.perf_counter()
        if self.is_inline:
            for handle in [DBOS.start_workflow(chain, steps) for _ in range(runs)]:
                expect(handle.get_result(), steps)
        else:
            for _ in range(runs):
                self.enqueue(self.chain_name, steps)
            await_all(lambda: self.ended(self.chain_name) >= before + runs)
        seconds = time.perf_counter() - begun
        took = self.postgres.rows(
            "SELECT completed_at - created_at FROM dbos.workflow_status "
            f"WHERE name = '{self.chain_name}' AND status = 'SUCCESS' AND created_at >= {mark}"
        )
        return chain_numbers(seconds, runs, steps, [float(row[0]) / 1000 for row in took])

    def w2(self) -> Numbers:
        """One run at a time."""
        steps = self.options.steps
        took = timed_each(self.options.latency_runs, lambda: expect(self.run_one(self.chain_name, steps), steps))
        return latency_numbers(took, steps)

    def w3(self) -> Numbers:
        """Many parallel steps of one run."""
        count = self.options.fanout

        def one() -> None:
            if self.is_inline:
                found = asyncio.run(fan(count))
            else:
                name = "child_fan" if self.options.mode == "child" else "fan"
                found = self.enqueue(name, count).get_result(polling_interval_sec=0.01)
            expect(found, count * (count + 1) // 2)

        return {"seconds": timed(one)}

    def w4(self) -> Numbers:
        """Many steps in sequence."""
        begun = time.perf_counter()
        ends = self.run_one("history", self.options.history)
        return history_numbers(time.perf_counter() - begun, ends)

    def w4b(self) -> Numbers:
        """Replay of a finished history: a fork behind its last step takes every step from its record."""
        done = DBOS.start_workflow(history, self.options.history)
        done.get_result()
        fork = DBOS.fork_workflow(done.workflow_id, self.options.history + 1)
        ends = fork.get_result(polling_interval_sec=IMPATIENT)
        return {"seconds": ends[-1] - ends[0]}

    def w5(self) -> Numbers:
        """Starts that no worker takes: one by one, and fifty in one transaction of the caller's."""
        count, steps = self.options.starts, self.options.steps
        took = sum(timed_each(count, lambda: self.enqueue("chain", steps, queue="parked")))
        engine = create_engine(self.postgres.url.replace("postgresql://", "postgresql+psycopg://"))

        def fifty() -> None:
            with engine.begin() as connection:
                for _ in range(50):
                    self.client.enqueue_in_transaction(connection, self.where("chain", "parked"), steps)

        fifties = sum(timed_each(count // 50, fifty))
        engine.dispose()
        return {"starts_per_s": count / took, "batch_starts_per_s": count // 50 * 50 / fifties}

    def w6(self) -> Numbers:
        """Kill -9 and restart."""
        self.close()

        def start_worker() -> subprocess.Popen[str]:
            worker = self.worker("w0", IN_FLIGHT)
            if not self.postgres.number("SELECT count(*) FROM dbos.workflow_status WHERE status = 'PENDING'"):
                time.sleep(2.5)  # until its poller has read the concurrency; before that it takes everything at once
            return worker

        def kill(worker: subprocess.Popen[str]) -> None:
            worker.kill()
            worker.wait()

        return Crash(
            options=self.options,
            submit=lambda run, ledger: self.enqueue("crash", run, self.options.steps, self.options.step_ms, ledger),
            finished=lambda: self.ended("crash"),
            start_worker=start_worker,
            kill_worker=kill,
        ).measure()

    def cost(self) -> Numbers:
        """What a step costs the database."""
        return self.postgres.cost(lambda steps: self.run_one(self.chain_name, steps))


def main() -> None:
    """Measure, or be a worker of the measured."""
    if sys.argv[1:2] == ["--work"]:
        _, _, url, executor, concurrency = sys.argv
        work(url, executor, int(concurrency) if concurrency else None)
        return
    options = read_options(__doc__ or "")
    peer = DbosPeer(options)
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
        measure(options, "dbos", workloads, versions_of("dbos", "sqlalchemy", "psycopg"))
    finally:
        peer.close()
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
