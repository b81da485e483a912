"""How a run ends in memory, whoever ends it: what becomes of its waiting rows and of its parent's step."""

from __future__ import annotations

from datetime import datetime

from pikkuflow.adapters.memory.tables import RunRow, StepRow, Tables
from pikkuflow.domain import loss
from pikkuflow.domain.act import RunRef
from pikkuflow.domain.ids import PassId, StepName
from pikkuflow.domain.recorded_names import UNDO_SUFFIX
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.domain.step import Place

__all__ = ["begin_unwind", "end_run", "end_waiting", "tell_parent"]


def end_run(tables: Tables, run: RunRow, now: datetime) -> None:
    """What every settled run shows, and its rows that never started."""
    run.due_at = None
    run.handover_at = None if run.handover is None else now
    run.finished_at = now
    end_waiting(tables, run, now)


def begin_unwind(tables: Tables, run: RunRow, now: datetime, *, worked_by: PassId | None = None) -> bool:
    """What every run shows that is to be undone. From here on every outcome is news. True: the caller wakes the run.

    A retry in place of the pass ``worked_by`` is left to it: it may be at work, and its outcome counts.
    """
    run.status = RunStatus.COMPENSATING
    run.due_at = None
    end_waiting(tables, run, now, worked_by=worked_by)
    tables.fans.pop(run.id, None)
    return run.raise_news(now)


def end_waiting(tables: Tables, run: RunRow, now: datetime, *, worked_by: PassId | None = None) -> None:
    """Rows that never started are cancelled; rows with a past attempt failed, so that they stay candidates for undoing (design 3.7)."""
    past = {step: attempt.error for (step, _), attempt in sorted(tables.attempts.get(run.id, {}).items())}
    for row in tables.steps_of(run.id).values():
        is_at_work = worked_by is not None and row.attempt > 1 and row.place == Place.in_pass(worked_by)
        if row.is_waiting and not is_at_work:
            if row.attempt > 1:
                row.settle(StepStatus.FAILED, now, no=run.outside_no, error=past.get(row.name))
            else:
                row.settle(StepStatus.CANCELLED, now, no=run.outside_no)


def tell_parent(tables: Tables, run: RunRow, now: datetime) -> RunRef | None:
    """Settle the parent's step with what the child came to, or the step that undoes it; the parent's half may touch no row (D9)."""
    if run.parent is None:
        return None
    above = tables.runs.get(run.parent.run_id)
    if above is None:
        return None
    rows = tables.steps_of(above.id)
    row = rows.get(run.parent.step)
    if _waits_for(row, run):
        _settle_forward(above, row, run, now)
    else:
        row = rows.get(StepName(f"{run.parent.step}{UNDO_SUFFIX}"))
        if not _waits_for(row, run):
            return None
        _settle_undo(above, row, run, now)
    return above.ref if row is not None and tables.tell(above, row, now) else None


def _waits_for(row: StepRow | None, run: RunRow) -> bool:
    return row is not None and not row.is_settled and row.child_run_id == run.id


def _settle_forward(above: RunRow, row: StepRow | None, run: RunRow, now: datetime) -> None:
    if row is None:
        return
    if run.status is RunStatus.COMPLETED:
        row.settle(StepStatus.SUCCEEDED, now, no=above.outside_no, result=run.output)
    else:
        error = run.error or loss.child_ended(run.id, run.status)
        row.settle(StepStatus.FAILED, now, no=above.outside_no, error=error)


def _settle_undo(above: RunRow, row: StepRow | None, run: RunRow, now: datetime) -> None:
    if row is None:
        return
    if run.status is RunStatus.COMPENSATION_FAILED:
        error = loss.child_ended(run.id, run.status)
        row.settle(StepStatus.FAILED, now, no=above.outside_no, error=error)
    else:
        row.settle(StepStatus.SUCCEEDED, now, no=above.outside_no, result="null")
