"""Clients: they start runs, one or several at once; some work them to the end themselves, some wait for results."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final

from pikkuflow.adapters.memory.tables import Tables
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.run import NewRun
from pikkuflow.domain.status import RunStatus
from pikkuflow.engine.run_handle import Run
from pikkuflow.engine.run_inline import run_inline
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.start import start_runs
from pikkuflow.errors import LeaseLost, ResultTimeout, RunCancelled, RunFailed, RunNotFound, StoreUnavailable
from tests.simulation.graphs import ITEMS
from tests.simulation.ledger import Violation
from tests.simulation.plan import Plan, Start
from tests.simulation.processes import Node, Process
from tests.simulation.stage import Stage
from tests.simulation.threads import record_starts

__all__ = ["Clients"]

_RESULT_SECONDS: Final = 3000.0
_CLIENT_PATIENCE: Final = 10.0
_GRAPH_INPUT: Final = json.dumps({"args": [[list(range(count)) for count in range(ITEMS + 1)]], "kwargs": {}})
"""Lists of every length, which a node's ``for_each`` is one of."""
_FAILED: Final = {RunStatus.FAILED, RunStatus.COMPENSATED, RunStatus.COMPENSATION_FAILED}


class Clients:
    """The clients of one schedule."""

    def __init__(self, stage: Stage, rt: Runtime, plan: Plan) -> None:
        self._stage = stage
        self._rt = rt
        self._plan = plan
        self._started: list[RunId] = []
        """Runs whose start returned."""
        self._results: dict[RunId, Any] = {}

    def begin(self) -> None:
        """Begin all of them."""
        for batch, group in groupby(self._plan.starts, key=lambda start: start.batch or start.run):
            starts = tuple(group)
            self._begin(f"client {batch}", starts)
            for start in starts:
                if start.twice:
                    self._begin(f"client {start.run} again", (start,))

    def are_done(self) -> bool:
        """Whether all have what they came for, or are no more."""
        return all(client.is_dead for client in self._stage.clients)

    def _begin(self, name: str, starts: Sequence[Start]) -> None:
        client = Process(Node(name, name), 0, name, patience=_CLIENT_PATIENCE)
        self._stage.clients.append(client)
        self._stage.scheduler.spawn(name, client, lambda: self._live(client, starts))
        if any(start.inline for start in starts):
            self._stage.scheduler.spawn(f"{name} starts", client, lambda: record_starts(self._stage, client))

    def _live(self, client: Process, starts: Sequence[Start]) -> None:
        try:
            if starts[0].at:
                self._stage.scheduler.sleep(starts[0].at)
            self._work(client, starts)
        finally:
            client.handles = ()
        # What its threads still had in hand ends with it.
        self._stage.end(client)

    def _work(self, client: Process, starts: Sequence[Start]) -> None:
        runs = [_new_run(start) for start in starts]
        client.handles = tuple(run.id for run in runs)
        self._insist(lambda: start_runs(self._rt, runs))
        client.handles = tuple(run.id for run in runs if run.inline)
        self._started += [run.id for run in runs]
        for start, run in zip(starts, runs, strict=True):
            if start.inline:
                self._work_inline(client, run.id)
            elif start.reads:
                self._read(run.id)

    def _work_inline(self, client: Process, run_id: RunId) -> None:
        try:
            self._insist(lambda: run_inline(self._rt, run_id))
        except LeaseLost:
            self._stage.trace("goes on elsewhere", "", (run_id,))
        client.handles = tuple(run for run in client.handles if run != run_id)
        self._read(run_id)

    def _read(self, run_id: RunId) -> None:
        try:
            self._results[run_id] = self._insist(
                lambda: Run[Any](run_id, lambda: self._rt).result(timeout=_RESULT_SECONDS)
            )
        except (RunFailed, RunCancelled) as error:
            self._results[run_id] = error
        except (ResultTimeout, RunNotFound) as error:
            raise Violation("I7 nothing is stuck", f"no result of {run_id}: {error!r}") from error

    def _insist(self, ask: Callable[[], Any]) -> Any:
        while True:
            try:
                return ask()
            except StoreUnavailable:
                self._stage.scheduler.sleep(1.0)

    def judge(self, tables: Tables) -> None:
        """A run whose start returned is there, and what a reader got is what the run came to. Raises ``Violation``."""
        for run_id in self._started:
            if run_id not in tables.runs:
                raise Violation("a started run is there", run_id)
        for run_id, result in self._results.items():
            run = tables.runs[run_id]
            if isinstance(result, RunFailed | RunCancelled):
                ends = _FAILED if isinstance(result, RunFailed) else {RunStatus.CANCELLED}
                is_same = run.status in ends and run.error is not None and run.error.message in str(result)
            else:
                is_same = run.status is RunStatus.COMPLETED and result == self._rt.codec.decode(run.output or "null")
            if not is_same:
                raise Violation("a reader gets the result", f"{run_id}: {result!r} of a {run.status} run")


def _new_run(start: Start) -> NewRun:
    return NewRun(
        id=RunId(start.run),
        workflow=f"w-{start.run}",
        version="1",
        input=_GRAPH_INPUT if start.nodes else '{"args":[],"kwargs":{}}',
        inline=start.inline,
        delay_seconds=None if start.inline else start.delay or None,
        timeout_seconds=start.timeout,
        handover='{"chord": "c"}' if start.hands_over else None,
    )
