"""The measured pikkuflow application. Everything that a user gets by default is on: retries, leases, fences, history."""

from __future__ import annotations

import os
import time

from celery import Celery
from measure import Ledger

from pikkuflow import PikkuFlow, Workflow

app = Celery("bench", broker=os.environ["BENCH_BROKER"])
app.conf.update(
    worker_prefetch_multiplier=4,
    broker_connection_retry_on_startup=True,
    task_default_queue="bench",
    pikkuflow_database_url=os.environ["BENCH_PIKKUFLOW_DATABASE"],
)
pikku = PikkuFlow(app)


@app.task
def inc(x: int) -> int:
    """One trivial step."""
    return x + 1


@app.task
def slow(run: str, index: int, ms: float, ledger: str) -> int:
    """A step that says it is executed, then takes its time."""
    Ledger(ledger).write(run, index)
    time.sleep(ms / 1000)
    return index + 1


@pikku.workflow(name="bench.chain")
def chain(wf: Workflow, steps: int) -> int:
    """W1, W2: steps in sequence."""
    x = 0
    for _ in range(steps):
        x = wf.do(inc.s(x))
    return x


@pikku.workflow(name="bench.quick", quick=True)
def quick_chain(wf: Workflow, steps: int) -> int:
    """W1: the same, with outcomes of consecutive steps written together."""
    x = 0
    for _ in range(steps):
        x = wf.do(inc.s(x))
    return x


@pikku.workflow(name="bench.parked", queue="parked")
def parked(wf: Workflow, steps: int) -> int:
    """W5: as chain, on a queue that nobody consumes."""
    return int(wf.do(inc.s(steps)))


@pikku.workflow(name="bench.fan")
def fan(wf: Workflow, count: int, chunk: int) -> int:
    """W3: parallel steps."""
    return sum(wf.map(inc, list(range(count)), chunk=chunk))


@pikku.workflow(name="bench.history")
def history(wf: Workflow, steps: int) -> list[float]:
    """W4: many steps in sequence, and when each ended."""
    ends, x = [], 0
    for _ in range(steps):
        x = wf.do(inc.s(x))
        ends.append(time.perf_counter())
    return ends


@pikku.workflow(name="bench.replayed")
def replayed(wf: Workflow, steps: int) -> int:
    """W4b: many steps, then one on a step worker, after which another pass replays all the others."""
    x = 0
    for _ in range(steps):
        x = wf.do(inc.s(x))
    wf.do("last", inc.s(x), dispatch="queue")
    return x


@pikku.workflow(name="bench.nap")
def nap(wf: Workflow, seconds: float) -> float:
    """Growth: a run that sleeps."""
    wf.sleep(seconds)
    return seconds


@pikku.workflow(name="bench.crash")
def crash(wf: Workflow, run: str, steps: int, ms: float, ledger: str) -> str:
    """W6: steps that take time."""
    for index in range(steps):
        wf.do(slow.s(run, index, ms, ledger))
    return run
