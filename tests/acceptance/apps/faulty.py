"""An application for the fault tests: its tasks say when they begin and end, and hold, eat, wait or fail as they are told."""

from __future__ import annotations

import ctypes
import os
import random
import resource
import signal
import threading
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

from celery import Celery
from sqlalchemy import create_engine, text

from pikkuflow import PikkuFlow, Workflow, current_step, ref
from tests.acceptance.apps.configured import configure
from tests.acceptance.apps.journal import note, note_step
from tests.faults import tracing

tracing.install()
app = configure(Celery("faulty"))
if soft := os.environ.get("FAULTS_SOFT_SHUTDOWN"):
    app.conf.worker_soft_shutdown_timeout = float(soft)
    app.conf.worker_enable_soft_shutdown_on_idle = False
if visibility := os.environ.get("FAULTS_VISIBILITY"):
    app.conf.broker_transport_options |= {
        "visibility_timeout": float(visibility),
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    }
pikku = PikkuFlow(app)


def _worked(seconds: float, **more: Any) -> str:
    """Work that long between two lines of the journal; a token that no other execution gives."""
    token = uuid4().hex
    note_step("begun", **more)
    time.sleep(seconds)
    note_step("done", token=token, **more)
    return token


@app.task(name="faulty.work")
def work(seconds: float, seen: Any = None) -> str:
    """Work, say what was seen of earlier steps, and give a token."""
    return _worked(seconds, seen=seen)


@app.task(name="faulty.once")
def once(seconds: float, seen: Any = None) -> str:
    """The same, for steps that must never begin twice."""
    return _worked(seconds, seen=seen)


@app.task(name="faulty.on_the_tick")
def on_the_tick(value: int, tick: float = 0.5) -> int:
    """End at the next multiple of ``tick`` seconds of the wall clock, as everyone else does."""
    note_step("begun")
    time.sleep(tick - time.time() % tick)
    note_step("done")
    return value * value


@app.task(name="faulty.same")
def same(value: Any) -> Any:
    """Give it back."""
    note_step("begun")
    return value


@app.task(name="faulty.late", acks_late=True)
def late(path: str) -> None:
    """A task of the user's own, outside any run, that is acknowledged when it has ended: when a file is there."""
    note("late begun")
    while not Path(path).exists():
        time.sleep(0.02)
    note("late done")


@app.task(name="faulty.hold_gil")
def hold_gil(seconds: int) -> int:
    """A C call that lets no other Python thread of its process run."""
    note_step("begun")
    ctypes.PyDLL(None).sleep(seconds)
    note_step("done")
    return seconds


