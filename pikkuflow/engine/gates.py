"""A pass at a gate: it is open and its outcome is known, or the pass ends here (spec 2.6, 2.7).

A decision is judged here and nowhere else, because only the body has the schema (spec 12.7). The policy is the one that was recorded when
the gate was reached. What is wrong with a decision is shown on the gate's row, and the gate stays closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pikkuflow.domain.command import PlannedCall, Recorded, StepCall
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.gate import Policy, Terms, refusal_of, waiting_failure
from pikkuflow.domain.gate_act import AuditEntry, AuditOutcome, Decision, GateReached, GateVerdict, Judged
from pikkuflow.domain.status import StepKind, StepStatus, gate_code
from pikkuflow.domain.step import NewStep, Step
from pikkuflow.engine.audit import tell_audit
from pikkuflow.engine.open_pass import OpenPass
from pikkuflow.errors import PayloadError
from pikkuflow.replay.park import Parked, ParkReason
from pikkuflow.replay.recorder import recorded_failure

__all__ = ["pass_gate"]

_TOO_LATE = "another decision opened the gate"


def pass_gate(p: OpenPass, planned: PlannedCall, step: NewStep) -> Recorded:
    """The outcome of the gate. Raises ``Parked`` while it is closed, and when the pass is fenced or its run was stopped."""
    call, row = planned.call, planned.row
    if row is None or call.kind is not StepKind.SUSPEND:
        # A row that is there settles at this reach, not when it was first come to.
        reached = p.reach_gate(step if row is None else replace(step, begun_no=p.next_no()))
        row = _judged(p, call, reached)
    if row.status is StepStatus.SUCCEEDED:
        return Recorded(value=_decoded(p, row.result))
    if row.is_settled:
        return Recorded(failure=recorded_failure(row), attempts=row.attempt)
    p.note_due(row.due_in_seconds)
    raise _closed(p, call)


def _closed(p: OpenPass, call: StepCall) -> Parked:
    """Steps in flight beside it are what the run waits for first: it goes on running, so that workers take them (design 3.10)."""
    if p.has_in_flight:
        return Parked(ParkReason.WAITING, code=gate_code(call.kind))
    failure = waiting_failure(call.kind, call.task or call.name)
    return Parked(ParkReason.SUSPENDED, code=gate_code(call.kind), failure=failure)


def _judged(p: OpenPass, call: StepCall, reached: GateReached) -> Step:
    row = reached.row
    if row is None:
        raise Parked(ParkReason.STOPPED)
    if call.terms is None or row.is_settled:
        return row
    verdict = _Judge(p, call.terms, row).verdict(reached.decisions)
    if verdict is None:
        return row
    p.settle_gate(verdict)
    tell_audit(p.rt, verdict.audit)
    settled = p.ask(lambda: p.rt.store.get_step(p.run.id, row.name))
    return settled or row


def _decoded(p: OpenPass, result: str | None) -> Any:
    return p.ask(lambda: p.rt.codec.decode(result or "null"))


class _Judge:
    """What a pass makes of an approval's decisions, in the order in which they came."""

    def __init__(self, p: OpenPass, terms: Terms, row: Step) -> None:
        self._p = p
        self._terms = terms
        self._row = row
        self._policy = Policy.from_json(row.options)
        self._judged: list[Judged] = []
        self._denied: list[AuditEntry] = []
        self._error: Failure | None = row.error

    def verdict(self, decisions: Sequence[Decision]) -> GateVerdict | None:
        """The first that is admitted and valid opens the gate; else it may be over. None: nothing changes."""
        result = None
        for decision in decisions:
            if result is not None:
                self._judged.append(Judged(number=decision.number, refusal=_TOO_LATE))
                continue
            result = self._accepted(decision)
        if result is None and self._row.due_at is not None and self._row.is_due:
            result = self._encoded({"status": "expired"})
        if result is None and not self._judged:
            return None
        return GateVerdict(
            step=self._row.name,
            no=self._p.next_no(),
            judged=tuple(self._judged),
            result=result,
            error=self._error,
            audit=tuple(self._denied),
        )

    def _accepted(self, decision: Decision) -> str | None:
        """The outcome to store, or None with the reason noted."""
        refusal = refusal_of(self._policy, decision.by, self._p.run.owner)
        if refusal is not None:
            self._refuse(decision, refusal)
            self._deny(decision, refusal)
            return None
        checked = self._terms.schema.check(_decoded(self._p, decision.data))
        if checked.issues:
            self._refuse(decision, "; ".join(checked.issues))
            return None
        by = decision.by
        outcome = {
            "status": "decided",
            "data": checked.stored,
            "decidedBy": None if by.user is None else {"user": by.user, "scopes": list(by.scopes)},
            "decidedAt": decision.decided_at,
        }
        try:
            result = self._encoded(outcome)
        except PayloadError as error:
            self._refuse(decision, error.message)
            return None
        self._judged.append(Judged(number=decision.number, refusal=None))
        return result

    def _encoded(self, outcome: dict[str, Any]) -> str:
        return self._p.rt.codec.encode(outcome, what=f"the outcome of approval {self._row.task!r}")

    def _refuse(self, decision: Decision, why: str) -> None:
        self._judged.append(Judged(number=decision.number, refusal=why))
        who = f" of {decision.by.user}" if decision.by.user is not None else ""
        message = f"the decision{who} was refused: {why}"
        self._error = Failure(type="ApprovalRefused", message=message)

    def _deny(self, decision: Decision, why: str) -> None:
        run = self._p.run
        entry = AuditEntry(
            # The same decision judged again, when the answer was lost, is the same entry.
            id=f"{run.id}:{decision.number}:denied",
            run_id=run.id,
            workflow=run.workflow,
            reason=self._row.task or "",
            outcome=AuditOutcome.DENIED,
            by=decision.by,
            detail=why,
        )
        self._denied.append(entry)
