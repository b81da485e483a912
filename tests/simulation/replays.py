"""I8: the same inputs and rows give the same plan. The real replay is asked again, over the rows as they are in the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pikkuflow.adapters.memory.tables import RunRow, Tables
from pikkuflow.domain.command import Reach, Waiting
from pikkuflow.domain.history import History
from pikkuflow.domain.ids import PassId
from pikkuflow.domain.status import StepKind, StepStatus
from pikkuflow.domain.step import Step
from pikkuflow.engine.runtime import Runtime
from pikkuflow.errors import RunCancelled
from pikkuflow.replay.outcome import Completed, Failed
from pikkuflow.replay.replay import replay
from tests.simulation.graphs import ended_waiting
from tests.simulation.ledger import Violation
from tests.simulation.stops import Stops

__all__ = ["check_replays"]


def check_replays(rt: Runtime, tables: Tables, stops: Stops) -> None:
    """Replay each run from its rows, in the order in which they were planned and in the opposite one.

    Nothing new may be asked for, and the replay must end as the run ended. Raises ``Violation``.
    """
    now = tables.clock.now()
    for run in tables.runs.values():
        if stops.is_cut(run.id):
            # It was stopped on its way.
            continue
        forward = [row for row in tables.steps_of(run.id).values() if row.kind is not StepKind.COMPENSATION]
        if rt.registry.get(run.workflow).graph is not None:
            # What ended with its run has no place in the order of the run, and no walk has met it.
            forward = [row for row in forward if row.status is not StepStatus.CANCELLED and not ended_waiting(row)]
        rows = tuple(row.record(now) for row in forward)
        for steps in (rows, rows[::-1]):
            _check(rt, run, steps, stops)


def _check(rt: Runtime, run: RunRow, steps: Sequence[Step], stops: Stops) -> None:
    asked: list[str] = []

    def perform(reach: Reach) -> Any:
        # A run that failed may have left a step behind that it no longer waits for.
        asked.extend(call.name for call in reach.calls if call.row is None)
        return tuple(Waiting() for _ in reach.calls)

    outcome = replay(
        rt.registry.get(run.workflow),
        History(pass_id=PassId("again"), run=run.record(), steps=tuple(steps)),
        perform=perform,
        translate=rt.translate,
        decode=rt.codec.decode,
        warn=lambda _message: None,
    )
    if isinstance(outcome, Completed):
        is_same = run.id in stops.outputs and outcome.value == rt.codec.decode(stops.outputs[run.id] or "null")
    elif isinstance(outcome, Failed):
        said = outcome.error.message if isinstance(outcome.error, RunCancelled) else str(outcome.error)
        is_same = run.id not in stops.outputs and run.error is not None and said == run.error.message
    else:
        is_same = False
    if asked:
        raise _broken(run, f"asks for {asked}")
    if not is_same:
        raise _broken(run, f"gives {outcome}")


def _broken(run: RunRow, what: str) -> Violation:
    return Violation("I8 the same rows give the same plan", f"{run.id}, which is {run.status}, replayed {what}")
