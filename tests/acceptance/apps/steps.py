"""An application whose tasks fail, hang and die as they are told, and workflows that make steps of them as they are told."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from celery import Celery

from pikkuflow import PikkuFlow, Workflow, current_step
from tests.acceptance.apps.configured import configure
from tests.acceptance.apps.journal import note, note_step

app = configure(Celery("steps"), task_routes={"steps.elsewhere": {"queue": "elsewhere"}})
if "STEPS_BEAT" in os.environ:
    app.conf.beat_schedule = {"echo": {"task": "steps.echo", "schedule": 1.0, "args": ("beaten",)}}
pikku = PikkuFlow(app)


@app.task(name="steps.touch")
def touch(value: Any = None) -> Any:
    """Give the value back."""
    note_step("touched", value=value)
    return value


@app.task(name="steps.elsewhere")
def elsewhere(value: Any = None) -> Any:
    """The same, on a queue of its own."""
    note_step("touched", value=value)
    return value


@app.task(name="steps.whose")
def whose() -> str | None:
    """For whom it is done."""
    return current_step().owner


@app.task(name="steps.fail_until")
def fail_until(attempt: int) -> int:
    """Fail before that attempt. The effect is written once the work is done."""
    step = current_step()
    note_step("tried")
    if step.attempt < attempt:
        raise ConnectionError(f"attempt {step.attempt} failed")
    note_step("effect")
    return step.attempt


@app.task(name="steps.slow")
def slow(seconds: float) -> int:
    """Take that long, and say who did it."""
    note_step("begun")
    time.sleep(seconds)
    note_step("done")
    return os.getpid()


@app.task(name="steps.hang_until")
def hang_until(attempt: int) -> int:
    """Hang before that attempt, for longer than any test."""
    step = current_step()
    note_step("begun")
    if step.attempt < attempt:
        time.sleep(600)
    note_step("done")
    return step.attempt


@app.task(name="steps.die_until")
def die_until(attempt: int) -> int:
    """Take the process down before that attempt, as the kernel does when memory is short."""
    step = current_step()
    note_step("begun")
    if step.attempt < attempt:
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
    return step.attempt


@app.task(name="steps.exit_until")
def exit_until(attempt: int) -> int:
    """Leave the process without a word before that attempt."""
    step = current_step()
    note_step("begun")
    if step.attempt < attempt:
        os._exit(3)
    return step.attempt


@app.task(name="steps.note_plain")
def note_plain(*args: Any) -> list[Any]:
    """A task of canvas, outside any run."""
    note("plain", args=list(args))
    return list(args)


@app.task(name="steps.note_error")
def note_error(failed: str) -> None:
    """An errback of the old kind: it gets the id of what failed."""
    note("errback", failed=failed)


@pikku.workflow(name="steps.one")
def one(wf: Workflow, /, task: str, *args: Any, **options: Any) -> Any:
    """One step named ``work``."""
    return wf.do("work", app.tasks[task].s(*args), **options)


@pikku.workflow(name="steps.stubborn")
def stubborn(wf: Workflow) -> Any:
    """One step that must not be tried again after a broken connection, though it has attempts left."""
    return wf.do("work", fail_until.s(9), retries=3, retry_delay=0, no_retry_on=(ConnectionError,))


@pikku.workflow(name="steps.fan")
def fan(wf: Workflow, /, task: str, items: list[Any], **options: Any) -> Any:
    """Many steps named ``work`` at once."""
    return wf.map(app.tasks[task], items, name="work", **options)


@pikku.workflow(name="steps.row")
def row(wf: Workflow, /, task: str, items: list[Any], **options: Any) -> Any:
    """Many steps named ``work``, one after the other."""
    return [wf.do("work", app.tasks[task].s(item), **options) for item in items]


@pikku.workflow(name="steps.sleeper")
def sleeper(wf: Workflow, seconds: float) -> Any:
    """A step, a sleep, a step."""
    before = wf.do("before", touch.s("before"))
    wf.sleep("nap", seconds)
    return [before, wf.do("after", touch.s("after"))]


@pikku.workflow(name="steps.echo")
def echo(wf: Workflow, value: Any = None, *more: Any) -> Any:
    """Its input, through a step."""
    return wf.do("echo", touch.s([value, *more] if more else value))


@pikku.workflow(name="steps.fails")
def fails(wf: Workflow, *_: Any) -> Any:
    """End badly at once."""
    wf.do("before", touch.s("before"))
    raise ValueError("the workflow does not want to")


@pikku.workflow(name="steps.parent")
def parent(wf: Workflow, /, task: str, *args: Any, **options: Any) -> Any:
    """A child run with one step."""
    return wf.do("child", one.s(task, *args, **options))
