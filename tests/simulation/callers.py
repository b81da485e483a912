"""Whoever calls runs off: each is a process of its own, which may die between a run and its children."""

from __future__ import annotations

from typing import Any, Final

from pikkuflow.adapters.memory.tables import Tables
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import SETTLED_RUN, RunStatus
from pikkuflow.domain.stop import CANCEL_CODE
from pikkuflow.engine.run_handle import Run
from pikkuflow.engine.runtime import Runtime
from pikkuflow.errors import RunSettled, StoreUnavailable
from tests.simulation.ledger import Ledger, Violation
from tests.simulation.processes import Node, Process
from tests.simulation.stage import Stage

__all__ = ["Callers"]

_PATIENCE: Final = 10.0


class Callers:
    """Those of one schedule."""

    def __init__(self, stage: Stage, rt: Runtime, tables: Tables, ledger: Ledger) -> None:
        self._stage = stage
        self._rt = rt
        self._tables = tables
        self._ledger = ledger
        self._count = 0

    def call_off(self, which: int, again_seconds: float) -> None:
        """Somebody begins to call off a run: counted from those that the process at work has in hand, then from the oldest."""
        runs = list(self._tables.runs)
        if not runs:
            return
        in_hand = [] if self._stage.scheduler.is_idle else [run for run in self._stage.process.handles if run in runs]
        chosen = [*in_hand, *(run for run in runs if run not in in_hand)]
        self._begin(chosen[which % len(chosen)], again_seconds)

    def _begin(self, run_id: RunId, again_seconds: float) -> None:
        self._count += 1
        name = f"caller {self._count}"
        caller = Process(Node(name, name), 0, name, patience=_PATIENCE)
        self._stage.clients.append(caller)
        self._stage.scheduler.spawn(name, caller, lambda: self._live(caller, run_id, again_seconds))

    def _live(self, caller: Process, run_id: RunId, again_seconds: float) -> None:
        caller.handles = (run_id,)
        first = self._insist(run_id)
        caller.handles = ()
        if again_seconds:
            self._stage.scheduler.sleep(again_seconds)
            caller.handles = (run_id,)
            self._check_again(run_id, first, self._insist(run_id))
            caller.handles = ()
        self._stage.end(caller)

    def _insist(self, run_id: RunId) -> RunStatus:
        self._ledger.stops.asked.add(run_id)
        handle = Run[Any](run_id, lambda: self._rt)
        while True:
            try:
                status = handle.cancel(f"no {run_id}")
            except StoreUnavailable:
                self._stage.scheduler.sleep(1.0)
                continue
            except RunSettled:
                return self._ended(run_id)
            if status in {RunStatus.RUNNING, RunStatus.SUSPENDED}:
                raise Violation("what is called off is stopped", f"{run_id} is {status}")
            return status

    def _ended(self, run_id: RunId) -> RunStatus:
        run = self._tables.runs[run_id]
        if run.status not in SETTLED_RUN or run.code == CANCEL_CODE:
            raise Violation(
                "only a run that ended otherwise is not called off", f"{run_id} is {run.status}, {run.code}"
            )
        return run.status

    @staticmethod
    def _check_again(run_id: RunId, first: RunStatus, second: RunStatus) -> None:
        """A settled run stays what it is; only its parent undoes one that has completed."""
        if first is not second and first not in {RunStatus.COMPENSATING, RunStatus.COMPLETED}:
            raise Violation("a settled run is not called off", f"{run_id} was {first}, then {second}")
