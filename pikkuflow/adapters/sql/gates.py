"""A pass at a gate, for every database, and what is stored of gates beside their steps (see ``ports.gates``)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select, tuple_, update

from pikkuflow.adapters.sql.database import Transaction
from pikkuflow.adapters.sql.rows import new_step_row, step_of, text_of
from pikkuflow.adapters.sql.tables import audit, decision, run, signal, step
from pikkuflow.domain.act import PassNews, PassRef
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.gate import Decider, Policy, signal_timed_out
from pikkuflow.domain.gate_act import (
    AuditEntry,
    AuditOutcome,
    Decision,
    GateKey,
    GateReached,
    GateVerdict,
    Signal,
    WaitingApproval,
)
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.status import OPEN_RUN, SETTLED_STEP, RunStatus, StepKind, StepStatus
from pikkuflow.domain.step import NewStep

__all__ = [
    "add_audit",
    "go_on",
    "list_approvals",
    "list_audit",
    "list_decisions",
    "list_signals",
    "opened",
    "reach_gate",
    "scopes_text",
    "settle_gate",
]

Row = Mapping[str, Any]


def reach_gate(tx: Transaction, ref: PassRef, new: NewStep) -> GateReached | None:
    """Insert the gate's row unless it is there; a signal gate takes its signal, or times out."""
    held = tx.lock_run(ref.run_id)
    if held is None or held["pass_id"] != ref.pass_id:
        return None
    if held["status"] not in OPEN_RUN:
        return GateReached(news=PassNews(news=held["news"], status=RunStatus(held["status"]), written=False))
    row = _row_of(tx, ref, new)
    status = RunStatus(held["status"])
    if row["status"] == StepStatus.SUSPENDED and new.kind is StepKind.SIGNAL:
        row = _take_signal(tx, row, new.begun_no)
        if row["status"] in SETTLED_STEP:
            status = go_on(tx, held)
    waiting = [one for one in list_decisions(tx, ref.run_id, new.name) if one.judged_at is None]
    news = PassNews(news=held["news"], status=status)
    return GateReached(news=news, row=step_of(row, tx.now()), decisions=tuple(waiting))


def _row_of(tx: Transaction, ref: PassRef, new: NewStep) -> Row:
    mine = (step.c.run_id == ref.run_id) & (step.c.name == new.name)
    row = tx.first(select(step).where(mine))
    if row is None:
        now = tx.now()
        row = new_step_row(ref.run_id, new, ref.pass_id, now)
        row |= {"status": StepStatus.SUSPENDED.value, "waiting_since": None, "gate_at": now}
        tx.do(insert(step).values(row))
    return row


def _take_signal(tx: Transaction, row: Row, no: int) -> Row:
    """The run's row is locked, so nobody sends or takes between the two."""
    now, due_at = tx.now(), row["due_at"]
    wanted = select(signal).where(
        signal.c.run_id == row["run_id"], signal.c.name == row["task"], signal.c.taken_by.is_(None)
    )
    if due_at is not None:
        wanted = wanted.where(signal.c.sent_at <= due_at)
    found = tx.first(wanted.order_by(signal.c.number).limit(1))
    if found is not None:
        taken = update(signal).where(signal.c.run_id == row["run_id"], signal.c.number == found["number"])
        tx.do(taken.values(taken_by=row["name"]))
        return _settled(tx, row, opened(now, no, found["payload"]))
    if due_at is not None and due_at <= now:
        failure = signal_timed_out(row["task"] or "")
        return _settled(tx, row, opened(now, no, None, status=StepStatus.FAILED, error=failure))
    return row


def _settled(tx: Transaction, row: Row, values: dict[str, Any]) -> Row:
    tx.do(update(step).where(step.c.run_id == row["run_id"], step.c.name == row["name"]).values(values))
    return {**row, **values}


def opened(
    now: datetime,
    no: int,
    result: str | None,
    *,
    status: StepStatus = StepStatus.SUCCEEDED,
    error: Failure | None = None,
) -> dict[str, Any]:
    """The assignments that settle a gate's row, as number ``no`` in the order of the run."""
    ended = {
        "settled_at": now,
        "settled_no": no,
        "due_at": None,
        "gate_at": None,
        "send_count": 0,
        "next_send_at": None,
    }
    return {"status": status.value, "result": result, "error": text_of(error), **ended}


def go_on(tx: Transaction, row: Row, **more: Any) -> RunStatus:
    """``suspended -> running`` of a run whose row is locked (D4), so that workers take the steps that are sent next. The status then."""
    if row["status"] != RunStatus.SUSPENDED:
        return RunStatus(row["status"])
    cleared = {"code": None, "error": None, "due_at": None, "send_count": 0, "next_send_at": None}
    tx.do(update(run).where(run.c.id == row["id"]).values(status=RunStatus.RUNNING.value, **cleared, **more))
    return RunStatus.RUNNING


