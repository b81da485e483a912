"""Deliberate faults of gates. The simulation must find each (issue D)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from pikkuflow.adapters.memory.run_store import MemoryRunStore
from pikkuflow.domain.act import PassRef, RunRef
from pikkuflow.domain.gate_act import GateReached
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import StepKind, StepStatus
from pikkuflow.domain.step import NewStep
from tests.simulation.mutations import Mutation, patched
from tests.simulation.stage import ACTOR_PAUSE

__all__ = ["GATE_MUTATIONS"]

_reach_gate = MemoryRunStore.reach_gate


def _reach_as_passed(self: MemoryRunStore, ref: PassRef, step: NewStep) -> GateReached | None:
    """As upstream has it (H3): the suspension is recorded as passed when it is reached."""
    reached = _reach_gate(self, ref, step)
    if reached is not None and step.kind is StepKind.SUSPEND and reached.row is not None:
        row = self._tables.steps_of(ref.run_id)[step.name]
        row.status, row.result, row.settled_at = StepStatus.SUCCEEDED, "null", self._tables.clock.now()
    return reached


def _reach_with_old_signals(self: MemoryRunStore, ref: PassRef, step: NewStep) -> GateReached | None:
    """The signals are looked at before the run is locked."""
    signals = self._tables.gates.signals.setdefault(ref.run_id, [])
    count = len(signals)
    ACTOR_PAUSE()
    later = signals[count:]
    del signals[count:]
    try:
        return _reach_gate(self, ref, step)
    finally:
        signals.extend(later)


def _reach_and_leave(self: MemoryRunStore, ref: PassRef, step: NewStep) -> GateReached | None:
    """A signal that was received can be received again."""
    reached = _reach_gate(self, ref, step)
    signals = self._tables.gates.signals.get(ref.run_id, [])
    signals[:] = [replace(one, taken_by=None) for one in signals]
    return reached


def _tell_nobody(_self: MemoryRunStore, _run: Any, _now: Any) -> RunRef | None:
    """What came for a gate is stored, and is no news."""
    return None


def _resume_in_passing(self: MemoryRunStore, run_id: RunId, reason: str | None = None) -> RunRef | None:
    """A resume that opens the gate and leaves the status, so that workers take no step of the run (H4)."""
    with self._tables.lock:
        run = self._tables.runs.get(run_id)
        before = None if run is None else (run.status, run.code, run.error)
        resumed = _resume_run(self, run_id, reason)
        if resumed is not None and run is not None and before is not None:
            run.status, run.code, run.error = before
        return resumed


_resume_run = MemoryRunStore.resume_run

GATE_MUTATIONS: Final = (
    Mutation("mark a suspension as passed before a resume", patched((MemoryRunStore, "reach_gate", _reach_as_passed))),
    Mutation(
        "look for signals before locking the run", patched((MemoryRunStore, "reach_gate", _reach_with_old_signals))
    ),
    Mutation("receive a signal and leave it", patched((MemoryRunStore, "reach_gate", _reach_and_leave))),
    Mutation("store an answer without news", patched((MemoryRunStore, "_tell_gate", _tell_nobody))),
    Mutation("resume without a status", patched((MemoryRunStore, "resume_run", _resume_in_passing))),
)
