"""People: they look at what runs wait for, take their time, and answer; whoever gets no answer says it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from pikkuflow.adapters.memory.tables import RunRow, StepRow, Tables
from pikkuflow.domain.gate import Decider, gate_name
from pikkuflow.domain.ids import StepName
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus
from pikkuflow.engine.run_handle import Run
from pikkuflow.engine.runtime import Runtime
from pikkuflow.errors import (
    ApprovalResolved,
    GateNotFound,
    RunNotFound,
    RunNotSuspended,
    RunSettled,
    StoreUnavailable,
)
from pikkuflow.replay.graph_pass import NODE_FAILED
from tests.simulation.ledger import Violation
from tests.simulation.limits import RUN_TIMEOUT
from tests.simulation.plan import Gate, GateKind, Gather, Part, Spread
from tests.simulation.processes import Node, Process
from tests.simulation.stage import Stage

__all__ = ["People"]

_LOOK_SECONDS: Final = 1.0
_PATIENCE: Final = 10.0
_TOO_LATE: Final = (ApprovalResolved, GateNotFound, RunNotFound, RunNotSuspended, RunSettled)
_KINDS: Final = {
    GateKind.SUSPEND: StepKind.SUSPEND,
    GateKind.SIGNAL: StepKind.SIGNAL,
    GateKind.APPROVAL: StepKind.APPROVAL,
}


class People:
    """Whoever answers in one schedule. They see the rows as they are, and speak through the engine, as a process of their own."""

    def __init__(
        self, stage: Stage, rt: Runtime, tables: Callable[[], Tables], workflows: Mapping[str, tuple[Part, ...]]
    ) -> None:
        self._stage = stage
        self._rt = rt
        self._tables = tables
        self._gates = {name: gates_of(parts) for name, parts in workflows.items()}
        self.process = Process(Node("people", "people"), 0, "people", patience=_PATIENCE)
        self._tried: set[tuple[str, str]] = set()
        """Gates that somebody began to answer."""
        """By what they wait for: a node of a graph may wait again."""
        self._taken: set[tuple[str, str]] = set()
        """Gates whose answer was taken, as far as people were told. By their steps."""

    def begin(self) -> None:
        """Begin to look; there is nobody where nothing waits."""
        if any(self._gates.values()):
            self._stage.scheduler.spawn("people", self.process, self._live)

    def _live(self) -> None:
        while True:
            self._stage.scheduler.sleep(_LOOK_SECONDS)
            for run in list(self._tables().runs.values()):
                for gate in self._gates.get(run.workflow, ()):
                    for step, row in self._steps(run, gate):
                        if self._is_time(run, gate, step, row):
                            self._answer(run, gate, step, gate.name if row is None else row.task or "")

    def _is_time(self, run: RunRow, gate: Gate, step: StepName, row: StepRow | None) -> bool:
        if run.is_settled or gate.after is None or (run.id, step) in self._taken:
            return False
        if row is None:
            return gate.early and gate.kind is not GateKind.SUSPEND
        waited = (self._tables().clock.now() - row.created_at).total_seconds()
        return row.status is StepStatus.SUSPENDED and waited >= gate.after

    def _steps(self, run: RunRow, gate: Gate) -> list[tuple[StepName, StepRow | None]]:
        """The gate's steps; before it is come to, the one that it will have."""
        kind, again = _KINDS[gate.kind], f"{gate.name} "
        rows = [row for row in self._tables().steps_of(run.id).values() if row.kind is kind]
        found = [row for row in rows if row.task == gate.name or (row.task or "").startswith(again)]
        return [(row.name, row) for row in found] or [(StepName(gate_name(kind, gate.name)), None)]

    def _answer(self, run: RunRow, gate: Gate, step: StepName, reason: str) -> None:
        handle = Run[Any](run.id, lambda: self._rt)
        self._tried.add((run.id, reason))
        with suppress(StoreUnavailable, *_TOO_LATE):
            if gate.kind is GateKind.SUSPEND:
                handle.resume(gate.name)
            elif gate.kind is GateKind.SIGNAL:
                handle.signal(gate.name, _said(run.id, gate.name), idempotency_key=step)
            else:
                handle.approve(reason, _said(run.id, reason), by=Decider("people"))
            self._taken.add((run.id, step))

    def judge(self, tables: Tables, decode: Callable[[str], Any]) -> None:
        """Gates are opened by answers only, each answer counts once, and one that was taken in time counts. Raises ``Violation``."""
        for run in tables.runs.values():
            for row in tables.steps_of(run.id).values():
                if row.kind in _KINDS.values():
                    self._judge(run, row, tables, decode)

    def _judge(self, run: RunRow, row: StepRow, tables: Tables, decode: Callable[[str], Any]) -> None:
        where, key = f"{run.id} {row.name}", (str(run.id), row.task or "")
        if not row.is_settled:
            raise Violation("no gate is left open", where)
        is_open = row.status is StepStatus.SUCCEEDED
        value: Any = decode(row.result or "null") if is_open else None
        if row.kind is StepKind.APPROVAL and is_open:
            is_open = value["status"] == "decided"
            value = value.get("data")
        if is_open and key not in self._tried:
            raise Violation("a gate opens only when somebody answers", where)
        if is_open and row.kind is not StepKind.SUSPEND and value != _said(*key):
            raise Violation("what is received is what was said", f"{where}: {value}")
        if (
            not is_open
            and row.kind is StepKind.APPROVAL
            and (run.id, row.name) in self._taken
            and not _was_stopped(run, row)
        ):
            raise Violation("a decision that was taken counts", where)
        taken = [one for one in tables.gates.signals.get(run.id, ()) if one.taken_by == row.name]
        if row.kind is StepKind.SIGNAL and len(taken) != is_open:
            raise Violation("a wait receives one signal", f"{where}: {len(taken)}")


def _was_stopped(run: RunRow, gate: StepRow) -> bool:
    """Its gates are cancelled with it. A graph run can fail by what goes on beside one."""
    if run.code == NODE_FAILED and gate.status is StepStatus.CANCELLED:
        return True
    return run.status not in {RunStatus.COMPLETED, RunStatus.FAILED} or run.code == RUN_TIMEOUT


def _said(run_id: str, gate: str) -> str:
    return f"{run_id} {gate}"


def gates_of(parts: tuple[Part, ...]) -> tuple[Gate, ...]:
    """The gates of one workflow."""
    found: list[Gate] = []
    for part in parts:
        if isinstance(part, Gate):
            found.append(part)
        elif isinstance(part, Spread):
            found += gates_of(part.between)
        elif isinstance(part, Gather):
            found += gates_of(part.members)
    return tuple(found)
