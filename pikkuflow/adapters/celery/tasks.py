"""The engine's own Celery tasks: ids in, one verb each (design 7).

They are ordinary tasks of the app, but nothing that the app says about tasks in general reaches them: not its ``task_cls``, its
annotations, its default rate limit, late acknowledgement or time limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from celery import Celery, Task

from pikkuflow.adapters.celery.errback import register_errback
from pikkuflow.adapters.celery.extension import extension_of
from pikkuflow.adapters.celery.names import ORCHESTRATE_TASK, STEP_TASK, SWEEP_TASK
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.engine import execute_step as step_verb
from pikkuflow.engine import orchestrate as pass_verb
from pikkuflow.engine import sweep as sweep_verb

if TYPE_CHECKING:
    _Task = Task[Any, Any]
else:
    _Task = Task

__all__ = ["EngineTask", "register_engine_tasks", "widen_limits"]


class EngineTask(_Task):
    """Acknowledged early: the broker is a hint, the claim decides, and sweeps bring back what is lost (design 3)."""

    abstract = True
    acks_late = False
    reject_on_worker_lost = False
    retry_on_worker_lost = False
    ignore_result = True
    store_errors_even_if_ignored = False
    track_started = False
    rate_limit: Any = 0
    """Zero is no limit; None would take the app's default."""
    serializer = "json"
    trail = False
    typing = False

    @classmethod
    def annotate(cls) -> None:
        """Take no annotation: ``task_annotations["*"]`` is meant for the app's tasks."""


def register_engine_tasks(app: Celery) -> None:
    """Add the three tasks, and the one for errbacks, to this app only; they are built when the app is first used."""
    register_errback(app, EngineTask)

    @app.task(name=ORCHESTRATE_TASK, base=EngineTask, shared=False)
    def orchestrate(run_ids: Sequence[str]) -> None:
        """A pass over each run."""
        pass_verb.orchestrate(extension_of(app).runtime, [RunId(run_id) for run_id in run_ids])

    @app.task(
        name=STEP_TASK,
        base=EngineTask,
        shared=False,
        bind=True,
        Request="pikkuflow.adapters.celery.hard_limit:StepRequest",
    )
    def step(self: EngineTask, run_id: str, steps: Sequence[tuple[str, int]], task: str) -> None:
        """Work these steps, then go on with their run when that may be done here."""
        named = [(StepName(name), attempt) for name, attempt in steps]
        free = not any(self.request.timelimit or ()) and not extension_of(app).node.has_limits
        step_verb.execute_step(extension_of(app).runtime, RunId(run_id), named, task, may_continue=free)

    @app.task(name=SWEEP_TASK, base=EngineTask, shared=False)
    def sweep(kind: str) -> None:
        """One sweep."""
        sweep_verb.sweep(extension_of(app).runtime, sweep_verb.SweepKind(kind))


def widen_limits(app: Celery, hard_seconds: float | None, soft_seconds: float | None) -> None:
    """Give passes and sweeps the worker's own limits plus ``pass_seconds``, and no soft limit before the hard one (design 2).

    Args:
        app: the worker's app.
        hard_seconds: the worker's hard limit for every message, or None.
        soft_seconds: its soft limit, or None. Without a hard limit it is moved out of reach: a pool's default cannot be taken away.
    """
    more = extension_of(app).settings.pass_seconds
    limit = None if not hard_seconds else hard_seconds + more
    for name in (ORCHESTRATE_TASK, SWEEP_TASK):
        task: Any = app.tasks[name]
        task.time_limit = limit
        task.soft_time_limit = None if not soft_seconds else limit or _OUT_OF_REACH_SECONDS


_OUT_OF_REACH_SECONDS = 10 * 365 * 86400.0
