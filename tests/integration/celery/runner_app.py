"""A Celery app whose worker runs steps by the real runner, with every global setting that could disturb it."""

from __future__ import annotations

import os
import time
from typing import Any, cast

from billiard.exceptions import SoftTimeLimitExceeded
from celery import Celery, Task, chain, group

from pikkuflow.adapters.celery.step_runner import CeleryStepRunner
from pikkuflow.domain.definition import Registry
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.engine.current_step import current_step
from pikkuflow.ports import Attempted, StepWork
from pikkuflow.settings import Settings


class House(Task):  # type: ignore[type-arg]
    """The app's own task class: wraps calls, counts hooks."""

    abstract = True
    heard: list[str] = []  # noqa: RUF012 - of the process, on purpose

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As such classes do."""
        return super().__call__(*args, **kwargs)

    def on_success(self, *_: Any) -> None:
        """Heard."""
        self.heard.append(f"success {self.name}")

    def on_failure(self, *_: Any) -> None:
        """Heard."""
        self.heard.append(f"failure {self.name}")


app = Celery("runner", broker=os.environ["CELERY_BROKER_URL"], backend=os.environ["RUNNER_BACKEND"], task_cls=House)
app.conf.update(
    task_time_limit=30,
    task_acks_late=True,
    task_default_rate_limit="6000/m",
    task_routes={"*": {"queue": "all", "priority": 4}},
    task_annotations={"*": {"max_retries": 1}},
    broker_connection_retry_on_startup=True,
)


@app.task(name="runner.add")
def add(left: int, right: int = 0) -> int:
    """Add."""
    return left + right


@app.task(name="runner.replaced", bind=True)
def replaced(self: Any, how: str) -> Any:
    """Hand over to a task, a chain or a group."""
    if how == "chain":
        raise self.replace(chain(add.s(1, 2), add.s(10)))
    raise self.replace(group(add.s(1, 2), add.s(3, 4)) if how == "group" else add.s(1, 2))


@app.task(name="runner.again", bind=True)
def again(self: Any) -> None:
    """Ask for another attempt; the app's annotation allows one."""
    raise self.retry(countdown=5)


@app.task(name="runner.slow")
def slow() -> None:
    """Longer than its soft limit."""
    time.sleep(20)


@app.task(name="runner.seen", bind=True)
def seen(self: Any) -> dict[str, Any]:
    """What a step sees on a worker."""
    add.apply_async((1,), queue="elsewhere")
    return {
        "id": self.request.id,
        "hostname": self.request.hostname,
        "current": name_of(app.current_task),
        "worker_task": name_of(app.current_worker_task),
        "step": current_step().step,
        "delivery": self.request.delivery_info,
    }


def name_of(task: Any) -> str | None:
    """A task's name, if there is a task."""
    return None if task is None else str(task.name)


@app.task(name="runner.work", base=Task)
def work(task: str, args: list[Any], attempt: int = 1) -> dict[str, Any]:
    """Run one attempt at a step, and say what came of it."""
    told: list[Attempted] = []

    def commit(attempted: Attempted) -> bool:
        told.append(attempted)
        return True

    House.heard.clear()
    step = StepWork(
        run_id=RunId("run-1"),
        step=StepName("step"),
        workflow="shop.order",
        owner=None,
        task=task,
        args=tuple(args),
        kwargs={},
        attempt=attempt,
        attempts_allowed=6,
        options={"queue": "all", "priority": 4},
    )
    CeleryStepRunner(cast("Any", app), Settings(), Registry()).run(step, commit)
    error = told[0].error
    return {
        "end": told[0].end,
        "value": told[0].value,
        "error": None if error is None else repr(error),
        "soft": isinstance(error, SoftTimeLimitExceeded),
        "delay": told[0].delay_seconds,
        "heard": list(House.heard),
        "left": name_of(app.current_task),
    }
