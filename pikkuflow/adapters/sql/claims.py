"""Claims, for every database: taking dispatched steps and settling them (design 3.6, spec 16.2).

Lock order: the run, then its steps by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import select, update

from pikkuflow.adapters.sql.database import Transaction
from pikkuflow.adapters.sql.endings import end_waiting
from pikkuflow.adapters.sql.news import count_down, outside_no, raise_news, wants_wake
from pikkuflow.adapters.sql.passes import copied, keep_attempt
from pikkuflow.adapters.sql.rows import ahead, message_of, run_of, step_of, text_of
from pikkuflow.adapters.sql.tables import step
from pikkuflow.domain import loss
from pikkuflow.domain.act import ClaimRefusal, ClaimRequest, Claims, Settlement, StepMessage, StepOutcome
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.ids import ClaimId, RunId, StepName
from pikkuflow.domain.status import SETTLED_RUN, SETTLED_STEP, RunStatus, StepKind, StepStatus
from pikkuflow.domain.step import Place, Step, attempt_seconds

__all__ = ["claim_steps", "give_back", "settle_steps"]

Row = Mapping[str, Any]

_FAILED_BY_CLAIM: Final = {"STEP_LEASE_EXPIRED": ClaimRefusal.EXHAUSTED, "STEP_EXPIRED": ClaimRefusal.EXPIRED}


def claim_steps(tx: Transaction, request: ClaimRequest) -> Claims:
    """Claim each step, or say why not. A mismatch of any member refuses the message before anything is written."""
    names = [name for name, _ in request.steps]
    run_row = tx.lock_run(request.run_id)
    if run_row is None:
        return Claims(run=None, refused=tuple((name, ClaimRefusal.MISSING) for name in names))
    rows = _locked_steps(tx, request.run_id, names)
    strange = [name for name in names if name in rows and rows[name]["task"] != request.task]
    if strange:
        return Claims(run=run_of(run_row), refused=tuple((name, ClaimRefusal.MISMATCH) for name in strange))
    claimed: list[Step] = []
    refused: list[tuple[StepName, ClaimRefusal]] = []
    wake = False
    for name, attempt in request.steps:
        row = rows.get(name)
        refusal = _refusal(run_row, row, attempt, request, tx.now())
        if row is None or refusal is not None:
            refused.append((name, refusal or ClaimRefusal.MISSING))
            wake = _note_refusal(tx, run_row, row, refusal, request) or wake
        else:
            claimed.append(_take(tx, row, request))
    return Claims(run=run_of(run_row), claimed=tuple(claimed), refused=tuple(refused), wake=wake)


def _locked_steps(tx: Transaction, run_id: str, names: Sequence[StepName]) -> dict[StepName, Row]:
    wanted = select(step).where(step.c.run_id == run_id, step.c.name.in_(names)).order_by(step.c.name)
    return {row["name"]: row for row in tx.locked(wanted)}


def _refusal(run_row: Row, row: Row | None, attempt: int, request: ClaimRequest, now: datetime) -> ClaimRefusal | None:
    """Why the row cannot be claimed; the order is the one in which the reasons outrank each other."""
    if row is None:
        return ClaimRefusal.MISSING
    if row["status"] in SETTLED_STEP:
        return _settled_refusal(row, request)
    if row["status"] == StepStatus.RUNNING and row["claim_id"] == request.claim_id:
        return None
    if row["attempt"] != attempt or not Place.is_queue(row["place"]):
        return ClaimRefusal.STALE
    is_undo = row["kind"] == StepKind.COMPENSATION
    if run_row["status"] != (RunStatus.COMPENSATING if is_undo else RunStatus.RUNNING):
        return ClaimRefusal.STOPPED
    return _running_refusal(row, now) if row["status"] == StepStatus.RUNNING else _waiting_refusal(row, now)


def _settled_refusal(row: Row, request: ClaimRequest) -> ClaimRefusal:
    """Settled by this very claim, whose answer was lost, or before it."""
    if row["author"] == request.claim_id and row["error"] is not None:
        return _FAILED_BY_CLAIM.get(Failure.from_json(row["error"]).code or "", ClaimRefusal.SETTLED)
    return ClaimRefusal.SETTLED


def _running_refusal(row: Row, now: datetime) -> ClaimRefusal | None:
    if row["lease_until"] is None or row["lease_until"] > now:
        return ClaimRefusal.HELD
    return ClaimRefusal.EXHAUSTED if row["attempt"] > row["retries"] else None


def _waiting_refusal(row: Row, now: datetime) -> ClaimRefusal | None:
    if row["expires_at"] is not None and row["expires_at"] <= now:
        return ClaimRefusal.EXPIRED
    return ClaimRefusal.NOT_DUE if row["due_at"] is not None and row["due_at"] > now else None


def _note_refusal(
    tx: Transaction, run_row: Row, row: Row | None, refusal: ClaimRefusal | None, request: ClaimRequest
) -> bool:
    """Fail a step that is exhausted or expired, and tell its run. True: the run wants a wake-up."""
    if row is None or refusal not in {ClaimRefusal.EXHAUSTED, ClaimRefusal.EXPIRED}:
        return False
    if row["status"] in SETTLED_STEP:
        return wants_wake(run_row, tx.now())
    name = StepName(row["name"])
    is_expired = refusal is ClaimRefusal.EXPIRED
    failure = loss.message_expired(name) if is_expired else loss.lease_expired(name, row["attempt"])
    _settle_row(tx, row, StepStatus.FAILED, no=outside_no(run_row), author=request.claim_id, error=failure)
    return count_down(tx, row["run_id"], row["fan_id"]) and raise_news(tx, run_row)


def _take(tx: Transaction, row: Row, request: ClaimRequest) -> Step:
    """Set the row running under the claim; a lapsed one with its next attempt."""
    if row["status"] == StepStatus.RUNNING and row["claim_id"] == request.claim_id:
        return step_of(row, tx.now())
    now = tx.now()
    values: dict[str, Any] = {}
    if row["status"] == StepStatus.RUNNING:
        keep_attempt(tx, copied(row))
        values |= _next_attempt(row, now)
    values |= {
        "status": StepStatus.RUNNING.value,
        "claim_id": request.claim_id,
        "claim_holder": request.holder,
        "author": request.claim_id,
        "place": Place.worker(request.holder),
        "lease_until": ahead(now, row["lease_seconds"]),
        "running_at": now,
        "due_at": ahead(now, attempt_seconds(row["timeout_seconds"], row["heartbeat_seconds"])),
        "waiting_since": None,
        "send_count": 0,
        "next_send_at": None,
    }
    tx.do(update(step).where(*_is(row)).values(values))
    return step_of({**row, **values}, now)


def _next_attempt(row: Row, now: datetime) -> dict[str, Any]:
    cleared = ("result", "error", "override", "scheduled_at", "sent_at", "settled_at")
    return dict.fromkeys(cleared) | {"attempt": row["attempt"] + 1, "created_at": now}


def _is(row: Row) -> tuple[Any, Any]:
    return step.c.run_id == row["run_id"], step.c.name == row["name"]


def _settle_row(
    tx: Transaction,
    row: Row,
    status: StepStatus,
    *,
    no: int,
    author: str,
    result: str | None = None,
    error: Failure | None = None,
    **more: Any,
) -> None:
    """Give a dispatched row its final outcome."""
    over = {"settled_at": tx.now(), "settled_no": no, "lease_until": None, "due_at": None, "waiting_since": None}
    outcome = {"status": status.value, "result": result, "error": text_of(error), "author": author}
    tx.do(update(step).where(*_is(row)).values(**outcome, **over, **more))


def settle_steps(tx: Transaction, run_id: RunId, outcomes: Sequence[StepOutcome]) -> Settlement:
    """Store the outcomes of claimed attempts, each fenced by attempt and claim id."""
    run_row = tx.lock_run(run_id)
    if run_row is None:
        return Settlement(accepted=(False,) * len(outcomes), wake=False)
    rows = _locked_steps(tx, run_id, [outcome.name for outcome in outcomes])
    settled = [_settle(tx, run_row, rows.get(outcome.name), outcome) for outcome in outcomes]
    if run_row["status"] in SETTLED_RUN:
        end_waiting(tx, run_row)
    return Settlement(accepted=tuple(landed for landed, _ in settled), wake=any(wake for _, wake in settled))


def _settle(tx: Transaction, run_row: Row, row: Row | None, outcome: StepOutcome) -> tuple[bool, bool]:
    """Whether the outcome landed, and whether the run wants a wake-up."""
    if row is None:
        return False, False
    if _landed_before(row, outcome):
        return True, outcome.status is not StepStatus.PENDING and wants_wake(run_row, tx.now())
    is_owner = row["attempt"] == outcome.attempt and row["claim_id"] == outcome.claim_id
    if row["status"] != StepStatus.RUNNING or not is_owner:
        return False, False
    if outcome.status is StepStatus.PENDING:
        _try_again(tx, row, outcome)
        return True, False
    no, author = outside_no(run_row), outcome.claim_id
    said = {"result": outcome.result, "override": outcome.override}
    _settle_row(tx, row, outcome.status, no=no, author=author, error=outcome.error, **said)
    return True, count_down(tx, row["run_id"], row["fan_id"]) and raise_news(tx, run_row)


def _landed_before(row: Row, outcome: StepOutcome) -> bool:
    if outcome.status is StepStatus.PENDING:
        return bool(row["attempt"] == outcome.attempt + 1 and row["author"] == outcome.claim_id)
    is_same = row["attempt"] == outcome.attempt and row["claim_id"] == outcome.claim_id
    return bool(is_same and row["status"] == outcome.status)


def _try_again(tx: Transaction, row: Row, outcome: StepOutcome) -> None:
    """Keep the attempt that failed and open the next one, due later (D2)."""
    now = tx.now()
    keep_attempt(
        tx,
        copied(row) | {"status": StepStatus.FAILED.value, "error": text_of(outcome.error), "settled_at": now},
    )
    due_at = ahead(now, outcome.delay_seconds or 0.0)
    waiting = {"status": StepStatus.PENDING.value, "place": Place.QUEUE, "due_at": due_at, "waiting_since": due_at}
    nobody = dict.fromkeys(("claim_id", "claim_holder", "lease_until", "running_at"))
    fresh = {"override": outcome.override, "author": outcome.claim_id, "send_count": 0, "next_send_at": None}
    tx.do(update(step).where(*_is(row)).values(_next_attempt(row, now) | waiting | nobody | fresh))


def give_back(
    tx: Transaction, run_id: RunId, claim_id: ClaimId, steps: Sequence[tuple[StepName, int]]
) -> tuple[StepMessage, ...]:
    """Let claimed steps that never began wait again, with the same attempt."""
    run_row = tx.lock_run(run_id)
    if run_row is None:
        return ()
    rows = _locked_steps(tx, run_id, [name for name, _ in steps])
    given = [rows[name] for name, attempt in steps if name in rows and _is_given(rows[name], attempt, claim_id)]
    running = [row["name"] for row in given if row["status"] == StepStatus.RUNNING]
    if running:
        now = tx.now()
        nobody = dict.fromkeys(("claim_id", "claim_holder", "lease_until", "running_at", "sent_at", "next_send_at"))
        waiting = {"status": StepStatus.PENDING.value, "place": Place.QUEUE, "due_at": now, "waiting_since": now}
        mine = (step.c.run_id == run_id) & step.c.name.in_(running)
        tx.do(update(step).where(mine).values(**nobody, **waiting, author=claim_id, send_count=0))
    if run_row["status"] in SETTLED_RUN:
        end_waiting(tx, run_row)
        return ()
    return tuple(message_of(row) for row in given)


def _is_given(row: Row, attempt: int, claim_id: ClaimId) -> bool:
    """The row is this claim's to give back, or it gave it back before."""
    if row["attempt"] != attempt:
        return False
    if row["status"] == StepStatus.RUNNING:
        return bool(row["claim_id"] == claim_id)
    return bool(row["status"] == StepStatus.PENDING and row["author"] == claim_id)
