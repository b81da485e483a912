"""Tasks as existing projects have them: nothing here knows that they run as steps."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

from celery import Celery, Task, chain, current_task, group
from celery.exceptions import Ignore, Reject
from pydantic import BaseModel

from pikkuflow.engine.current_step import current_step

app = Celery("shop", broker="memory://", set_as_current=False)


class Declined(Exception):
    """A card was declined."""


class Unpicklable(Exception):
    """Cannot be made again from its arguments."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code}: {reason}")


class Calling(Task):  # type: ignore[type-arg]
    """A base class as many projects have one: its ``__call__`` wraps Celery's."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Celery's own, after whatever such a class does."""
        return super().__call__(*args, **kwargs)


def task(name: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``@app.task`` for this file's app alone."""
    return app.task(name=f"shop.{name}", shared=False, **options)


@task("add")
def add(left: int, right: int = 0) -> int:
    """Add."""
    return left + right


@task("show", bind=True)
def show(self: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """What a bound task sees."""
    request = self.request
    return {
        "id": request.id,
        "retries": request.retries,
        "headers": request.headers,
        "tenant": getattr(request, "tenant", None),
        "args": request.args,
        "kwargs": request.kwargs,
        "root": request.root_id,
        "parent": request.parent_id,
        "directly": request.called_directly,
        "eager": bool(request.is_eager),
        "delivery": request.delivery_info,
        "limits": request.timelimit,
        "current": current_task.name,
        "step": current_step(),
    }


@task("again", bind=True)
def again(self: Any, value: int = 0, **how: Any) -> None:
    """Ask for another attempt."""
    raise self.retry(**how)


@task("again_calling", bind=True, base=Calling)
def again_calling(self: Any, value: int = 0, **how: Any) -> None:
    """The same, with a base class that calls ``super().__call__``."""
    raise self.retry(**how)


@task("wrapped", bind=True)
def wrapped(self: Any, error: str) -> None:
    """Retry because of an error, as Celery's documentation shows it."""
    try:
        fail(error)
    except Exception as exc:
        raise self.retry(exc=exc, countdown=1) from exc


def fail(how: str) -> None:
    """Raise an error of that kind."""
    raise {"plain": ValueError("no"), "odd": Unpicklable(7, "odd")}[how]


@task("spent", bind=True, max_retries=2)
def spent(self: Any, *, tells: bool) -> None:
    """Retries of its own: two."""
    if tells:
        raise self.retry(exc=Declined("no"))
    raise self.retry()


@task("auto", autoretry_for=(Declined,), retry_kwargs={"max_retries": 2})
def auto() -> None:
    """Celery retries it by itself."""
    raise Declined("no")


@task("backoff", autoretry_for=(Declined,), retry_backoff=4, retry_jitter=False)
def backoff() -> None:
    """The same, with a growing delay."""
    raise Declined("no")


@task("patient", bind=True, default_retry_delay=30)
def patient(self: Any) -> None:
    """A retry delay of its own."""
    raise self.retry()


@task("boom")
def boom(message: str = "no") -> None:
    """Raise."""
    raise Declined(message)


@task("calls_other")
def calls_other() -> None:
    """Call another task as a function; that one wants to be retried."""
    again(exc=Declined("inner"))


@task("raises")
def raises(what: str) -> None:
    """Raise one of Celery's own."""
    raise {
        "ignore": Ignore("enough"),
        "reject": Reject("bad"),
        "requeue": Reject(Declined("later"), requeue=True),
        "exit": SystemExit(3),
    }[what]


@task("replaced", bind=True)
def replaced(self: Any, how: str) -> Any:
    """Hand over to something else."""
    raise self.replace(replacement(how))


@task("replaced_calling", bind=True, base=Calling)
def replaced_calling(self: Any, how: str) -> Any:
    """The same, with a base class that calls ``super().__call__``."""
    return self.replace(replacement(how))


def replacement(how: str) -> Any:
    """What takes over."""
    if how == "chain":
        return chain(add.s(1, 2), add.s(10))
    if how == "group":
        return group(add.s(1, 2), add.s(3, 4))
    return add.s(1, 2) if how == "task" else boom.s("replaced")


@task("returns_retry", bind=True)
def returns_retry(self: Any) -> Any:
    """Ask for another attempt without raising."""
    return self.retry(throw=False, countdown=5)


@task("delays")
def delays() -> None:
    """Send another task."""
    add.delay(1, 2)


class Line(BaseModel):
    """What is ordered."""

    sku: str
    count: int
    day: date | None = None


@task("order_line", pydantic=True)
def order_line(line: Line, other: Line | None = None, times: int = 1) -> Line:
    """More of it."""
    return Line(sku=line.sku, count=line.count * times, day=line.day)


@task("strict_line", pydantic=True, pydantic_strict=True, bind=True)
def strict_line(self: Any, line: Line) -> int:
    """Takes no text for a number."""
    return line.count