@app.task(name="faulty.eat_memory")
def eat_memory(mebibytes: int, attempts: int) -> int:
    """Ask for more memory than the process may have, before that attempt."""
    step = current_step()
    note_step("begun")
    if step.attempt < attempts:
        size = mebibytes * 2**20
        in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (in_use + size // 2, hard))
        try:
            return len(bytearray(size))
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    return step.attempt


@app.task(name="faulty.ask_service")
def ask_service(path: str) -> str:
    """Fail while a service (a file) is away."""
    note_step("begun")
    try:
        answer = Path(path).read_text()
    except FileNotFoundError:
        raise ConnectionError("the service is away") from None
    note_step("done")
    return answer


@app.task(name="faulty.wait_for")
def wait_for(path: str, before: int = 99) -> list[Any]:
    """Work until a file is there; attempts from ``before`` on need none."""
    step = current_step()
    note_step("begun")
    while step.attempt < before and not Path(path).exists():
        time.sleep(0.02)
    note_step("done")
    return [step.attempt, os.getpid()]


@app.task(name="faulty.fail_late")
def fail_late(path: str, before: int) -> list[Any]:
    """Attempts before ``before`` wait for a file and fail then; others end at once."""
    step = current_step()
    note_step("begun")
    while step.attempt < before and not Path(path).exists():
        time.sleep(0.02)
    note_step("done")
    if step.attempt < before:
        raise ConnectionError("too late to matter")
    return [step.attempt, os.getpid()]


@app.task(name="faulty.hold_transaction")
def hold_transaction(seconds: float) -> str:
    """Keep a transaction of its own open in the engine's database, with a lock, and wait in it."""
    token = uuid4().hex
    note_step("begun")
    engine = create_engine(os.environ["PIKKUFLOW_DATABASE_URL"])
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS faulty_held (token text)"))
        connection.execute(text("INSERT INTO faulty_held VALUES (:token)"), {"token": token})
        connection.execute(text("SELECT pg_sleep(:seconds)"), {"seconds": seconds})
    engine.dispose()
    note_step("done")
    return token


@app.task(name="faulty.in_any_order")
def in_any_order(value: int) -> int:
    """End sooner or later than its neighbours."""
    note_step("begun")
    time.sleep(random.random() * 0.3)
    note_step("done")
    return value


@app.task(name="faulty.whose")
def whose() -> Any:
    """On whose behalf this step is worked."""
    note_step("begun")
    return current_step().owner


class CustomError(Exception):
    """An error whose constructor wants more than its text."""

    def __init__(self, code: int, *, place: str) -> None:
        super().__init__(f"code {code} at {place}")
        self.code = code


@app.task(name="faulty.give")
def give(what: str) -> Any:
    """Things that can and cannot be stored."""
    note_step("begun")
    if what == "custom":
        raise CustomError(7, place="the mill")
    if what == "secret":
        raise ConnectionError("cannot reach postgresql://shop:hunter2@db/shop or redis://:hunter2@cache:6379/0")
    things: dict[str, Any] = {
        "lock": threading.Lock(),
        "set": {1, 2},
        "nan": float("nan"),
        "huge": "x" * (30 * 2**20) if what == "huge" else "",
        "nul": "a\u0000b",
        "tagged": {"__type__": "x", "__value__": 1},
    }
    return things[what]


@pikku.workflow(name="faulty.one")
def one(wf: Workflow, /, task: str, *args: Any, **options: Any) -> Any:
    """One step named ``work``."""
    return wf.do("work", app.tasks[task].s(*args), **options)


@pikku.workflow(name="faulty.owned")
def owned(wf: Workflow, gate: str) -> Any:
    """A step that waits for a file, then one that says on whose behalf it works."""
    wf.do("gate", wait_for.s(gate))
    return wf.do("whose", whose.s(), dispatch="queue")


@pikku.workflow(name="faulty.two")
def two(wf: Workflow, seconds: float, /, **options: Any) -> list[str]:
    """A step that takes long, and a quick one."""
    first = wf.do("long", work.s(seconds), **options)
    return [first, wf.do("quick", work.s(0.0, first))]


@pikku.workflow(name="faulty.phases")
def phases(wf: Workflow, seconds: float, nap: float) -> list[str]:
    """Three phases with sleeps between them."""
    first = wf.do("first", work.s(seconds), record_start=True)
    wf.sleep("nap", nap)
    second = wf.do("second", work.s(seconds, first), record_start=True)
    wf.sleep("nap", nap)
    third = wf.do("third", work.s(seconds, second), record_start=True)
    return [first, second, third]


@pikku.workflow(name="faulty.fan")
def fan(wf: Workflow, /, task: str, items: list[Any], **options: Any) -> Any:
    """Many steps named ``work`` at once."""
    return wf.map(app.tasks[task], items, name="work", **options)


ticks = [
    pikku.graph(
        f"faulty.ticks{ending}",
        entry="before",
        dispatch=dispatch,
        nodes={
            "before": {"task": "faulty.same", "next": "ticks"},
            "ticks": {"task": "faulty.on_the_tick", "for_each": "before", "next": "after"},
            "after": {"task": "faulty.same", "input": [ref("ticks")]},
        },
    )
    for dispatch, ending in ((None, ""), ("queue", ".queue"))
]
"""A fan-out between two single steps, which are worked in place, or dispatched."""


@pikku.workflow(name="faulty.row")
def row(wf: Workflow, count: int, seconds: float = 0.0) -> list[str]:
    """Steps named ``work``, one after the other; each says what it has seen of the one before."""
    tokens: list[str] = []
    for _ in range(count):
        tokens.append(wf.do("work", work.s(seconds, tokens[-1] if tokens else None)))
    return tokens


@pikku.workflow(name="faulty.sleeper")
def sleeper(wf: Workflow, seconds: float) -> list[str]:
    """A step, a sleep, a step."""
    before = wf.do("before", work.s(0.0))
    wf.sleep("nap", seconds)
    return [before, wf.do("after", work.s(0.0, before))]


@pikku.workflow(name="faulty.gated")
def gated(wf: Workflow, gate: str, width: int) -> list[str]:
    """A step that waits for a file, then steps side by side."""
    wf.do("gate", wait_for.s(gate))
    sides: list[str] = wf.gather(*[wf.submit("side", work.s(0.0), dispatch="queue") for _ in range(width)])
    return sides


@pikku.workflow(name="faulty.joined")
def joined(wf: Workflow, marks: str, rounds: int) -> list[int]:
    """Steps side by side, round after round; the body kills its process once a round, between the first outcome and the last."""
    seen: list[int] = []
    for number in range(rounds):
        handles = [wf.submit("side", in_any_order.s(number * 3 + at), dispatch="queue") for at in range(3)]
        seen.append(handles[0].result())
        _die_once(Path(marks) / str(number))
        seen += wf.gather(*handles[1:])
    return seen


def _die_once(mark: Path) -> None:
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


@pikku.workflow(name="faulty.storm")
def storm(wf: Workflow, width: int, seconds: float) -> dict[str, Any]:
    """Something of everything: in place, dispatched, side by side, a sleep, a child, and a step that must not begin twice."""
    first = wf.do("first", work.s(seconds), retries=60, retry_delay=0)
    handles = [
        wf.submit("side", work.s(seconds, first), retries=60, retry_delay=0, dispatch="queue") for _ in range(width)
    ]
    sides = wf.gather(*handles)
    wf.sleep("nap", 0.3)
    far = wf.do("far", work.s(seconds, sides), retries=60, retry_delay=0, dispatch="queue")
    child = wf.do("child", row.s(3, seconds / 4))
    return {"first": first, "sides": sides, "far": far, "child": child, "last": _last(wf, seconds, far)}


def _last(wf: Workflow, seconds: float, seen: Any) -> dict[str, Any]:
    last = wf.do("last", work.s(seconds, seen), retries=60, retry_delay=0, record_start=True)
    try:
        careful = wf.do("careful", once.s(seconds / 4, last), retries=0)
    except Exception as error:  # noqa: BLE001 - it may have died with its process: that is what retries=0 asks for
        careful = type(error).__name__
    return {"last": last, "careful": careful}
