"""Faults that strike at a point: each at the first that fits it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.simulation.plan import Fault, FaultKind
from tests.simulation.processes import Process
from tests.simulation.scheduler import NEVER, Killed
from tests.simulation.stage import Stage

__all__ = ["Faults"]

STORE_OPS: Final = frozenset(
    {
        "insert_runs", "open_pass", "record", "insert_steps", "start_child", "close_pass", "resume_run", "ask_pass",
        "claim_steps", "settle_steps", "give_back", "expire_holder", "expire_node", "renew_holders", "sweep_stalled",
        "sweep_undispatched", "sweep_scheduled", "note_sweep", "sweep_ages", "undelivered_runs", "get_run", "get_step",
        "list_steps", "find_runs", "mark_delivered", "put_off_delivery", "record_all", "upcoming",
        "reach_gate", "settle_gate", "send_signal", "decide", "cancel_run", "unwind_child", "list_attempts", "beat", "overdue_runs",
    }
)  # fmt: skip
SEND_OPS: Final = frozenset({"wake", "send_steps"})

_LOST: Final = frozenset({FaultKind.LOST_ANSWER, FaultKind.LOST_ACT})
_MESSAGES: Final = frozenset({FaultKind.LOSE, FaultKind.DOUBLE, FaultKind.DELAY, FaultKind.UNSURE_SEND})
_PORTS: Final = _LOST | _MESSAGES | {FaultKind.SPOIL}
"""What the port itself does."""
_NODES: Final = frozenset({FaultKind.KILL_NODE, FaultKind.LEAVE, FaultKind.FREEZE})
_HARMLESS: Final = frozenset({FaultKind.LEAVE, FaultKind.CALL_OFF})
_WHEN: Final = {FaultKind.LOST_ANSWER: "before", FaultKind.LOST_ACT: "before"}
_AWAY: Final = {
    FaultKind.STORE_DOWN: "store_down_until",
    FaultKind.LEASES_DOWN: "leases_down_until",
    FaultKind.HINTS_DOWN: "hints_down_until",
    FaultKind.BROKER_DOWN: "broker_down_until",
    FaultKind.BEAT_DOWN: "beat_down_until",
    FaultKind.BACKEND_DOWN: "backend_down_until",
}
"""Services that do not answer for a while."""


class Faults:
    """Those of one plan. ``restart`` has a node start again after a time, ``call_off`` has somebody call a run off."""

    def __init__(
        self,
        stage: Stage,
        faults: tuple[Fault, ...],
        restart: Callable[[Process, float], None],
        call_off: Callable[[int, float], None],
    ) -> None:
        self._stage = stage
        self._left = list(faults)
        self._restart = restart
        self._call_off = call_off
        self._look_ahead()

    def strike(self, op: str, phase: str) -> FaultKind | None:
        """Let what is due and fits happen here. Returns what the port itself must do; raises ``Killed`` when the actor's process dies."""
        stage = self._stage
        for fault in self._left:
            if fault.at > stage.points:
                return None
            if self._fits(fault, op, phase):
                self._left.remove(fault)
                self._look_ahead()
                return self._happen(fault)
        return None

    def _look_ahead(self) -> None:
        self._stage.strikes_from = min((fault.at for fault in self._left), default=NEVER)

    def _fits(self, fault: Fault, op: str, phase: str) -> bool:
        if (fault.op is not None and fault.op != op) or (fault.phase is not None and fault.phase != phase):
            return False
        if fault.kind in _LOST:
            return phase == "before" and op in STORE_OPS
        if fault.kind in _MESSAGES:
            return phase == "before" and op in SEND_OPS
        process = self._stage.process
        if fault.kind is FaultKind.SPOIL:
            return (op, phase) == ("deliver", "before")
        return self._fits_process(fault.kind, process)

    def _fits_process(self, kind: FaultKind, process: Process) -> bool:
        if kind is FaultKind.KILL_CHILD:
            return process in process.node.children
        if kind is FaultKind.KILL_CLIENT:
            return process in self._stage.clients
        if kind in _NODES:
            is_client = kind is FaultKind.FREEZE and process in self._stage.clients
            return is_client or process.node in self._stage.nodes
        return True

    def _happen(self, fault: Fault) -> FaultKind | None:
        stage, process = self._stage, self._stage.process
        # A warm stop is no fault, nor is a cancel: nothing is lost, and messages suffice.
        stage.is_disturbed = stage.is_disturbed or fault.kind not in _HARMLESS
        stage.fault_seconds = fault.seconds
        stage.trace(f"*** {fault.kind}", "", (fault.seconds,))
        if fault.kind in _PORTS:
            return fault.kind
        if fault.kind is FaultKind.CALL_OFF:
            self._call_off(fault.which, fault.seconds)
            return None
        if fault.kind in {FaultKind.KILL_CHILD, FaultKind.KILL_CLIENT}:
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
            stage.stop(process.node)
        elif fault.kind is FaultKind.FREEZE:
            stage.was_late = True
            process.node.frozen_until = max(process.node.frozen_until, until)
        elif fault.kind is FaultKind.STALL:
            stage.was_late = True
            stage.scheduler.sleep(fault.seconds)
        else:
            _break(stage, fault.kind, until)


def _break(stage: Stage, kind: FaultKind, until: float) -> None:
    stage.was_late = stage.was_late or kind is FaultKind.STORE_DOWN
    stage.were_leases_lost = stage.were_leases_lost or kind in {FaultKind.LEASES_DOWN, FaultKind.LEASES_EMPTIED}
    if kind in _AWAY:
        setattr(stage, _AWAY[kind], until)
    elif kind is FaultKind.HINTS_EMPTIED:
        stage.due.clear()
    elif kind is FaultKind.BROKER_EMPTIED:
        stage.broker.messages.clear()
    else:
        stage.empty_leases()
