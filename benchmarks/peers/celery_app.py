"""The measured Celery application: plain tasks, broker and results on Redis, nothing durable."""

from __future__ import annotations

import os

from celery import Celery

BROKER = os.environ["BENCH_BROKER"]
app = Celery("bench", broker=BROKER, backend=BROKER)
app.conf.update(
    worker_prefetch_multiplier=4,
    broker_connection_retry_on_startup=True,
    result_expires=600,
    task_default_queue="bench",
)


@app.task
def inc(x: int) -> int:
    """One trivial task."""
    return x + 1


@app.task
def total(xs: list[int]) -> int:
    """The callback of the chord."""
    return sum(xs)


@app.task(ignore_result=True)
def noop(x: int) -> None:
    """What a bare publish asks for."""
