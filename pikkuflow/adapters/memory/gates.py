"""Gates in memory: what waits for a person or for the world. The contract of each act is in ``pikkuflow.ports.gates``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from pikkuflow.adapters.memory.tables import RunRow, StepRow, Tables
from pikkuflow.domain.act import PassNews, PassRef, RunRef
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.gate import Policy, signal_timed_out
from pikkuflow.domain.gate_act import (
    AuditEntry,
    Decided,
    Decision,
    DecisionEnd,
    GateKey,
    GateReached,
    GateVerdict,
    NewDecision,
    NewSignal,
    Signal,
    SignalEnd,
    SignalSent,
    WaitingApproval,
)
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.status import GATE_CODES, OPEN_RUN, RunStatus, StepKind, StepStatus
from pikkuflow.domain.step import NewStep

__all__ = ["GateActs"]


class GateActs:
    """The acts of ``GateStore``."""

    _tables: Tables

    # --- a pass at a gate -------------------------------------------------------------------------------------------
    def reach_gate(self, ref: PassRef, step: NewStep) -> GateReached | None:
        """Insert the gate's row unless it is there; a signal gate takes its signal, or times out."""
        with self._tables.lock:
            run = self._held_run(ref)
            if run is None:
                return None
            if run.status not in OPEN_RUN:
                return GateReached(news=PassNews(news=run.news, status=run.status, written=False))
            now = self._tables.clock.now()
            rows = self._tables.steps_of(run.id)
            row = rows.get(step.name)
            if row is None:
                row = StepRow.of(run.id, step, StepStatus.SUSPENDED, ref.pass_id, now)
                rows[row.name] = row
            if row.kind is StepKind.SIGNAL and row.status is StepStatus.SUSPENDED:
                self._take_signal(row, now, step.begun_no)
                _go_on_if_opened(run, row)
            return GateReached(
                news=PassNews(news=run.news, status=run.status),
                row=row.record(now),
                decisions=tuple(one for one in self.list_decisions(run.id, row.name) if one.judged_at is None),
            )

    def _take_signal(self, row: StepRow, now: datetime, no: int) -> None:
        signals = self._tables.gates.signals.get(row.run_id, [])
        for at, signal in enumerate(signals):
            in_time = row.due_at is None or signal.sent_at <= row.due_at
            if signal.name == row.task and signal.taken_by is None and in_time:
                signals[at] = replace(signal, taken_by=row.name)
                _settle(row, StepStatus.SUCCEEDED, now, no=no, result=signal.payload)
                return
        if row.due_at is not None and row.due_at <= now:
            _settle(row, StepStatus.FAILED, now, no=no, error=signal_timed_out(row.task or ""))

    def settle_gate(self, ref: PassRef, verdict: GateVerdict) -> PassNews | None:
        """Store what a pass made of an approval's decisions."""
        with self._tables.lock:
            run = self._held_run(ref)
            if run is None:
                return None
            now = self._tables.clock.now()
            decisions = self._tables.gates.decisions.get(run.id, [])
            for judged in verdict.judged:
                one = decisions[judged.number - 1]
                if one.judged_at is None:
                    decisions[judged.number - 1] = replace(one, judged_at=now, refusal=judged.refusal)
            self._settle_row(run, verdict, now)
            for entry in verdict.audit:
                self._keep_audit(entry, now)
            return PassNews(news=run.news, status=run.status)

    def _settle_row(self, run: RunRow, verdict: GateVerdict, now: datetime) -> None:
        row = self._tables.steps_of(run.id).get(verdict.step)
        if row is None or row.status is not StepStatus.SUSPENDED:
            return
        if verdict.result is None:
            row.error = verdict.error
        else:
            _settle(row, StepStatus.SUCCEEDED, now, no=verdict.no, result=verdict.result)
            _go_on_if_opened(run, row)

    def _held_run(self, ref: PassRef) -> RunRow | None:
        run = self._tables.runs.get(ref.run_id)
        return run if run is not None and run.pass_id == ref.pass_id else None

    # --- what comes from outside ------------------------------------------------------------------------------------
    def resume_run(self, run_id: RunId, reason: str | None = None) -> RunRef | None:
        """Open suspensions, and move the run; None: there was nothing to resume."""
        with self._tables.lock:
            run = self._tables.runs.get(run_id)
            if run is None or run.status not in OPEN_RUN:
                return None
            waiting = [row for row in self._waiting(run_id, StepKind.SUSPEND) if reason in {None, row.task}]
            moves = run.status is RunStatus.SUSPENDED and (reason is None or run.code in GATE_CODES)
            if not waiting and (reason is not None or not moves):
                return None
            now = self._tables.clock.now()
            for row in waiting:
                _settle(row, StepStatus.SUCCEEDED, now, no=run.outside_no, result="null")
            if moves:
                _go_on(run)
                run.passes_lost = 0
            run.raise_news(now)
            return run.ref

    def send_signal(self, run_id: RunId, signal: NewSignal) -> SignalSent:
        """Store a signal, once by its id and by its key; the run hears of it when it waits for it."""
        with self._tables.lock:
            run = self._tables.runs.get(run_id)
            if run is None:
                return SignalSent(end=SignalEnd.MISSING)
            gates = self._tables.gates
            stored = gates.signals.setdefault(run_id, [])
            if (run_id, signal.id) in gates.authors:
                return SignalSent(end=SignalEnd.STORED, wake=self._wake_again(run))
            if run.is_settled:
                return SignalSent(end=SignalEnd.SETTLED)
            if signal.key is not None and any((one.name, one.key) == (signal.name, signal.key) for one in stored):
                return SignalSent(end=SignalEnd.KNOWN, wake=self._wake_again(run))
            now = self._tables.clock.now()
            gates.authors.add((run_id, signal.id))
            stored.append(
                Signal(
                    run_id=run_id,
                    number=len(stored) + 1,
                    name=signal.name,
                    payload=signal.payload,
                    key=signal.key,
                    sender=signal.sender,
                    sent_at=now,
                    taken_by=None,
                )
            )
            awaited = any(row.task == signal.name for row in self._waiting(run_id, StepKind.SIGNAL))
            return SignalSent(end=SignalEnd.STORED, wake=self._tell_gate(run, now) if awaited else None)

    def decide(self, run_id: RunId, decision: NewDecision, audit: AuditEntry | None = None) -> Decided:
        """Store a decision unless its gate is settled, over, or has one to be judged."""
        with self._tables.lock:
            run = self._tables.runs.get(run_id)
            if run is None:
                return Decided(end=DecisionEnd.MISSING)
            now = self._tables.clock.now()
            row = self._tables.steps_of(run_id).get(decision.gate)
            shown = None if row is None else row.record(now)
            if (run_id, decision.id) in self._tables.gates.authors:
                return Decided(end=DecisionEnd.STORED, step=shown, wake=self._wake_again(run))
            refusal = self._refusal(run, row, decision.gate, now)
            if refusal is not None:
                return Decided(end=refusal, step=shown)
            self._store_decision(run_id, decision, now)
            if audit is not None:
                self._keep_audit(audit, now)
            return Decided(end=DecisionEnd.STORED, step=shown, wake=None if row is None else self._tell_gate(run, now))

    def _refusal(self, run: RunRow, row: StepRow | None, gate: StepName, now: datetime) -> DecisionEnd | None:
        if row is not None and row.is_settled:
            return DecisionEnd.RESOLVED
        if run.status not in OPEN_RUN:
            return DecisionEnd.SETTLED
        if row is None:
            return None
        if row.due_at is not None and row.due_at <= now:
            return DecisionEnd.EXPIRED
        judging = any(one.judged_at is None for one in self.list_decisions(run.id, gate))
        return DecisionEnd.JUDGING if judging else None

    def _store_decision(self, run_id: RunId, decision: NewDecision, now: datetime) -> None:
        stored = self._tables.gates.decisions.setdefault(run_id, [])
        self._tables.gates.authors.add((run_id, decision.id))
        stored.append(
            Decision(
                run_id=run_id,
                number=len(stored) + 1,
                gate=decision.gate,
                data=decision.data,
                by=decision.by,
                decided_at=now,
                judged_at=None,
                refusal=None,
            )
        )

    def _tell_gate(self, run: RunRow, now: datetime) -> RunRef | None:
        if run.status is RunStatus.SUSPENDED and run.code in GATE_CODES:
            _go_on(run)
        return run.ref if run.raise_news(now) else None

    def _wake_again(self, run: RunRow) -> RunRef | None:
        """The answer of an act was lost: the run is woken if it still waits for that."""
        now = self._tables.clock.now()
        wants = run.has_unseen_news and not run.is_settled and not run.is_held(now)
        return run.ref if wants else None

    def _waiting(self, run_id: RunId, kind: StepKind) -> Iterable[StepRow]:
        rows = self._tables.steps_of(run_id).values()
        return [row for row in rows if row.kind is kind and row.status is StepStatus.SUSPENDED]

    # --- the audit, and reading -------------------------------------------------------------------------------------
    def add_audit(self, entry: AuditEntry) -> None:
        """Write an audit entry, once by its id."""
        with self._tables.lock:
            self._keep_audit(entry, self._tables.clock.now())

    def _keep_audit(self, entry: AuditEntry, now: datetime) -> None:
        self._tables.gates.audit.setdefault(entry.id, replace(entry, at=now))

    def list_audit(self, run_id: RunId) -> Sequence[AuditEntry]:
        """The audit of one run, oldest first."""
        with self._tables.lock:
            found = [
                (entry.at, entry.id, entry) for entry in self._tables.gates.audit.values() if entry.run_id == run_id
            ]
            return tuple(entry for *_, entry in sorted(found, key=lambda one: (str(one[0]), one[1])))

    def list_signals(self, run_id: RunId) -> Sequence[Signal]:
        """The run's signals in the order in which they came."""
        with self._tables.lock:
            return tuple(self._tables.gates.signals.get(run_id, ()))

    def list_decisions(self, run_id: RunId, gate: StepName | None = None) -> Sequence[Decision]:
        """The run's decisions, or those for one gate."""
        with self._tables.lock:
            return tuple(one for one in self._tables.gates.decisions.get(run_id, ()) if gate in {None, one.gate})

    def list_approvals(self, *, limit: int, after: GateKey | None = None) -> Sequence[WaitingApproval]:
        """Approvals that wait, the longest waiting first."""
        with self._tables.lock:
            waiting = [
                (row.created_at, row.run_id, row.name, row, run)
                for run in self._tables.runs.values()
                for row in self._waiting(run.id, StepKind.APPROVAL)
            ]
            waiting.sort(key=lambda one: one[:3])
            rest = [one for one in waiting if after is None or one[:3] > (after.since, after.run_id, after.step)]
            return tuple(_approval(row, run) for *_, row, run in rest[:limit])


def _approval(row: StepRow, run: RunRow) -> WaitingApproval:
    return WaitingApproval(
        run_id=run.id,
        workflow=run.workflow,
        step=row.name,
        reason=row.task or "",
        policy=Policy.from_json(row.options),
        owner=run.owner,
        since=row.created_at,
        expires_at=row.due_at,
        issue=None if row.error is None else row.error.message,
    )


def _go_on_if_opened(run: RunRow, row: StepRow) -> None:
    if row.is_settled and run.status is RunStatus.SUSPENDED:
        _go_on(run)


def _go_on(run: RunRow) -> None:
    run.status = RunStatus.RUNNING
    run.code = run.error = run.due_at = run.next_send_at = None
    run.send_count = 0


def _settle(
    row: StepRow, status: StepStatus, now: datetime, *, no: int, result: str | None = None, error: Failure | None = None
) -> None:
    row.settle(status, now, no=no, result=result, error=error)
    row.forget_sends()
