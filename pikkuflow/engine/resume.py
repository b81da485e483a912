"""Resume a suspended run: recorded durably before anything is sent (D3, D4)."""

from __future__ import annotations

from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import StepStatus, SuspendCode
from pikkuflow.domain.step import Place
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.send import message_of, send_steps, wake_runs

__all__ = ["resume_run"]


def resume_run(rt: Runtime, run_id: RunId) -> bool:
    """``suspended -> running``, then a pass over it. False: it was not suspended.

    After a missing task, the messages that a worker without that task took are sent again at once (D5).
    """
    before = rt.store.get_run(run_id)
    opened = rt.store.resume_run(run_id)
    if opened is None:
        return False
    if before is not None and before.code == SuspendCode.TASK_NOT_FOUND:
        waiting = [
            step
            for step in rt.store.list_steps(run_id)
            if Place.is_queue(step.place) and step.is_due and step.status in {StepStatus.PENDING, StepStatus.SCHEDULED}
        ]
        send_steps(rt, [message_of(rt, step) for step in waiting])
    wake_runs(rt, [opened])
    return True
