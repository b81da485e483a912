"""Fail a claim from outside: a hard time limit killed its worker, and only the main process saw it (recipes.md 5)."""

from __future__ import annotations

from collections.abc import Sequence

from pikkuflow.domain.act import RunRef
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.ids import Holder, RunId, StepName
from pikkuflow.domain.retry import RetryPolicy
from pikkuflow.domain.status import StepStatus
from pikkuflow.domain.step import Place, Step
from pikkuflow.engine.end_attempt import Ending
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.send import wake_runs
from pikkuflow.engine.tell import warn
from pikkuflow.engine.work_claim import settle
from pikkuflow.errors import StepSuperseded

__all__ = ["fail_claimed"]


def fail_claimed(
    rt: Runtime, run_id: RunId, steps: Sequence[tuple[StepName, int]], holder: Holder, failure: Failure
) -> None:
    """Record a failing outcome on each step that this holder has claimed and not ended; it is tried again while attempts are left.

    What was settled, or is held by someone else, is left alone. Raises ``StoreUnavailable``.
    """
    run = rt.store.get_run(run_id)
    if run is None:
        return
    wakes = False
    for name, _ in steps:
        row = rt.store.get_step(run_id, name)
        if row is not None and row.status is StepStatus.RUNNING and row.place == Place.worker(holder):
            wakes = _fail(rt, row, failure) or wakes
    if wakes:
        wake_runs(rt, [RunRef(id=run.id, workflow=run.workflow)])


def _fail(rt: Runtime, row: Step, failure: Failure) -> bool:
    delay = RetryPolicy(retries=row.retries, delay=row.retry_delay).decide(row.attempt, rt.ids.jitter(), None)
    status = StepStatus.FAILED if delay is None else StepStatus.PENDING
    try:
        return settle(rt, row, Ending(status=status, error=failure, delay_seconds=delay))
    except StepSuperseded as error:
        warn(rt, str(error), run_id=row.run_id)
        return False
