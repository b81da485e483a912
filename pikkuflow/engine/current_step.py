"""The step that this thread is working: what ``pikkuflow.current_step()`` answers inside a task (design 1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from pikkuflow.domain.ids import RunId, StepName, invocation_id
from pikkuflow.errors import PikkuFlowError
from pikkuflow.ports import StepWork

__all__ = ["CurrentStep", "current_step", "step_context"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentStep:
    """Which attempt at which step is worked here.

    ``attempt`` counts from 1. ``invocation_id`` is the idempotency key: the same for every attempt at this step of this run (spec 1.2).
    ``owner`` is who started the run, or None.
    """

    run_id: RunId
    step: StepName
    attempt: int
    invocation_id: str
    workflow: str
    owner: str | None


_STEP: ContextVar[CurrentStep | None] = ContextVar("pikkuflow_current_step", default=None)


def current_step() -> CurrentStep:
    """The step that is worked here.

    Raises ``PikkuFlowError`` outside a step. A thread that a task starts for itself is outside, unless it runs in a copy of the task's
    context (``contextvars.copy_context``).
    """
    step = _STEP.get()
    if step is None:
        raise PikkuFlowError(
            "current_step() was called outside a step.",
            hint="It answers inside a task or a function that a workflow runs with wf.do, wf.submit or wf.map.",
        )
    return step


@contextmanager
def step_context(work: StepWork) -> Iterator[CurrentStep]:
    """Let ``current_step()`` answer with this attempt while the block runs; what was current before comes back after it."""
    step = CurrentStep(
        run_id=work.run_id,
        step=work.step,
        attempt=work.attempt,
        invocation_id=invocation_id(work.run_id, work.step),
        workflow=work.workflow,
        owner=work.owner,
    )
    token = _STEP.set(step)
    try:
        yield step
    finally:
        _STEP.reset(token)
