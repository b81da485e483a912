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
from pikkuflow.engine.unstarted import give_back
from pikkuflow.engine.work_claim import settle
from pikkuflow.errors import StepSuperseded

__all__ = ["fail_claimed"]


def fail_claimed(
    rt: Runtime, run_id: RunId, steps: Sequence[tuple[StepName, int]], holder: Holder, failure: Failure
) -> None:
    """Record a failing outcome on the step that a dead holder was at work on, and give back those that it had not begun.

    ``steps`` are the message's, in its order: they are worked one after the other, so the first that the holder still has is the one that
    it had begun. It is tried again while attempts are left. What was settled, or is held by someone else, is left alone. To be
    called when the holder works no more. Raises ``StoreUnavailable``.
    """
    run = rt.store.get_run(run_id)
    if run is None:
        return
    rows = [rt.store.get_step(run_id, name) for name, _ in steps]
    held = [
        row
        for row in rows
        if row is not None and row.status is StepStatus.RUNNING and row.place == Place.worker(holder)
    ]
    if not held:
        return
    give_back(rt, held[1:])
    if _fail(rt, held[0], failure):
        wake_runs(rt, [RunRef(id=run.id, workflow=run.workflow)])


def _fail(rt: Runtime, row: Step, failure: Failure) -> bool:
    delay = RetryPolicy(retries=row.retries, delay=row.retry_delay).decide(row.attempt, rt.ids.jitter(), None)
    status = StepStatus.FAILED if delay is None else StepStatus.PENDING
    try:
        return settle(rt, row, Ending(status=status, error=failure, delay_seconds=delay))
    except StepSuperseded as error:
        warn(rt, str(error), run_id=row.run_id)
        return False
