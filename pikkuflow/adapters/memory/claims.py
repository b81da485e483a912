"""Claims in memory: taking dispatched steps and settling them (design 3.6, spec 16.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from pikkuflow.adapters.memory.endings import end_waiting
from pikkuflow.adapters.memory.tables import RunRow, StepRow, Tables
from pikkuflow.domain import loss
from pikkuflow.domain.act import ClaimRefusal, ClaimRequest, Claims, Settlement, StepMessage, StepOutcome
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.ids import ClaimId, RunId, StepName
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus
from pikkuflow.domain.step import Place, Step

__all__ = ["ClaimActs"]

_FAILED_BY_CLAIM: Final = {"STEP_LEASE_EXPIRED": ClaimRefusal.EXHAUSTED, "STEP_EXPIRED": ClaimRefusal.EXPIRED}


class ClaimActs:
    """The acts of ``RunStore`` that concern dispatched steps. The contract of each is in ``pikkuflow.ports``."""

    _tables: Tables

    def claim_steps(self, request: ClaimRequest) -> Claims:
        """Claim each step, or say why not. A mismatch of any member refuses the message before anything is written."""
        with self._tables.lock:
            run = self._tables.runs.get(request.run_id)
            if run is None:
                return Claims(run=None, refused=tuple((name, ClaimRefusal.MISSING) for name, _ in request.steps))
            rows = self._tables.steps_of(run.id)
            strange = [name for name, _ in request.steps if name in rows and rows[name].task != request.task]
            if strange:
                return Claims(run=run.record(), refused=tuple((name, ClaimRefusal.MISMATCH) for name in strange))
            return self._claim_each(run, request)

    def _claim_each(self, run: RunRow, request: ClaimRequest) -> Claims:
        now = self._tables.clock.now()
        claimed: list[Step] = []
        refused: list[tuple[StepName, ClaimRefusal]] = []
        wake = False
        for name, attempt in request.steps:
            row = self._tables.steps_of(run.id).get(name)
            refusal = _refusal(run, row, attempt, request, now)
            if row is None or refusal is not None:
                refused.append((name, refusal or ClaimRefusal.MISSING))
                wake = self._note_refusal(run, row, refusal, request, now) or wake
            else:
                self._take(row, request, now)
                claimed.append(row.record(now))
        return Claims(run=run.record(), claimed=tuple(claimed), refused=tuple(refused), wake=wake)

    def _note_refusal(
        self, run: RunRow, row: StepRow | None, refusal: ClaimRefusal | None, request: ClaimRequest, now: datetime
    ) -> bool:
        if row is None or refusal not in {ClaimRefusal.EXHAUSTED, ClaimRefusal.EXPIRED}:
            return False
        if row.is_settled:
            return run.has_unseen_news and not run.is_held(now) and not run.is_settled
        row.author = request.claim_id
        row.settle(StepStatus.FAILED, now, no=run.outside_no, error=_refused_failure(row, refusal))
        return self._tables.tell(run, row, now)

    def _take(self, row: StepRow, request: ClaimRequest, now: datetime) -> None:
        if row.claim_id == request.claim_id and row.status is StepStatus.RUNNING:
            return
        if row.status is StepStatus.RUNNING:
            self._tables.keep_attempt(row.shown_attempt())
            row.next_attempt(row.attempt + 1, now)
        row.status = StepStatus.RUNNING
        row.claim_id = request.claim_id
        row.claim_holder = request.holder
        row.author = request.claim_id
        row.place = Place.worker(request.holder)
        row.lease_until = now + timedelta(seconds=row.lease_seconds)
        row.running_at = now
        row.sign_of_life(now)
        row.forget_sends()

    def settle_steps(self, run_id: RunId, outcomes: Sequence[StepOutcome]) -> Settlement:
        """Store the outcomes of claimed attempts, each fenced by attempt and claim id."""
        with self._tables.lock:
            now = self._tables.clock.now()
            run = self._tables.runs.get(run_id)
            if run is None:
                return Settlement(accepted=(False,) * len(outcomes), wake=False)
            settled = [self._settle(run, outcome, now) for outcome in outcomes]
            if run.is_settled:
                end_waiting(self._tables, run, now)
            return Settlement(
                accepted=tuple(accepted for accepted, _ in settled),
                wake=any(wake for _, wake in settled),
            )

    def give_back(
        self, run_id: RunId, claim_id: ClaimId, steps: Sequence[tuple[StepName, int]]
    ) -> tuple[StepMessage, ...]:
        """Let claimed steps that never began wait again, with the same attempt."""
        with self._tables.lock:
            run = self._tables.runs.get(run_id)
            if run is None:
                return ()
            rows, now = self._tables.steps_of(run.id), self._tables.clock.now()
            given = [rows[name] for name, attempt in steps if name in rows and _is_given(rows[name], attempt, claim_id)]
            for row in given:
                if row.status is StepStatus.RUNNING:
                    row.wait_again(now)
                    row.author = claim_id
                    run.retried.add(row.name)
            if run.is_settled:
                end_waiting(self._tables, run, now)
                return ()
            return tuple(row.message() for row in given)

    def _settle(self, run: RunRow, outcome: StepOutcome, now: datetime) -> tuple[bool, bool]:
        row = self._tables.steps_of(run.id).get(outcome.name)
        if row is None:
            return False, False
        if _landed_before(row, outcome):
            is_final = outcome.status is not StepStatus.PENDING
            return True, is_final and run.has_unseen_news and not run.is_held(now) and not run.is_settled
        is_owner = row.attempt == outcome.attempt and row.claim_id == outcome.claim_id
        if row.status is not StepStatus.RUNNING or not is_owner:
            return False, False
        row.author = outcome.claim_id
        if outcome.status is StepStatus.PENDING:
            self._try_again(row, outcome, now)
            run.retried.add(row.name)
            return True, False
        row.settle(outcome.status, now, no=run.outside_no, result=outcome.result, error=outcome.error)
        row.override = outcome.override
        return True, self._tables.tell(run, row, now)

    def _try_again(self, row: StepRow, outcome: StepOutcome, now: datetime) -> None:
        ended = replace(row.shown_attempt(), status=StepStatus.FAILED, error=outcome.error, settled_at=now)
        self._tables.keep_attempt(ended)
        row.next_attempt(row.attempt + 1, now)
        row.status = StepStatus.PENDING
        row.place = Place.QUEUE
        row.override = outcome.override
        row.due_at = now + timedelta(seconds=outcome.delay_seconds or 0.0)


def _refusal(
    run: RunRow, row: StepRow | None, attempt: int, request: ClaimRequest, now: datetime
) -> ClaimRefusal | None:
    """Why the row cannot be claimed; the order is the one in which the reasons of ``ClaimRefusal`` outrank each other."""
    if row is None:
        return ClaimRefusal.MISSING
    if row.is_settled:
        return _settled_refusal(row, request)
    if row.status is StepStatus.RUNNING and row.claim_id == request.claim_id:
        return None
    if row.attempt != attempt or not Place.is_queue(row.place):
        return ClaimRefusal.STALE
    if run.status is not _worked_in(row):
        return ClaimRefusal.STOPPED
    return _running_refusal(row, now) if row.status is StepStatus.RUNNING else _waiting_refusal(row, now)


def _worked_in(row: StepRow) -> RunStatus:
    """The status of a run whose row of that kind may be claimed (design 3.6)."""
    return RunStatus.COMPENSATING if row.kind is StepKind.COMPENSATION else RunStatus.RUNNING


def _settled_refusal(row: StepRow, request: ClaimRequest) -> ClaimRefusal:
    if row.author == request.claim_id and row.error is not None and row.error.code is not None:
        return _FAILED_BY_CLAIM.get(row.error.code, ClaimRefusal.SETTLED)
    return ClaimRefusal.SETTLED


def _running_refusal(row: StepRow, now: datetime) -> ClaimRefusal | None:
    if not row.is_lapsed(now):
        return ClaimRefusal.HELD
    return ClaimRefusal.EXHAUSTED if row.is_exhausted else None


def _waiting_refusal(row: StepRow, now: datetime) -> ClaimRefusal | None:
    if row.is_expired(now):
        return ClaimRefusal.EXPIRED
    return None if row.is_due(now) else ClaimRefusal.NOT_DUE


def _refused_failure(row: StepRow, refusal: ClaimRefusal) -> Failure:
    if refusal is ClaimRefusal.EXPIRED:
        return loss.message_expired(row.name)
    return loss.lease_expired(row.name, row.attempt)


def _is_given(row: StepRow, attempt: int, claim_id: ClaimId) -> bool:
    """The row is this claim's to give back, or it gave it back before."""
    if row.attempt != attempt:
        return False
    if row.status is StepStatus.RUNNING:
        return row.claim_id == claim_id
    return row.status is StepStatus.PENDING and row.author == claim_id


def _landed_before(row: StepRow, outcome: StepOutcome) -> bool:
    if outcome.status is StepStatus.PENDING:
        return row.attempt == outcome.attempt + 1 and row.author == outcome.claim_id
    return row.attempt == outcome.attempt and row.claim_id == outcome.claim_id and row.status is outcome.status
