"""The acts of ``GateStore`` over a SQL database; the contract of each is in ``pikkuflow.ports.gates``."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from pikkuflow.adapters.sql import gates, outside
from pikkuflow.adapters.sql.database import Database
from pikkuflow.domain.act import PassNews, PassRef, RunRef
from pikkuflow.domain.gate_act import (
    AuditEntry,
    Decided,
    Decision,
    GateKey,
    GateReached,
    GateVerdict,
    NewDecision,
    NewSignal,
    Signal,
    SignalSent,
    WaitingApproval,
)
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.step import NewStep

__all__ = ["GateActs"]


class GateActs:
    """Short transactions on every database: none of them is on a hot path."""

    database: Database

    def reach_gate(self, ref: PassRef, step: NewStep) -> GateReached | None:
        """Insert the gate's row unless it is there; a signal gate takes its signal, or times out."""
        return self.database.write(lambda tx: gates.reach_gate(tx, ref, step))

    def settle_gate(self, ref: PassRef, verdict: GateVerdict) -> PassNews | None:
        """Store what a pass made of an approval's decisions."""
        return self.database.write(lambda tx: gates.settle_gate(tx, ref, verdict))

    def resume_run(self, run_id: RunId, reason: str | None = None) -> RunRef | None:
        """Open suspensions, and move the run."""
        author = str(uuid.uuid4())
        return self.database.write(lambda tx: outside.resume_run(tx, run_id, reason, author))

    def send_signal(self, run_id: RunId, signal: NewSignal) -> SignalSent:
        """Store a signal, once by its id and by its key."""
        return self.database.write(lambda tx: outside.send_signal(tx, run_id, signal))

    def decide(self, run_id: RunId, decision: NewDecision, audit: AuditEntry | None = None) -> Decided:
        """Store a decision unless its gate is settled, over, or has one to be judged."""
        return self.database.write(lambda tx: outside.decide(tx, run_id, decision, audit))

    def add_audit(self, entry: AuditEntry) -> None:
        """Write an audit entry, once by its id."""
        self.database.write(lambda tx: gates.add_audit(tx, entry))

    def list_audit(self, run_id: RunId) -> Sequence[AuditEntry]:
        """The audit of one run, oldest first."""
        return self.database.read(lambda tx: gates.list_audit(tx, run_id))

    def list_signals(self, run_id: RunId) -> Sequence[Signal]:
        """The run's signals in the order in which they came."""
        return self.database.read(lambda tx: gates.list_signals(tx, run_id))

    def list_decisions(self, run_id: RunId, gate: StepName | None = None) -> Sequence[Decision]:
        """The run's decisions, or those for one gate."""
        return self.database.read(lambda tx: gates.list_decisions(tx, run_id, gate))

    def list_approvals(self, *, limit: int, after: GateKey | None = None) -> Sequence[WaitingApproval]:
        """Approvals that wait, the longest waiting first."""
        return self.database.read(lambda tx: gates.list_approvals(tx, limit, after))
