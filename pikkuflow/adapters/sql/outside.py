"""What comes to a run from outside, for every database: resumes, signals and decisions (see ``ports.gates``).

Each locks the run's row first, so it comes before or after the pass that reaches the gate, never beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Table, func, insert, select, update

from pikkuflow.adapters.sql.database import Transaction
from pikkuflow.adapters.sql.gates import add_audit, go_on, opened, scopes_text
from pikkuflow.adapters.sql.news import outside_no, raise_news, wants_wake
from pikkuflow.adapters.sql.rows import ref_of, step_of
from pikkuflow.adapters.sql.tables import decision, run, signal, step
from pikkuflow.domain.act import RunRef
from pikkuflow.domain.gate_act import AuditEntry, Decided, DecisionEnd, NewDecision, NewSignal, SignalEnd, SignalSent
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import GATE_CODES, OPEN_RUN, SETTLED_RUN, SETTLED_STEP, RunStatus, StepKind, StepStatus

__all__ = ["decide", "resume_run", "send_signal"]

Row = Mapping[str, Any]


# --- resume -------------------------------------------------------------------------------------------------------------


def resume_run(tx: Transaction, run_id: RunId, reason: str | None, author: str) -> RunRef | None:
    """Open suspensions, and move the run. A row with this ``author`` was resumed by us, and the answer was lost."""
    row = tx.lock_run(run_id)
    if row is None or row["status"] not in OPEN_RUN:
        return None
    if row["author"] == author:
        return ref_of(row)
    waiting = _waiting(run_id, StepKind.SUSPEND)
    if reason is not None:
        waiting &= step.c.task == reason
    is_suspended = row["status"] == RunStatus.SUSPENDED
    moves = is_suspended and (reason is None or row["code"] in GATE_CODES)
    found = tx.first(select(step.c.name).where(waiting).limit(1)) is not None
    if not found and (reason is not None or not moves):
        return None
    if found:
        tx.do(update(step).where(waiting).values(opened(tx.now(), outside_no(row), "null")))
    if moves:
        go_on(tx, row, passes_lost=0)
    tx.do(update(run).where(run.c.id == run_id).values(author=author))
    raise_news(tx, row)
    return ref_of(row)


def _waiting(run_id: RunId, kind: StepKind) -> Any:
    return (step.c.run_id == run_id) & (step.c.kind == kind.value) & (step.c.status == StepStatus.SUSPENDED.value)


def _tell(tx: Transaction, row: Row) -> RunRef | None:
    """Something came that the run waits for. The run, when the caller wakes it."""
    if row["status"] == RunStatus.SUSPENDED and row["code"] in GATE_CODES:
        go_on(tx, row)
    return ref_of(row) if raise_news(tx, row) else None


def _told_before(tx: Transaction, row: Row) -> RunRef | None:
    """The answer was lost: the run is woken if nobody has seen the news."""
    return ref_of(row) if wants_wake(row, tx.now()) else None


def _next_number(tx: Transaction, table: Table, run_id: RunId) -> int:
    last = tx.first(select(func.max(table.c.number).label("last")).where(table.c.run_id == run_id))
    return 1 + ((last and last["last"]) or 0)


# --- signals ------------------------------------------------------------------------------------------------------------


def send_signal(tx: Transaction, run_id: RunId, new: NewSignal) -> SignalSent:
    """Store a signal, once by its id and by its key; the run hears of it when it waits for it."""
    row = tx.lock_run(run_id)
    if row is None:
        return SignalSent(end=SignalEnd.MISSING)
    known = _known(tx, run_id, new)
    if known is SignalEnd.STORED:
        return SignalSent(end=known, wake=_told_before(tx, row))
    if row["status"] in SETTLED_RUN:
        return SignalSent(end=SignalEnd.SETTLED)
    if known is not None:
        return SignalSent(end=known, wake=_told_before(tx, row))
    tx.do(
        insert(signal).values(
            run_id=run_id,
            number=_next_number(tx, signal, run_id),
            name=new.name,
            payload=new.payload,
            idempotency_key=new.key,
            sender=new.sender,
            sent_at=tx.now(),
            taken_by=None,
            author=new.id,
        )
    )
    awaited = _waiting(run_id, StepKind.SIGNAL) & (step.c.task == new.name)
    waits = tx.first(select(step.c.name).where(awaited).limit(1)) is not None
    return SignalSent(end=SignalEnd.STORED, wake=_tell(tx, row) if waits else None)


def _known(tx: Transaction, run_id: RunId, new: NewSignal) -> SignalEnd | None:
    same = (signal.c.run_id == run_id) & (signal.c.name == new.name)
    if tx.first(select(signal.c.number).where(same, signal.c.author == new.id).limit(1)) is not None:
        return SignalEnd.STORED
    if new.key is None:
        return None
    keyed = tx.first(select(signal.c.number).where(same, signal.c.idempotency_key == new.key).limit(1))
    return None if keyed is None else SignalEnd.KNOWN


# --- decisions ----------------------------------------------------------------------------------------------------------


def decide(tx: Transaction, run_id: RunId, new: NewDecision, entry: AuditEntry | None) -> Decided:
    """Store a decision unless its gate is settled, over, or has one to be judged."""
    row = tx.lock_run(run_id)
    if row is None:
        return Decided(end=DecisionEnd.MISSING)
    gate = tx.first(select(step).where(step.c.run_id == run_id, step.c.name == new.gate))
    shown = None if gate is None else step_of(gate, tx.now())
    same = (decision.c.run_id == run_id) & (decision.c.gate == new.gate)
    if tx.first(select(decision.c.number).where(same, decision.c.author == new.id).limit(1)) is not None:
        return Decided(end=DecisionEnd.STORED, step=shown, wake=_told_before(tx, row))
    refusal = _refusal(tx, row, gate, new)
    if refusal is not None:
        return Decided(end=refusal, step=shown)
    tx.do(
        insert(decision).values(
            run_id=run_id,
            number=_next_number(tx, decision, run_id),
            gate=new.gate,
            data=new.data,
            decider=new.by.user,
            scopes=scopes_text(new.by),
            decided_at=tx.now(),
            author=new.id,
        )
    )
    if entry is not None:
        add_audit(tx, entry)
    return Decided(end=DecisionEnd.STORED, step=shown, wake=None if gate is None else _tell(tx, row))


def _refusal(tx: Transaction, row: Row, gate: Row | None, new: NewDecision) -> DecisionEnd | None:
    if gate is not None and gate["status"] in SETTLED_STEP:
        return DecisionEnd.RESOLVED
    if row["status"] not in OPEN_RUN:
        return DecisionEnd.SETTLED
    if gate is None:
        return None
    if gate["due_at"] is not None and gate["due_at"] <= tx.now():
        return DecisionEnd.EXPIRED
    same = (decision.c.run_id == row["id"]) & (decision.c.gate == new.gate)
    judging = tx.first(select(decision.c.number).where(same, decision.c.judged_at.is_(None)).limit(1))
    return None if judging is None else DecisionEnd.JUDGING