def settle_gate(tx: Transaction, ref: PassRef, verdict: GateVerdict) -> PassNews | None:
    """Store what a pass made of an approval's decisions."""
    held = tx.lock_run(ref.run_id)
    if held is None or held["pass_id"] != ref.pass_id:
        return None
    now, status = tx.now(), RunStatus(held["status"])
    for judged in verdict.judged:
        mine = (decision.c.run_id == ref.run_id) & (decision.c.number == judged.number)
        fresh = update(decision).where(mine, decision.c.judged_at.is_(None))
        tx.do(fresh.values(judged_at=now, refusal=judged.refusal))
    waiting = update(step).where(
        step.c.run_id == ref.run_id, step.c.name == verdict.step, step.c.status == StepStatus.SUSPENDED.value
    )
    if verdict.result is None:
        tx.do(waiting.values(error=text_of(verdict.error)))
    else:
        tx.do(waiting.values(opened(now, verdict.no, verdict.result)))
        status = go_on(tx, held)
    for entry in verdict.audit:
        add_audit(tx, entry)
    return PassNews(news=held["news"], status=status)


# --- the audit, and reading ---------------------------------------------------------------------------------------------


def scopes_text(by: Decider) -> str:
    """What a ``scopes`` column holds."""
    return json.dumps(list(by.scopes))


def add_audit(tx: Transaction, entry: AuditEntry) -> None:
    """Write an audit entry unless its id is there."""
    tx.add(
        audit,
        {
            "id": entry.id,
            "at": tx.now(),
            "type": entry.type,
            "outcome": entry.outcome.value,
            "run_id": entry.run_id,
            "workflow": entry.workflow,
            "reason": entry.reason,
            "decider": entry.by.user,
            "scopes": scopes_text(entry.by),
            "detail": entry.detail,
        },
    )


def list_audit(tx: Transaction, run_id: RunId) -> tuple[AuditEntry, ...]:
    """The audit of one run, oldest first."""
    rows = tx.all(select(audit).where(audit.c.run_id == run_id).order_by(audit.c.at, audit.c.id))
    return tuple(
        AuditEntry(
            id=row["id"],
            run_id=row["run_id"],
            workflow=row["workflow"],
            reason=row["reason"],
            outcome=AuditOutcome(row["outcome"]),
            by=_decider(row),
            detail=row["detail"],
            type=row["type"],
            at=row["at"],
        )
        for row in rows
    )


def list_signals(tx: Transaction, run_id: RunId) -> tuple[Signal, ...]:
    """The run's signals in the order in which they came."""
    rows = tx.all(select(signal).where(signal.c.run_id == run_id).order_by(signal.c.number))
    return tuple(
        Signal(
            run_id=row["run_id"],
            number=row["number"],
            name=row["name"],
            payload=row["payload"],
            key=row["idempotency_key"],
            sender=row["sender"],
            sent_at=row["sent_at"],
            taken_by=row["taken_by"],
        )
        for row in rows
    )


def list_decisions(tx: Transaction, run_id: RunId, gate: StepName | None) -> tuple[Decision, ...]:
    """The run's decisions, or those for one gate, in the order in which they came."""
    wanted = select(decision).where(decision.c.run_id == run_id)
    if gate is not None:
        wanted = wanted.where(decision.c.gate == gate)
    return tuple(
        Decision(
            run_id=row["run_id"],
            number=row["number"],
            gate=row["gate"],
            data=row["data"],
            by=_decider(row),
            decided_at=row["decided_at"],
            judged_at=row["judged_at"],
            refusal=row["refusal"],
        )
        for row in tx.all(wanted.order_by(decision.c.number))
    )


def _decider(row: Row) -> Decider:
    return Decider(row["decider"], tuple(json.loads(row["scopes"])))


def list_approvals(tx: Transaction, limit: int, after: GateKey | None) -> tuple[WaitingApproval, ...]:
    """Approvals that wait, the longest waiting first: a range of the index of gates."""
    wanted = (
        select(step, run.c.workflow, run.c.owner)
        .join_from(step, run, run.c.id == step.c.run_id)
        .where(
            step.c.gate_at.is_not(None),
            step.c.kind == StepKind.APPROVAL.value,
            step.c.status == StepStatus.SUSPENDED.value,
        )
    )
    key = (step.c.gate_at, step.c.run_id, step.c.name)
    if after is not None:
        wanted = wanted.where(tuple_(*key) > (after.since, after.run_id, after.step))
    return tuple(_approval(row) for row in tx.all(wanted.order_by(*key).limit(limit)))


def _approval(row: Row) -> WaitingApproval:
    issue = None if row["error"] is None else Failure.from_json(row["error"]).message
    return WaitingApproval(
        run_id=row["run_id"],
        workflow=row["workflow"],
        step=row["name"],
        reason=row["task"] or "",
        policy=Policy.from_json(row["options"]),
        owner=row["owner"],
        since=row["gate_at"],
        expires_at=row["due_at"],
        issue=issue,
    )
