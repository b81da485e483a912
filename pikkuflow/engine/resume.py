"""Resume a suspended run: recorded durably before anything is sent (D3, D4)."""

from __future__ import annotations

from pikkuflow.domain.gate import gate_name, is_gate_of
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.run import Run
from pikkuflow.domain.status import StepKind, StepStatus, SuspendCode
from pikkuflow.domain.step import Place
from pikkuflow.engine.run_inline import run_inline
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.send import message_of, send_steps, wake_runs
from pikkuflow.errors import GateNotFound, RunNotSuspended, RunSettled

__all__ = ["resume", "resume_run"]


def resume(rt: Runtime, run: Run, reason: str | None = None) -> bool:
    """Resume on a person's word. False: the gate of that reason was open already.

    Without a broker the run goes on here, also one that no process works any more (D26).

    Raises:
        StepNameError: the reason is no text, or unusable.
        RunSettled: the run has ended.
        GateNotFound: the run does not wait for that reason.
        RunNotSuspended: it is not suspended, and no suspension waits. In each case nothing was changed.
    """
    if reason is not None:
        gate_name(StepKind.SUSPEND, reason)
    moved = resume_run(rt, run.id, reason)
    if not moved:
        moved = _is_open(rt, run, reason)
    if not rt.has_broker:
        run_inline(rt, run.id)
    return moved


def _is_open(rt: Runtime, run: Run, reason: str | None) -> bool:
    now = rt.store.get_run(run.id) or run
    if now.is_settled:
        raise RunSettled(f"Run {run.id!r} has ended: there is nothing to resume.", run.id)
    if reason is not None:
        steps = rt.store.list_steps(run.id)
        if any(is_gate_of(step, StepKind.SUSPEND, reason) for step in steps):
            return False
        if any(is_gate_of(step, StepKind.APPROVAL, reason) for step in steps):
            hint = "It is an approval: decide it with approve()."
        else:
            hint = "`flow show` says what it waits for."
        raise GateNotFound(f"Run {run.id!r} is not suspended for {reason!r}.", run.id, reason, hint=hint)
    if rt.has_broker:
        raise RunNotSuspended(f"Run {run.id!r} is {now.status}, not suspended: there is nothing to resume.", run.id)
    return True


def resume_run(rt: Runtime, run_id: RunId, reason: str | None = None) -> bool:
    """Open suspensions, ``suspended -> running``, then a pass over the run. False: there was nothing to resume.

    After a missing task, the messages that a worker without that task took are sent again at once (D5).
    """
    before = rt.store.get_run(run_id)
    opened = rt.store.resume_run(run_id, reason)
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
