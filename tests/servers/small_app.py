"""A Celery application that the tests of the fixtures start: no pikkuflow in it."""

from __future__ import annotations

import os
import time

from celery import Celery

app = Celery("small", broker=os.environ.get("CELERY_BROKER_URL", "memory://"))
if config := os.environ.get("SMALL_CONFIG"):
    app.config_from_object(config)
app.conf.broker_connection_retry_on_startup = True
app.conf.beat_schedule = {"touch": {"task": "small.touch", "schedule": 0.2, "args": ("beaten",)}}


@app.task(name="small.touch")
def touch(name: str) -> None:
    """Leave a file in the folder that the test looks at."""
    with open(os.path.join(os.environ["SMALL_FOLDER"], name), "a", encoding="utf-8") as file:  # noqa: PTH118, PTH123
        file.write(f"{os.getpid()}\n")


@app.task(name="small.hang")
def hang(name: str) -> None:
    """Say that it began, then stay."""
    touch(name)
    time.sleep(600)
