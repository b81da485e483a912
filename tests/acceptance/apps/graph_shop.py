"""A shop whose workflows are graphs, before a change and after it: ``graphs_old`` and ``graphs_new`` are its two codes.

Each graph is there twice: its steps worked in place, and, under a name that ends in ``.queue``, dispatched.
"""

from __future__ import annotations

import os
import time
from typing import Any, Literal

from celery import Celery

from pikkuflow import PikkuFlow, Workflow, current_step, ref
from tests.acceptance.apps.configured import configure
from tests.acceptance.apps.journal import note_step

Code = Literal["old", "new"]

ROUNDS: dict[str, Any] = {
    "attempt": {"task": "graphs.attempt", "input": [], "next": "judge"},
    "judge": {
        "task": "graphs.judge",
        "input": [ref("attempt")],
        "next": {"again": "attempt", "good": "done"},
    },
    "done": {"task": "graphs.echo", "input": [ref("attempt"), ref("judge")]},
}
HANG: dict[str, Any] = {
    "before": {"task": "graphs.echo", "input": ["before"], "next": "work"},
    "work": {"task": "graphs.hang_until", "input": [ref("trigger", "attempt")], "record_start": True, "next": "after"},
    "after": {"task": "graphs.echo", "input": [ref("work", "attempt")]},
}
TRIES: dict[str, dict[str, Any]] = {
    "tried": {"retries": 3, "retry_delay": 0.1},
    "once": {"retries": 0},
    "defaults": {},
}
"""Graphs of one node ``work`` that fails before the attempt in the trigger, by what they say of retries."""

ORDERS: dict[Code, dict[str, Any]] = {
    "old": {
        "reserve": {"task": "graphs.echo", "input": ["reserved"], "next": "night"},
        "night": {"suspend": "night", "next": "charge"},
        "charge": {"task": "graphs.echo", "input": [ref("reserve"), "charged"], "next": "ship"},
        "ship": {"task": "graphs.echo", "input": [ref("charge"), "shipped"]},
    },
    "new": {
        "reserve": {"task": "graphs.echo", "input": ["reserved anew"], "next": "night"},
        "night": {"suspend": "night", "next": "receipts"},
        "receipts": {"task": "graphs.echo", "for_each": "trigger", "next": "ship"},
        "ship": {"task": "graphs.echo", "input": [ref("receipts"), "shipped anew"]},
    },
}


def shop(code: Code) -> tuple[Celery, PikkuFlow]:
    """The shop with that code."""
    app = configure(Celery("graphs"))
    pikku = PikkuFlow(app)
    _add_tasks(app, code)
    for dispatch, ending in ((None, ""), ("queue", ".queue")):
        for name, nodes in (("rounds", ROUNDS), ("hang", HANG), ("order", ORDERS[code]), ("lost", ORDERS[code])):
            pikku.graph(f"graphs.{name}{ending}", nodes=nodes, entry=next(iter(nodes)), dispatch=dispatch)
        for name, retries in TRIES.items():
            work = {"task": "graphs.fail_until", "input": [ref("trigger", "attempt")], **retries}
            pikku.graph(f"graphs.{name}{ending}", nodes={"work": work}, entry="work", dispatch=dispatch)
        _add_functions(pikku, code, dispatch, ending)
    return app, pikku


def _add_tasks(app: Celery, code: Code) -> None:
    @app.task(name="graphs.echo", shared=False)
    def echo(*values: Any) -> list[Any]:
        note_step("worked", code=code)
        return list(values)

    @app.task(name="graphs.attempt", shared=False)
    def attempt() -> int:
        step = current_step()
        tries: int = step.get_state("tries", 0) + 1
        step.set_state("tries", tries)
        note_step("worked", code=code)
        return tries

    @app.task(name="graphs.judge", shared=False)
    def judge(tries: int) -> str:
        note_step("worked", code=code)
        chosen = "good" if tries == 3 else "again"
        current_step().branch(chosen)
        return chosen

    @app.task(name="graphs.fail_until", shared=False)
    def fail_until(attempt: int) -> int:
        step = current_step()
        note_step("tried")
        if step.attempt < attempt:
            raise ConnectionError(f"attempt {step.attempt} failed")
        note_step("effect")
        return step.attempt

    @app.task(name="graphs.hang_until", shared=False)
    def hang_until(attempt: int) -> dict[str, int]:
        step = current_step()
        note_step("begun")
        if step.attempt < attempt:
            time.sleep(600)
        note_step("done")
        return {"attempt": step.attempt, "pid": os.getpid()}


def _add_functions(pikku: PikkuFlow, code: Code, dispatch: Any, ending: str) -> None:
    """``grown`` is a function before and after its change, ``moved`` a graph that has become one."""
    echo = pikku.app.tasks["graphs.echo"]

    def grown(wf: Workflow) -> list[Any]:
        done = [wf.do("reserve", echo.s("reserved"))]
        wf.suspend("night")
        return [*done, wf.do("ship", echo.s("shipped"))]

    def grown_anew(wf: Workflow) -> list[Any]:
        done = [wf.do("reserve", echo.s("reserved"))]
        wf.suspend("night")
        done.append(wf.do("ship", echo.s("shipped")))
        return [*done, wf.do("receipt", echo.s("receipt"))]

    def moved(wf: Workflow, _trigger: Any = None) -> None:
        wf.do("reserve", echo.s("a function"))

    pikku.workflow(name=f"graphs.grown{ending}", dispatch=dispatch)(grown if code == "old" else grown_anew)
    if code == "old":
        pikku.graph(f"graphs.moved{ending}", nodes=ORDERS["old"], entry="reserve", dispatch=dispatch)
    else:
        pikku.workflow(name=f"graphs.moved{ending}", dispatch=dispatch)(moved)
