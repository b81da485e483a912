"""Clients: they start runs, and some wait for results."""

from __future__ import annotations

from typing import Any

from pikkuflow.adapters.memory.run_store import MemoryRunStore
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.run import NewRun
from pikkuflow.domain.status import RunStatus
from pikkuflow.engine.run_handle import Run
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.start import start_runs
from pikkuflow.errors import ResultTimeout, RunFailed, RunNotFound, StoreUnavailable
from tests.simulation.ledger import Violation
from tests.simulation.plan import Plan, Start
from tests.simulation.processes import Node, Process
from tests.simulation.stage import Stage

__all__ = ["Clients"]

_RESULT_SECONDS = 3000.0
_CLIENT_PATIENCE = 10.0


class Clients:
    """The clients of one schedule."""

    def __init__(self, stage: Stage, rt: Runtime, plan: Plan) -> None:
        self._stage = stage
        self._rt = rt
        self._plan = plan
        self._at_work = 0
        self._results: dict[str, Any] = {}

    def begin(self) -> None:
        """Begin all of them."""
        for start in self._plan.starts:
            for copy in range(2 if start.twice else 1):
                self._begin(start, copy)

    def are_done(self) -> bool:
        """Whether all have what they came for."""
        return self._at_work == 0

    def _begin(self, start: Start, copy: int) -> None:
        name = f"client {start.run}" + ("" if not copy else " again")
        client = Process(Node(name, name), 0, name, patience=_CLIENT_PATIENCE)
        self._stage.clients.append(client)
        self._at_work += 1
        self._stage.scheduler.spawn(name, client, lambda: self._start(start))

    def _start(self, start: Start) -> None:
        if start.at:
            self._stage.scheduler.sleep(start.at)
        run_id = RunId(start.run)
        self._stage.process.handles = (run_id,)
        run = NewRun(
            id=run_id,
            workflow=f"w-{start.run}",
            version="1",
            input='{"args":[],"kwargs":{}}',
            delay_seconds=start.delay or None,
        )
        while True:
            try:
                start_runs(self._rt, [run])
                break
            except StoreUnavailable:
                self._stage.scheduler.sleep(1.0)
        self._stage.process.handles = ()
        if start.reads:
            self._read(run_id)
        self._at_work -= 1

    def _read(self, run_id: RunId) -> None:
        while True:
            try:
                self._results[run_id] = Run[Any](run_id, lambda: self._rt).result(timeout=_RESULT_SECONDS)
            except RunFailed as error:
                self._results[run_id] = error
            except StoreUnavailable:
                continue
            except (ResultTimeout, RunNotFound) as error:
                raise Violation("I7 nothing is stuck", f"no result of {run_id}: {error!r}") from error
            return

    def judge(self, store: MemoryRunStore) -> None:
        """What a reader got is what the run came to."""
        for run_id, result in self._results.items():
            run = store._tables.runs[RunId(run_id)]
            is_failure = isinstance(result, RunFailed)
            if is_failure is not (run.status is RunStatus.FAILED):
                raise Violation("a reader gets the result", f"{run_id}: {result!r} of a {run.status} run")
