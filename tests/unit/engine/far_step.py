"""One dispatched step and the handling of its message, over memory."""

from __future__ import annotations

from typing import Any

from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.engine.execute_step import execute_step
from tests.unit.engine.bench import Bench, Task

__all__ = ["a_bench", "execute"]


def a_bench(**settings: Any) -> Bench:
    """A run of one dispatched step, started and parked on it; its message is in the broker."""
    bench = Bench(**settings)
    bench.task(lambda n: n + 1, name="far", leaves="queue")

    def flow(wf: Any) -> int:
        value: int = wf.do(Task("far", (1,)), retries=1, retry_delay="10s")
        return value

    bench.workflow(flow)
    bench.start("flow")
    bench.work_one()
    return bench


def execute(bench: Bench, *, attempt: int = 1, task: str = "far", may_continue: bool = True, **changed: Any) -> None:
    """Handle the message of the step, as this process or another."""
    rt = bench.other(**changed) if changed else bench.rt
    execute_step(rt, RunId("r1"), [(StepName("far"), attempt)], task, may_continue=may_continue)
