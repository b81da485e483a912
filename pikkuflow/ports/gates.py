"""The store's acts at gates: where a run waits for a person or for the world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

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

__all__ = ["GateStore"]


class GateStore(Protocol):
    """Gates are rows of status ``suspended`` whose ``due_at`` is their time-out or expiry.

    Every act locks the run's row first, so what opens a gate and the pass that reaches it come one after the other: the later one sees the
    earlier one (scenario 12). What comes for a gate that waits raises news, and moves a run that is suspended for its gates back to running
    (D4); what comes before the gate was reached is kept, and raises none. A pass that opens a gate itself (a time that is over, a signal, a
    verdict) does the same in that act: workers take steps of running runs only.
    """

    def reach_gate(self, ref: PassRef, step: NewStep) -> GateReached | None:
        """The pass has reached this gate: insert its row (suspended, due in ``delay_seconds``) unless it is there, if the run is open.

        A SIGNAL gate (``task`` is the signal's name) takes the oldest signal of its name that no step has taken and that was sent before
        the row was due: the row succeeds with its payload. Without one, a row that is due fails with SIGNAL_TIMEOUT. Either way it settles
        as number ``begun_no`` of this reach. An APPROVAL brings its decisions that are not judged yet. The row is answered as it is after
        the act. None: fenced.
        """
        ...

    def settle_gate(self, ref: PassRef, verdict: GateVerdict) -> PassNews | None:
        """Store what a pass made of an approval's decisions (see ``GateVerdict``), whatever the run's status.

        A decision is judged once; an audit entry is written once by its id; a row that is settled stays as it is. None: fenced.
        """
        ...

    def resume_run(self, run_id: RunId, reason: str | None = None) -> RunRef | None:
        """An explicit resume, recorded before anything is sent (D3, D4).

        Without a reason every SUSPEND gate that waits is opened, and a suspended run becomes ``running``, whatever it was suspended for.
        What is opened settles as what comes from outside (``first_no``).
        With one only the gate of that reason (``task`` is the reason) is opened, and nothing else of the run changes but its status when it
        is suspended for its gates. An approval or a signal gate is never opened. Code, error, ``due_at`` and ``passes_lost`` are cleared
        with the status; news is raised. None: there was nothing to resume, and nothing was written.
        """
        ...

    def send_signal(self, run_id: RunId, signal: NewSignal) -> SignalSent:
        """Store a signal of a run that has not settled; ``number`` is one more than the run's last."""
        ...

    def decide(self, run_id: RunId, decision: NewDecision, audit: AuditEntry | None = None) -> Decided:
        """Store a decision, with its audit entry, unless its gate is settled, is over, or waits with an earlier decision to be judged.

        A gate that was not reached yet may have several; they are judged in the order in which they came.
        """
        ...

    def add_audit(self, entry: AuditEntry) -> None:
        """Write an audit entry, once by its id."""
        ...

    def list_audit(self, run_id: RunId) -> Sequence[AuditEntry]:
        """The audit of one run, oldest first, also when the run is deleted."""
        ...

    def list_signals(self, run_id: RunId) -> Sequence[Signal]:
        """The run's signals in the order in which they came."""
        ...

    def list_decisions(self, run_id: RunId, gate: StepName | None = None) -> Sequence[Decision]:
        """The run's decisions, or those for one gate, in the order in which they came."""
        ...

    def list_approvals(self, *, limit: int, after: GateKey | None = None) -> Sequence[WaitingApproval]:
        """Approvals that wait, the longest waiting first; ``after`` is the key of the last of the page before."""
        ...
