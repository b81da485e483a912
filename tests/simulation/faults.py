"""Faults that strike at a point: each at the first that fits it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.simulation.plan import Fault, FaultKind
from tests.simulation.processes import Process
from tests.simulation.scheduler import Killed
from tests.simulation.stage import Stage

__all__ = ["Faults"]

STORE_OPS: Final = frozenset(
    {
        "insert_runs", "open_pass", "record", "insert_steps", "start_child", "close_pass", "resume_run", "ask_pass",
        "claim_steps", "settle_steps", "give_back", "expire_holder", "expire_node", "renew_holders", "sweep_stalled",
        "sweep_undispatched", "sweep_scheduled", "note_sweep", "sweep_ages", "undelivered_runs", "get_run", "get_step",
        "list_steps",
    }
)  # fmt: skip
SEND_OPS: Final = frozenset({"wake", "send_steps"})

_LOST: Final = frozenset({FaultKind.LOST_ANSWER, FaultKind.LOST_ACT})
_MESSAGES: Final = frozenset({FaultKind.LOSE, FaultKind.DOUBLE, FaultKind.DELAY, FaultKind.UNSURE_SEND})
_NODES: Final = frozenset({FaultKind.KILL_NODE, FaultKind.LEAVE, FaultKind.FREEZE})
_WHEN: Final = {FaultKind.LOST_ANSWER: "before", FaultKind.LOST_ACT: "before"}


class Faults:
    """Those of one plan. ``restart`` has a node start again after a time."""

    def __init__(self, stage: Stage, faults: tuple[Fault, ...], restart: Callable[[Process, float], None]) -> None:
        self._stage = stage
        self._left = list(faults)
        self._restart = restart

    def strike(self, op: str, phase: str) -> FaultKind | None:
        """Let what is due and fits happen here. Returns what the port itself must do; raises ``Killed`` when the actor's process dies."""
        stage = self._stage
        for fault in self._left:
            if fault.at > stage.points:
                return None
            if self._fits(fault, op, phase):
                self._left.remove(fault)
                return self._happen(fault)
        return None

    def _fits(self, fault: Fault, op: str, phase: str) -> bool:
        if (fault.op is not None and fault.op != op) or (fault.phase is not None and fault.phase != phase):
            return False
        if fault.kind in _LOST:
            return phase == "before" and op in STORE_OPS
        if fault.kind in _MESSAGES:
            return phase == "before" and op in SEND_OPS
        process = self._stage.process
        if fault.kind is FaultKind.KILL_CHILD:
            return process in process.node.children
        if fault.kind in _NODES:
            return process.node in self._stage.nodes
        return True

    def _happen(self, fault: Fault) -> FaultKind | None:
        stage, process = self._stage, self._stage.process
        stage.is_disturbed = True
        stage.fault_seconds = fault.seconds
        stage.trace(f"*** {fault.kind}", "", (fault.seconds,))
        if fault.kind in _LOST or fault.kind in _MESSAGES:
            return fault.kind
        if fault.kind is FaultKind.KILL_CHILD:
            stage.kill(process)
            raise Killed
        if fault.kind is FaultKind.KILL_NODE:
            self._restart(process, fault.seconds)
            raise Killed
        self._last(fault, process)
        return None

    def _last(self, fault: Fault, process: Process) -> None:
        """Conditions that last for a while."""
        stage = self._stage
        until = stage.now + fault.seconds
        if fault.kind is FaultKind.LEAVE:
            process.node.is_stopping = True
        elif fault.kind is FaultKind.FREEZE:
            stage.was_late = True
            process.node.frozen_until = max(process.node.frozen_until, until)
        elif fault.kind is FaultKind.STALL:
            stage.was_late = True
            stage.scheduler.sleep(fault.seconds)
        else:
            _break(stage, fault.kind, until)


def _break(stage: Stage, kind: FaultKind, until: float) -> None:
    if kind is FaultKind.STORE_DOWN:
        stage.was_late = True
        stage.store_down_until = until
    elif kind is FaultKind.LEASES_DOWN:
        stage.were_leases_lost = True
        stage.leases_down_until = until
    elif kind is FaultKind.HINTS_DOWN:
        stage.hints_down_until = until
    elif kind is FaultKind.BROKER_DOWN:
        stage.broker_down_until = until
    elif kind is FaultKind.BEAT_DOWN:
        stage.beat_down_until = until
    elif kind is FaultKind.HINTS_EMPTIED:
        stage.due.clear()
    elif kind is FaultKind.BROKER_EMPTIED:
        stage.broker.messages.clear()
    else:
        stage.were_leases_lost = True
        stage.empty_leases()
