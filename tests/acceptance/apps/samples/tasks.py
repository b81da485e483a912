"""The ordinary tasks that the samples' steps are."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from celery.exceptions import Ignore

from pikkuflow import current_step
from tests.acceptance.apps.samples.application import app


@app.task
def make(title: str) -> dict[str, Any]:
    """A new thing with a title."""
    return {"title": title, "state": "new"}


@app.task
def mark(thing: dict[str, Any], state: str) -> dict[str, Any]:
    """The same thing in another state."""
    return {**thing, "state": state}


@app.task
def upper(text: str) -> str:
    """The text in capitals."""
    return text.upper()


@app.task
def square(number: int) -> int:
    """Its square."""
    return number * number


@app.task
def add(a: int, b: int) -> int:
    """Their sum."""
    return a + b


@app.task
def total(numbers: list[int]) -> int:
    """The sum of all."""
    return sum(numbers)


@app.task
def is_even(number: int) -> bool:
    """Whether it is even."""
    return number % 2 == 0


@app.task
def send(channel: str, text: str) -> str:
    """Send a text; nobody has a fax any more."""
    if channel == "fax":
        raise ConnectionError("the fax is gone")
    return f"{channel}: {text}"


@app.task
def flaky(until: int) -> str:
    """Fail until that attempt."""
    attempt = current_step().attempt
    if attempt < until:
        raise TimeoutError(f"attempt {attempt} timed out")
    return f"worked at attempt {attempt}"


@app.task(bind=True, max_retries=3)
def retrying(self: Any, until: int) -> str:
    """Ask Celery for another try until that many were made."""
    if self.request.retries < until:
        raise self.retry(countdown=0)
    return f"{self.request.retries} retries"


@app.task(autoretry_for=(OSError,), retry_backoff=False, default_retry_delay=0, max_retries=2)
def auto(message: str) -> str:
    """Always fail, however often Celery tries."""
    raise OSError(message)


@app.task
def ignored() -> None:
    """Leave without a result."""
    raise Ignore


@app.task
def typed() -> dict[str, Any]:
    """Values that plain JSON has not."""
    return {"when": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "price": Decimal("9.99"), "raw": "\u0000"}


@app.task
def echo(*args: Any, **kwargs: Any) -> list[Any]:
    """Its arguments."""
    return [list(args), kwargs]
