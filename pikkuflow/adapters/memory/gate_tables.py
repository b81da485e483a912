"""What the memory store keeps of gates beside their steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from pikkuflow.domain.gate_act import AuditEntry, Decision, Signal
from pikkuflow.domain.ids import RunId

__all__ = ["GateTables"]


@dataclass(slots=True, kw_only=True)
class GateTables:
    """Signals and decisions by run, the audit by id, and the ids of the acts that stored signals and decisions."""

    signals: dict[RunId, list[Signal]] = field(default_factory=dict)
    decisions: dict[RunId, list[Decision]] = field(default_factory=dict)
    audit: dict[str, AuditEntry] = field(default_factory=dict)
    authors: set[tuple[RunId, str]] = field(default_factory=set)

    def forget(self, run_id: RunId) -> None:
        """The run is deleted; the audit stays."""
        self.signals.pop(run_id, None)
        self.decisions.pop(run_id, None)
