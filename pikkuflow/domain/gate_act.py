"""The arguments and answers of the acts at a gate, and what they store (see ``ports.gates`` for their contract)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from pikkuflow.domain.act import PassNews, RunRef
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.gate import Decider, Policy
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.step import Step

__all__ = [
    "AUDIT_DECIDED",
    "AuditEntry",
    "AuditOutcome",
    "Decided",
    "Decision",
    "DecisionEnd",
    "GateKey",
    "GateReached",
    "GateVerdict",
    "Judged",
    "NewDecision",
    "NewSignal",
    "Signal",
    "SignalEnd",
    "SignalSent",
    "WaitingApproval",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSignal:
    """A signal about to be stored.

    ``id`` tells a repeated act from another signal. Two sends of one name with the same ``key`` are one signal. ``payload`` is the codec's
    text.
    """

    id: str
    name: str
    payload: str
    key: str | None = None
    sender: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A stored signal. ``number`` counts the run's signals from 1; ``taken_by`` is the step that received it."""

    run_id: RunId
    number: int
    name: str
    payload: str
    key: str | None
    sender: str | None
    sent_at: datetime
    taken_by: StepName | None


class SignalEnd(StrEnum):
    """What became of a send."""

    STORED = "stored"
    KNOWN = "known"
    """Its idempotency key was used for this name before: the first one counts."""
    MISSING = "missing"
    SETTLED = "settled"
    """The run has ended; nothing was stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalSent:
    """The answer of a send. ``wake`` is the run when it waited for this signal and wants a pass."""

    end: SignalEnd
    wake: RunRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDecision:
    """A decision about to be stored. ``id`` tells a repeated act from another decision; ``data`` is the codec's text."""

    id: str
    gate: StepName
    data: str
    by: Decider


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A stored decision. ``judged_at`` is None until a pass judged it; ``refusal`` says why it did not open the gate."""

    run_id: RunId
    number: int
    gate: StepName
    data: str
    by: Decider
    decided_at: datetime
    judged_at: datetime | None
    refusal: str | None


class DecisionEnd(StrEnum):
    """What became of a decision."""

    STORED = "stored"
    MISSING = "missing"
    SETTLED = "settled"
    """The run has ended and never reached this gate."""
    RESOLVED = "resolved"
    """The gate was decided or has expired before; ``step`` shows how."""
    EXPIRED = "expired"
    """Its deadline is over by the database's clock, though no pass has recorded that yet."""
    JUDGING = "judging"
    """The gate waits, and an earlier decision waits to be judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The answer of a decision. ``step`` is the gate's row, when it was reached; ``wake`` is the run when it wants a pass."""

    end: DecisionEnd
    step: Step | None = None
    wake: RunRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReached:
    """A gate as the pass finds it, under the lock of the run's row.

    ``row`` is settled when a signal was there, a wait is over, or a resume came meanwhile. ``decisions`` are those not judged yet, in the
    order in which they came. ``news.written`` is False when the run was stopped: then ``row`` is None.
    """

    news: PassNews
    row: Step | None = None
    decisions: tuple[Decision, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One decision was judged: ``refusal`` None opened the gate."""

    number: int
    refusal: str | None


AUDIT_DECIDED: Final = "workflow.approval.decided"


class AuditOutcome(StrEnum):
    """Whether a decision was admitted."""

    SUCCESS = "success"
    DENIED = "denied"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One line of the audit (spec 12.3). It is not removed with its run. ``at`` is the database's, and None before it is stored."""

    id: str
    run_id: RunId
    workflow: str
    reason: str
    outcome: AuditOutcome
    by: Decider
    detail: str | None = None
    type: str = AUDIT_DECIDED
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateVerdict:
    """What a pass made of the decisions at an approval.

    ``result`` is the codec's text of the outcome and settles the step, as number ``no`` in the order of the run (``first_no``); without it
    the gate goes on waiting and shows ``error``. ``audit`` is written along.
    """

    step: StepName
    no: int = 0
    judged: tuple[Judged, ...] = ()
    result: str | None = None
    error: Failure | None = None
    audit: tuple[AuditEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GateKey:
    """Where a page of waiting gates ends; the next one goes on after it."""

    since: datetime
    run_id: RunId
    step: StepName


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingApproval:
    """An approval that waits: what for, for whom, since when and until when. ``issue`` is why the last decision was refused."""

    run_id: RunId
    workflow: str
    step: StepName
    reason: str
    policy: Policy
    owner: str | None
    since: datetime
    expires_at: datetime | None
    issue: str | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: times as ISO text, absent fields left out."""
        shown = {
            "runId": self.run_id,
            "workflow": self.workflow,
            "reason": self.reason,
            "approvers": self.policy.approvers.value,
            "approverScope": self.policy.scope,
            "owner": self.owner,
            "since": self.since.isoformat(),
            "expiresAt": None if self.expires_at is None else self.expires_at.isoformat(),
            "issue": self.issue,
        }
        return {key: value for key, value in shown.items() if value is not None}
