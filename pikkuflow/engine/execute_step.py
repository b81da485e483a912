"""The message ``pikkuflow.step``: claim the steps it names, work them, store their outcomes, and let the run go on (spec 5.6, 16.2)."""

from __future__ import annotations

from collections.abc import Sequence

from pikkuflow.domain.act import ClaimRefusal, ClaimRequest, Claims, RunRef
from pikkuflow.domain.ids import ClaimId, RunId, StepName
from pikkuflow.domain.run import Run
from pikkuflow.domain.status import Dispatch, RunStatus
from pikkuflow.domain.step import Step
from pikkuflow.engine.missing_task import suspend_for_missing_task
from pikkuflow.engine.orchestrate import orchestrate
from pikkuflow.engine.renew import warn_of_short_leases
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.send import wake_runs
from pikkuflow.engine.tell import tell_step_lost
from pikkuflow.engine.unstarted import Unstarted
from pikkuflow.engine.work_claim import work_claim
from pikkuflow.errors import StepFunctionMismatch
from pikkuflow.ports import StepLost

__all__ = ["execute_step"]


def execute_step(
    rt: Runtime, run_id: RunId, steps: Sequence[tuple[StepName, int]], task: str, *, may_continue: bool
) -> None:
    """Work the steps that can be claimed; a refused one is quietly done.

    Args:
        rt: the engine's surroundings.
        run_id: the run.
        steps: names with the attempt that the message carries, more than one when they travel in a chunk.
        task: the task's name as the message has it; only compared with the row (D8).
        may_continue: the message carries no time limit, so this worker may go on with the run in place when it consumes the queue of
            its workflow and the run is free (design 2).

    Raises:
        StepFunctionMismatch: the message names another task than the row; nothing was written.
        StoreUnavailable: the database stayed away.
    """
    if not rt.runner.is_known(task):
        suspend_for_missing_task(rt, run_id, steps, task)
        return
    claims = rt.store.claim_steps(
        ClaimRequest(
            run_id=run_id, steps=tuple(steps), task=task, claim_id=ClaimId(rt.ids.new_id()), holder=rt.holder()
        )
    )
    _refuse_mismatch(run_id, task, claims)
    _tell_lost(rt, run_id, steps, claims)
    if claims.run is None:
        return
    warn_of_short_leases(rt, claims.claimed)
    _leave_deadlines(rt, claims)
    is_late = claims.run.status is RunStatus.COMPENSATING and ClaimRefusal.STOPPED in {why for _, why in claims.refused}
    # The unwind waits for the step whose worker was lost, and nobody else tells it.
    wakes = _work(rt, claims.run, claims.claimed, wakes=claims.wake or is_late)
    if wakes:
        _go_on(rt, claims.run, may_continue=may_continue)


def _leave_deadlines(rt: Runtime, claims: Claims) -> None:
    """Whoever works may hang: the run is looked at when the time of an attempt is over."""
    limits = [step.due_in_seconds for step in claims.claimed if step.due_in_seconds is not None]
    if limits and claims.run is not None:
        rt.hints.leave(claims.run.id, min(limits))


def _work(rt: Runtime, run: Run, claimed: Sequence[Step], *, wakes: bool) -> bool:
    """Work the claimed steps one after the other. True: the run wants a wake-up and has not had it."""
    unstarted = Unstarted(rt, claimed)
    try:
        while (step := unstarted.begin()) is not None:
            if wakes:
                # Others of the chunk are still to be worked: the run need not wait for them.
                wake_runs(rt, [RunRef(id=run.id, workflow=run.workflow)])
            wakes = work_claim(rt, run, step, unstarted)
    except BaseException:
        unstarted.give_back()
        raise
    return wakes


def _go_on(rt: Runtime, run: Run, *, may_continue: bool) -> None:
    if may_continue and rt.consumes(run.workflow) and not rt.is_stopping():
        orchestrate(rt, [run.id], lightly=_is_sent_on(rt, run))
    else:
        wake_runs(rt, [RunRef(id=run.id, workflow=run.workflow)])


def _is_sent_on(rt: Runtime, run: Run) -> bool:
    """Its next step will be sent, too: the pass between the two works nothing."""
    definition = rt.registry.find(run.workflow)
    wish = (definition and definition.dispatch) or rt.settings.dispatch
    return run.status is RunStatus.RUNNING and wish == Dispatch.QUEUE


def _refuse_mismatch(run_id: RunId, task: str, claims: Claims) -> None:
    for name, refusal in claims.refused:
        if refusal is ClaimRefusal.MISMATCH:
            raise StepFunctionMismatch(
                f"A message asks for task {task!r} as step {name!r} of run {run_id!r}, which was recorded with another task.",
                hint="Nothing was written. Only pikkuflow itself should send pikkuflow.step messages.",
            )


def _tell_lost(rt: Runtime, run_id: RunId, steps: Sequence[tuple[StepName, int]], claims: Claims) -> None:
    asked = dict(steps)
    for step in claims.claimed:
        if step.attempt > asked[step.name]:
            tell_step_lost(rt, StepLost(run_id=run_id, step=step.name, attempt=asked[step.name], exhausted=False))
    for name, refusal in claims.refused:
        if refusal is ClaimRefusal.EXHAUSTED:
            tell_step_lost(rt, StepLost(run_id=run_id, step=name, attempt=asked[name], exhausted=True))
