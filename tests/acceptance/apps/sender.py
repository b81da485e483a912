"""Runs that send every step to a worker, by processes that die once beside the one act that is all of such a pass."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from celery import Celery

from pikkuflow import PikkuFlow, Workflow
from pikkuflow.adapters.sql import SqlRunStore
from tests.acceptance.apps.configured import configure
from tests.acceptance.apps.journal import note_step

app = configure(Celery("sender"))
app.conf.pikkuflow_dispatch = "queue"
pikku = PikkuFlow(app)
DIES = "SENDER_DIES"
"""A folder: a file of it names a moment, and whoever comes there first takes the file away and is killed."""


def _die_at(moment: str) -> None:
    mark = Path(os.environ[DIES]) / moment
    if mark.exists():
        mark.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def _mortal(name: str, act: Callable[..., Any]) -> Callable[..., Any]:
    def beside(self: SqlRunStore, *given: Any) -> Any:
        _die_at(f"before {name}")
        answer = act(self, *given)
        _die_at(f"after {name}")
        return answer

    return beside


for each in ("preview_pass", "advance"):
    setattr(SqlRunStore, each, _mortal(each, getattr(SqlRunStore, each)))


@app.task(name="sender.add")
def add(number: int) -> int:
    """A step."""
    note_step("begun")
    return number + 1


@pikku.workflow(name="sender.line")
def line(wf: Workflow, steps: int) -> int:
    """One after the other."""
    number = 0
    for _ in range(steps):
        number = wf.do(add.s(number))
    return number
