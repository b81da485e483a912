"""An application that is given, and gives, what cannot be stored, and one workflow more than its worker knows."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from celery import Celery

from pikkuflow import PikkuFlow, StepFailed, Workflow
from tests.acceptance.apps.configured import configure
from tests.acceptance.apps.journal import note_step
from tests.acceptance.apps.values import VALUES

app = configure(Celery("bad"), pikkuflow_max_payload_bytes=100_000)
pikku = PikkuFlow(app)


@app.task(name="bad.give")
def give(kind: str) -> Any:
    """Give back a value of that kind."""
    note_step("given")
    return VALUES[kind]()


@app.task(name="bad.take")
def take(value: Any) -> Any:
    """Take any value."""
    note_step("taken")
    return value


@app.task(name="bad.typed")
def typed(number: int, *, word: str) -> str:
    """A task with a signature that calls are checked against."""
    note_step("typed")
    return word * number


@pikku.workflow(name="bad.result")
def result(wf: Workflow, /, kind: str, **options: Any) -> Any:
    """A step with that result."""
    return wf.do("give", give.s(kind), **options)


@pikku.workflow(name="bad.argument")
def argument(wf: Workflow, kind: str) -> Any:
    """A step with that argument, after one that works."""
    wf.do("before", take.s(1))
    return wf.do("take", take.s(VALUES[kind]()))


@pikku.workflow(name="bad.output")
def output(_wf: Workflow, kind: str) -> Any:
    """A run with that output."""
    return VALUES[kind]()


@pikku.workflow(name="bad.call")
def call(wf: Workflow, kind: str) -> Any:
    """A call that cannot be a step, after one that works."""
    wf.do("before", take.s(1))
    anything: Any = wf
    signature: Any = take.s(1)
    calls: dict[str, Callable[[], Any]] = {
        "number as name": lambda: anything.do(7, take.s(1)),
        "bytes as name": lambda: anything.do(b"name", take.s(1)),
        "brackets in name": lambda: wf.do("a[1]", take.s(1)),
        "number sign in name": lambda: wf.do("a#1", take.s(1)),
        "reserved name": lambda: wf.do("__now", take.s(1)),
        "impossible duration": lambda: wf.sleep("three fortnights"),
        "negative duration": lambda: wf.sleep(-1),
        "truth as duration": lambda: wf.sleep(True),  # noqa: FBT003 - the mistake is the point
        "impossible delay": lambda: wf.do("x", take.s(1), retry_delay="soon"),
        "arguments that do not fit": lambda: wf.do("x", typed.s(1)),
        "unknown option": lambda: anything.do("x", take.s(1), retrys=3),
        "no step at all": lambda: anything.do("x", 5),
        "limit that is no number": lambda: wf.do("x", signature.set(time_limit="x")),
        "countdown past every calendar": lambda: wf.do("x", take.s(1).set(countdown=1e18)),
        "linked signature": lambda: wf.do("x", take.s(1).set(link=take.s())),
    }
    return calls[kind]()


@pikku.workflow(name="bad.missing_task")
def missing_task(wf: Workflow) -> Any:
    """A step of a task that only a newer worker has."""
    wf.do("before", take.s(1))
    return wf.do("missing", app.signature("bad.late", args=()))


@pikku.workflow(name="bad.caught")
def caught(wf: Workflow, kind: str) -> Any:
    """A failure that the workflow looks at."""
    try:
        return wf.do("give", give.s(kind), retries=0)
    except StepFailed as error:
        return [error.error_type, error.error_message]


if "BAD_NEWER" in os.environ:

    @app.task(name="bad.late")
    def late() -> str:
        """A task that came later."""
        note_step("late")
        return "late"

    @pikku.workflow(name="bad.unknown_there")
    def unknown_there(wf: Workflow) -> Any:
        """A workflow that the worker has not heard of, as in the middle of a deployment."""
        return wf.do(take.s("known by now"))
