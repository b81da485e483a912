"""Deliberate faults of times that are over. The simulation must find each (issue D)."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from pikkuflow.adapters.memory.claims import ClaimActs
from pikkuflow.adapters.memory.stopping import StoppingActs
from pikkuflow.adapters.memory.tables import RunRow
from pikkuflow.domain.act import StepOutcome
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import StepStatus
from pikkuflow.domain.step import Step
from pikkuflow.engine import sweep
from pikkuflow.engine.in_place import _Attempt
from pikkuflow.engine.open_pass import OpenPass
from pikkuflow.engine.runtime import Runtime
from pikkuflow.ports import Attempted
from tests.simulation.mutations import Mutation, patched

__all__ = ["LIMIT_MUTATIONS"]

_settle = ClaimActs._settle


def _settle_late(self: ClaimActs, run: RunRow, outcome: StepOutcome, now: datetime) -> tuple[bool, bool]:
    """While the next attempt waits for a worker, the one before it is as good."""
    row = self._tables.steps_of(run.id).get(outcome.name)
    is_late = row is not None and row.is_waiting and row.attempt == outcome.attempt + 1
    if row is None or not is_late or outcome.status is not StepStatus.SUCCEEDED:
        return _settle(self, run, outcome, now)
    row.author = outcome.claim_id
    row.settle(outcome.status, now, no=run.outside_no, result=outcome.result)
    return True, self._tables.tell(run, row, now)


def _has_a_limit(self: Step) -> bool:
    """An attempt that has a time is overdue whenever a pass looks."""
    return self.status is StepStatus.RUNNING and self.due_at is not None


def _takes_its_time(_self: _Attempt, attempted: Attempted) -> Attempted:
    return attempted


def _end_nothing(_rt: Runtime) -> int:
    return 0


def _all_children(self: StoppingActs, run: RunRow) -> tuple[RunId, ...]:
    """Also those whose step has succeeded as they began."""
    return tuple(row.child_run_id for row in self._tables.steps_of(run.id).values() if row.child_run_id is not None)


LIMIT_MUTATIONS: Final = (
    Mutation("accept the outcome of an attempt that was outdated", patched((ClaimActs, "_settle", _settle_late))),
    Mutation("end an attempt before its time is over", patched((Step, "is_overdue", property(_has_a_limit)))),
    Mutation("let an attempt in place take its time", patched((_Attempt, "_in_time", _takes_its_time))),
    Mutation(
        "let a pass complete what took too long", patched((OpenPass, "is_overdue", property(lambda _self: False)))
    ),
    Mutation("let sweeps leave what took too long", patched((sweep, "end_overdue_runs", _end_nothing))),
    Mutation("stop detached children with their parent", patched((StoppingActs, "_live_children", _all_children))),
)
