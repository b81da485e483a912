"""An application with a run of many short steps, which a pass works for half a minute."""

from __future__ import annotations

import os
import time
from typing import Any

from celery import Celery

from pikkuflow import PikkuFlow, Workflow
from tests.acceptance.apps.configured import configure
from tests.acceptance.apps.journal import note_step

app = configure(Celery("shutdown"), worker_soft_shutdown_timeout=float(os.environ.get("SOFT_SHUTDOWN_SECONDS", "0")))
pikku = PikkuFlow(app)


@app.task(name="shutdown.turn")
def turn(number: int) -> int:
    """Half a second of work."""
    note_step("begun")
    time.sleep(0.5)
    note_step("done")
    return number


@pikku.workflow(name="shutdown.turns")
def turns(wf: Workflow, size: int) -> list[Any]:
    """One pass works them all, in place."""
    return [wf.do(f"turn {number}", turn.s(number)) for number in range(size)]
