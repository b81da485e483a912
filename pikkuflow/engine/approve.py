"""Decide an approval: judged by the recorded policy, stored with its audit entry, then the run goes on (spec 2.7, 12.3).

The data is validated inside the workflow, since only it has the schema: a decision that does not fit leaves the gate closed, and why is
shown on the gate's row.
"""

from __future__ import annotations

from typing import Any

from pikkuflow.domain.gate import NOBODY, Decider, Policy, gate_name, refusal_of
from pikkuflow.domain.gate_act import AuditEntry, AuditOutcome, Decided, DecisionEnd, NewDecision
from pikkuflow.domain.ids import StepName
from pikkuflow.domain.run import Run
from pikkuflow.domain.status import StepKind, StepStatus
from pikkuflow.domain.step import Step
from pikkuflow.engine.audit import deny, tell_audit
from pikkuflow.engine.drive import drive
from pikkuflow.engine.runtime import Runtime
from pikkuflow.errors import ApprovalForbidden, ApprovalResolved, RunNotFound, RunSettled

__all__ = ["approve"]


def approve(rt: Runtime, run: Run, reason: str, data: Any, *, by: Decider | None = None) -> None:
    """Store the decision and wake the run. An early one is kept, and judged when the gate is reached.

    Raises:
        StepNameError: the reason is no text, or unusable.
        PayloadError: the data cannot be stored.
        ApprovalForbidden: the gate's policy does not admit this decider; that is audited.
        ApprovalResolved: the gate was decided, is over, or an earlier decision is being judged.
        RunSettled: the run has ended and never asked for this.
        RunNotFound: the run was deleted meanwhile. In each case nothing was decided.
    """
    gate, decider = StepName(gate_name(StepKind.APPROVAL, reason)), by or NOBODY
    text = rt.codec.encode(data, what=f"the decision on {reason!r}")
    row = rt.store.get_step(run.id, gate)
    if row is not None and not row.is_settled:
        _check_policy(rt, run, row, decider)
    entry = _entry(rt, run, reason, decider, AuditOutcome.SUCCESS)
    decision = NewDecision(id=rt.ids.new_id(), gate=gate, data=text, by=decider)
    decided = rt.store.decide(run.id, decision, entry)
    if decided.end is not DecisionEnd.STORED:
        raise _refused(rt, run, reason, decided)
    tell_audit(rt, [entry])
    drive(rt, decided.wake)


def _check_policy(rt: Runtime, run: Run, row: Step, by: Decider) -> None:
    refusal = refusal_of(Policy.from_json(row.options), by, run.owner)
    if refusal is None:
        return
    reason = row.task or ""
    deny(rt, _entry(rt, run, reason, by, AuditOutcome.DENIED, refusal))
    raise ApprovalForbidden(
        f"Approval {reason!r} of run {run.id!r} was not decided: {refusal}.", run.id, reason, refusal
    )


def _entry(
    rt: Runtime, run: Run, reason: str, by: Decider, outcome: AuditOutcome, detail: str | None = None
) -> AuditEntry:
    return AuditEntry(
        id=rt.ids.new_id(),
        run_id=run.id,
        workflow=run.workflow,
        reason=reason,
        outcome=outcome,
        by=by,
        detail=detail,
    )


def _refused(rt: Runtime, run: Run, reason: str, decided: Decided) -> Exception:
    if decided.end is DecisionEnd.MISSING:
        return RunNotFound(f"There is no run {run.id!r}.", run.id)
    if decided.end is DecisionEnd.SETTLED:
        return RunSettled(f"Run {run.id!r} has ended: there is nothing to decide.", run.id)
    outcome = _outcome(rt, decided)
    return ApprovalResolved(
        f"Approval {reason!r} of run {run.id!r} is {outcome}; nothing was changed.", run.id, reason, outcome
    )


def _outcome(rt: Runtime, decided: Decided) -> str:
    """How the gate ended, in one word."""
    if decided.end is not DecisionEnd.RESOLVED or decided.step is None:
        return decided.end.value
    if decided.step.status is not StepStatus.SUCCEEDED:
        return decided.step.status.value
    return str(rt.codec.decode(decided.step.result or "{}").get("status"))
