"""An application whose configuration would ruin an engine that took it for its own: limits, late acks, a class, routes and annotations."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from celery import Celery, Task

from pikkuflow import PikkuFlow, Workflow
from tests.acceptance.apps.configured import configure
from tests.acceptance.apps.journal import note, note_step


class HouseTask(Task):  # type: ignore[type-arg]
    """The house's class for every task: it tells of each call."""

    def before_start(self, *_: Any, **__: Any) -> None:
        """Tell whom it was put upon."""
        note("house", task=self.name)


app = configure(
    Celery("hostile", task_cls=HouseTask),
    task_time_limit=30,
    task_soft_time_limit=25,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_default_rate_limit="1/m",
    task_routes={"*": {"queue": "house"}},
    task_annotations={"*": {"rate_limit": "1/m", "acks_late": True, "on_failure": lambda *_, **__: note("annotated")}},
)
pikku = PikkuFlow(app)


@app.task(name="hostile.touch")
def touch(value: Any) -> Any:
    """An ordinary task of the house."""
    note_step("touched")
    return value


@app.task(name="hostile.wait", bind=True)
def wait(self: Any, path: str) -> str:
    """Wait for a file, as a step or as a task of the house's own."""
    note("waits", id=self.request.id)
    while not Path(path).exists():
        time.sleep(0.02)
    return "opened"


@pikku.workflow(name="hostile.waits")
def waits(wf: Workflow, path: str, /, **options: Any) -> Any:
    """One step that waits for a file."""
    return wf.do("wait", wait.s(path), **options)


@pikku.workflow(name="hostile.many")
def many(wf: Workflow, size: int) -> list[Any]:
    """Steps in place, then steps that travel."""
    first = [wf.do("one", touch.s(n)) for n in range(size)]
    return first + wf.map(touch, range(size), name="all")
