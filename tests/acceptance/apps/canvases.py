"""Tasks for canvases, Celery's own and durable ones: they write down that they ran, and some fail, take their process down or hang."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from celery import Celery
from celery.backends.redis import RedisBackend
from celery.exceptions import Reject

from pikkuflow import PikkuFlow, Undo
from pikkuflow.adapters.sql.run_store import SqlRunStore
from tests.acceptance.apps.configured import configure
from tests.acceptance.apps.journal import note

app = configure(Celery("canvases"))
if os.environ.get("CANVASES_LATE"):
    app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True)
if visibility := os.environ.get("CANVASES_VISIBILITY"):
    app.conf.broker_transport_options |= {
        "visibility_timeout": float(visibility),
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    }
pikku = PikkuFlow(app)


@app.task(name="canvases.echo")
def echo(*args: Any) -> list[Any]:
    """Give the arguments; the last says which canvas it was."""
    note("echo", args=list(args), run=args[-1])
    return list(args[:-1])


@app.task(name="canvases.doom")
def doom(how: str, mark: str, canvas: str) -> str:
    """``die`` or ``hang`` the first time; ``deadly-…`` dies each time after that."""
    note("doom", run=canvas)
    _fall(how, mark)
    return "alive"


@app.task(name="canvases.late_doom", acks_late=True, reject_on_worker_lost=True)
def late_doom(how: str, mark: str, canvas: str) -> str:
    """The same, with its message acknowledged at the end."""
    return str(doom(how, mark, canvas))


@app.task(name="canvases.item")
def item(what: str, mark: str, canvas: str) -> str:
    """One of many: ``work``, or die or hang the first time."""
    note("item", what=what, run=canvas)
    if what != "work":
        _fall(what, mark)
    return what


@app.task(name="canvases.item_of")
def item_of(arguments: list[str]) -> str:
    """The same, of one argument, for ``map``."""
    return str(item(*arguments))


@app.task(name="canvases.wait_for")
def wait_for(gate: str, canvas: str) -> str:
    """Stay until a file is there."""
    note("waiting", run=canvas)
    while not Path(gate).exists():
        time.sleep(0.02)
    return "open"


@app.task(name="canvases.give_up")
def give_up(*args: Any) -> None:
    """Fail for good, at the first attempt."""
    raise Reject("given up", requeue=False)


@app.task(name="canvases.failed")
def failed(task_id: str, *, canvas: str) -> None:
    """An errback; of one positional argument, or Celery calls it with three."""
    note("failed", run=canvas, id=task_id)


@app.task(name="canvases.reserve")
def reserve(what: str, canvas: str) -> str:
    """Put something aside."""
    note("reserved", run=canvas, what=what)
    return what


@pikku.compensates(reserve)
def release(undo: Undo, what: str, canvas: str) -> None:
    """Put it back."""
    note("released", run=canvas, what=what)


def _fall(how: str, mark: str) -> None:
    first = _is_first(mark)
    if first and how.endswith("hang"):
        time.sleep(60)
    if first or how.startswith("deadly"):
        # Celery gives a task whose process dies before it was seen to begin to another one.
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)


def _is_first(mark: str) -> bool:
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _hold_joins() -> None:
    """Hang where the last of a header is counted and nothing of the join is sent yet."""
    celerys: Any = RedisBackend
    settle_steps, before_publishing = SqlRunStore.settle_steps, celerys._chord_publish_claim_expires

    def held_settle_steps(self: Any, run_id: str, outcomes: Any) -> Any:
        settlement = settle_steps(self, run_id, outcomes)  # type: ignore[arg-type]
        if settlement.wake:
            _hold("durable")
        return settlement

    def held_before_publishing(self: Any, *args: Any) -> Any:
        _hold("plain")
        return before_publishing(self, *args)

    for owner, name, held in (
        (SqlRunStore, "settle_steps", held_settle_steps),
        (celerys, before_publishing.__name__, held_before_publishing),
    ):
        setattr(owner, name, held)


def _hold(canvas: str) -> None:
    note("held", run=canvas)
    time.sleep(60)


if os.environ.get("CANVASES_HOLD_JOINS"):
    _hold_joins()
