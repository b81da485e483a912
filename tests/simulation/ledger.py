"""What really happened, and the invariants of spec 16.6 that are judged act by act.

The ledger looks at the rows themselves after every act, and remembers them as they were after the one before. It trusts no guard: who held
what is read from the rows, whose work it is from the processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pikkuflow.adapters.memory.tables import RunRow, StepRow, Tables
from pikkuflow.domain.act import (
    Claims,
    Closed,
    Closing,
    Expired,
    PassNews,
    PassRef,
    Renewed,
    Settlement,
    StepMessage,
    StepWrite,
    Swept,
)
from pikkuflow.domain.history import History
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.run import Run
from pikkuflow.domain.status import SETTLED_STEP, StepStatus
from pikkuflow.domain.step import NewStep, Place, Step
from pikkuflow.domain.transitions import STEP_TRANSITIONS
from tests.simulation.limits import Limits
from tests.simulation.stage import Stage
from tests.simulation.stops import Stops, ends_unstarted, outcome_of

__all__ = ["Execution", "Ledger", "Violation"]


class Violation(AssertionError):
    """An invariant does not hold. ``invariant`` is its short name: a shrunk schedule must break the same one."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant


@dataclass(slots=True)
class Execution:
    """One execution of a step."""

    run_id: RunId
    step: str
    attempt: int
    holder: str
    at: float
    is_owner: bool
    """Its pass or claim was live when it began."""
    place: str
    ended: bool = False
    until: float | None = None


@dataclass(slots=True)
class _Seen:
    """A run's rows as they were after the latest act."""

    pass_id: str | None = None
    pass_holder: str | None = None
    pass_until: datetime | None = None
    author: str | None = None
    news: int = 0
    seen: int = 0
    claims: dict[str, tuple[str | None, datetime | None, str | None, int]] = field(default_factory=dict)
    steps: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    statuses: dict[str, StepStatus] = field(default_factory=dict)


class Ledger:
    """One schedule's. ``executions`` are the effects; ``together`` says what is begun together, by workflow and step."""

    def __init__(self, stage: Stage, tables: Tables, together: Mapping[tuple[str, str], str] | None = None) -> None:
        self._stage = stage
        self._tables = tables
        self._seen: dict[RunId, _Seen] = {}
        self.executions: list[Execution] = []
        self.starts: dict[tuple[str, str, int], str] = {}
        """Attempts whose start or outcome was accepted: they must be in the history."""
        self.deliveries: dict[RunId, int] = {}
        """How often each run's outcome was handed on."""
        self._planned: dict[tuple[str, str], tuple[Any, ...]] = {}
        self.limits = Limits(stage, tables, self._broken)
        self.stops = Stops(tables, self._broken, together or {}, self.limits)
        self._unmarked: dict[RunId, int] = {}
        """How many executions there were at a run's latest outcome in place: it is not marked lost for those before."""
        self._checks: dict[str, Callable[[Any, Any], None]] = {
            "open_pass": self._opened,
            "record": self._written,
            "record_all": self._all_written,
            "give_back": self._given_back,
            "insert_steps": self._written,
            "start_child": self._written,
            "close_pass": self._written,
            "unwind_child": self._written,
            "cancel_run": self.stops.cancelled,
            "get_step": self._read_again,
            "claim_steps": self._claimed,
            "settle_steps": self._settled,
            "renew_holders": self._renewed,
            "expire_holder": self._expired,
            "expire_node": self._expired,
            "sweep_stalled": self._swept,
            "sweep_undispatched": self._swept,
            "sweep_scheduled": self._swept_due,
            "overdue_runs": self._swept_due,
        }

    def is_loss_possible(self, unworked: tuple[str, str, int] | None) -> bool:
        """Whether somebody can have lost an attempt: also an ``unworked`` one of a stopped run, whose repeated start was refused."""
        stage, in_doubt = self._stage, unworked in self._stage.starts_in_doubt
        return in_doubt or stage.has_deaths or stage.was_late or stage.was_given_up or stage.were_leases_lost

    def _broken(self, invariant: str, detail: str) -> Violation:
        """The violation, which ends the schedule even when the code under test catches it."""
        violation = Violation(invariant, detail)
        self._stage.scheduler.failure = self._stage.scheduler.failure or violation
        return violation

    # --- executions -------------------------------------------------------------------------------------------------
    def begins(self, run_id: RunId, step: str, attempt: int) -> Execution:
        """A step's work begins in the process at hand."""
        stage, process = self._stage, self._stage.process
        row = self._tables.steps.get(run_id, {}).get(step)  # type: ignore[call-overload]
        run = self._tables.runs[run_id]
        now = self._tables.clock.now()
        is_claimed = row is not None and Place.is_queue(row.place) and process.claims.get(run_id) is not None
        if is_claimed:
            claim = process.claims[run_id]
            is_owner = row.claim_id == claim and row.lease_until is not None and row.lease_until > now
            place = f"claim {claim}"
        else:
            is_owner = run.pass_id == process.passes.get(run_id) and run.is_held(now)
            place = f"pass {process.passes.get(run_id)}"
        done = Execution(run_id, step, attempt, process.holder, stage.now, is_owner, place)
        self._check_execution(done, row)
        self.executions.append(done)
        return done

    def _check_execution(self, done: Execution, row: StepRow | None) -> None:
        what = f"{done.run_id} {done.step} attempt {done.attempt} by {done.holder} ({done.place})"
        if not done.is_owner:
            is_ended = (done.run_id, done.step, done.attempt) in self.limits.ended
            if not (self._stage.was_late or is_ended):
                raise self._broken("I2 only an owner works", what)
            return
        if row is not None and row.is_settled and not self.stops.is_unseen(row):
            raise self._broken("I4 a settled step is not worked again", what)
        if row is not None and done.attempt != row.attempt:
            raise self._broken("I2 the attempt of the row is worked", f"{what}, the row is at {row.attempt}")
        key = (done.run_id, done.step, done.attempt)
        unmarked = self._unmarked.get(done.run_id, 0)
        before = [
            other for other in self.executions if (other.run_id, other.step, other.attempt) == key and other.is_owner
        ]
        is_marked = any(other in before for other in self.executions[unmarked:])
        if any(other.place == done.place for other in before):
            raise self._broken("I2 an attempt is worked once", what)
        # Design 2 charges a lost pass to the first step without a row, unless an outcome in place cleared the mark before it. A pass that
        # gave its outcome up, the store being away, was closed all the same: it is not lost.
        is_charged = row is None and is_marked and not self._stage.was_given_up
        if before and (is_charged or self.starts.get(key, done.place) != done.place):
            raise self._broken("I3 a lost attempt is counted", what)

    def count(self, run_id: str, step: str) -> int:
        """How often a step was begun."""
        return sum(done.run_id == run_id and done.step == step for done in self.executions)

    def delivered(self, run: Run) -> None:
        """A run's outcome is handed on."""
        row, told = self._tables.runs[run.id], (run.status, run.output, run.error)
        if not row.is_settled or told != (row.status, row.output, row.error):
            raise self._broken("what is handed on is the outcome", f"{run.id}: {told}, the row is {row.status}")
        self.deliveries[run.id] = self.deliveries.get(run.id, 0) + 1

    # --- acts -------------------------------------------------------------------------------------------------------
    def after(self, op: str, args: tuple[Any, ...], answer: Any) -> None:
        """An act has happened: judge it by what was before, and remember what is now."""
        self.limits.after(op, args, answer)
        check = self._checks.get(op)
        if check is not None:
            check(args, answer)
        if op in _READS:
            return
        self.look()

    def look(self) -> None:
        """Remember what is now: after an act, and between two statements of one."""
        for run in self._tables.runs.values():
            self._remember(run)

    def _opened(self, _args: tuple[Any, ...], answer: Any) -> None:
        if not isinstance(answer, History):
            return
        run = answer.run
        self._stage.process.passes[run.id] = answer.pass_id
        self.stops.opened(answer)
        self._check_news(answer)

    def _read_again(self, args: tuple[Any, ...], answer: Step | None) -> None:
        self.stops.read_again(self._stage.process.passes.get(args[0]), answer)

    def _check_news(self, history: History) -> None:
        """What an opening gives as seen must be in what it gives: no outcome may be younger than the steps and older than the news."""
        rows = self._tables.steps.get(history.run.id, {})
        given = {step.name: step for step in history.steps}
        run = self._tables.runs[history.run.id]
        if run.news > run.seen:
            return
        for name, row in rows.items():
            told = given.get(name)
            if (
                row.is_settled
                and (told is None or not told.is_settled)
                and Place.is_queue(row.place)
                and row.fan_id is None
            ):
                raise self._broken("news that was seen is in the history", f"{history.run.id} {name}")

    def _written(self, args: tuple[Any, ...], answer: PassNews | Closed | None) -> None:
        ref = args[0]
        if answer is None:
            return
        before = self._seen.get(ref.run_id, _Seen())
        is_repeat = before.pass_id is None and before.author == ref.pass_id and isinstance(answer, Closed)
        if before.pass_id != ref.pass_id and not is_repeat:
            raise self._broken(
                "I5 no write by a superseded pass", f"{ref.pass_id} on {ref.run_id}, held by {before.pass_id}"
            )
        if len(args) > 1 and isinstance(answer, PassNews) and answer.written:
            self._plans(ref.run_id, args[1])
        if isinstance(args[1], StepWrite) and isinstance(answer, PassNews) and answer.written:
            self._recorded(ref, args[1])
        for write in args[1].outcomes if isinstance(args[1], Closing) else ():
            self._plans(ref.run_id, write)
            self._recorded(ref, write)

    def _recorded(self, ref: PassRef, write: StepWrite) -> None:
        if write.status is StepStatus.RUNNING:
            self.stops.began(ref.run_id, write.step.name, write.step.kind)
        else:
            self._unmarked[ref.run_id] = len(self.executions)
        if write.status is not StepStatus.PENDING:
            self.starts.setdefault((ref.run_id, write.step.name, write.attempt), f"pass {ref.pass_id}")

    def _all_written(self, args: tuple[Any, ...], answers: Sequence[PassNews | None]) -> None:
        for (ref, write), answer in zip(args[0], answers, strict=True):
            self._written((ref, write), answer)

    def _plans(self, run_id: RunId, write: Any) -> None:
        """I8: whoever reaches a step plans the same one. Where it is worked may change with what the pass has to do besides."""
        steps = [write.step] if isinstance(write, StepWrite) else [write] if isinstance(write, NewStep) else write
        for step in steps:
            plan = (step.seq, step.kind, step.task, step.args, step.retries, step.retry_delay, step.from_step)
            known = self._planned.setdefault((run_id, step.name), plan)
            if plan != known:
                raise self._broken("I8 the same rows give the same plan", f"{run_id} {step.name}: {known}, then {plan}")

    def _given_back(self, args: tuple[Any, ...], answer: Sequence[StepMessage]) -> None:
        """I4, I3: what is given back without a charge never began."""
        run_id, claim_id, _ = args
        for message in answer:
            key = (run_id, message.name, message.attempt, f"claim {claim_id}")
            if any((done.run_id, done.step, done.attempt, done.place) == key for done in self.executions):
                raise self._broken("I3 what began is not given back", f"{run_id} {message.name}@{message.attempt}")

    def _claimed(self, args: tuple[Any, ...], answer: Claims) -> None:
        request = args[0]
        now = self._tables.clock.now()
        for step in answer.claimed:
            claim, until, _, _ = self._seen[request.run_id].claims.get(step.name, (None, None, None, 0))
            if claim not in {None, request.claim_id} and _is_after(until, now):
                raise self._broken("I2 one live claim", f"{request.claim_id} took {step.name} which {claim} held")
            if claim != request.claim_id:
                self.stops.began(request.run_id, step.name, step.kind)
            self.starts.setdefault((request.run_id, step.name, step.attempt), f"claim {request.claim_id}")
        if answer.claimed:
            self._stage.process.claims[request.run_id] = request.claim_id

    def _settled(self, args: tuple[Any, ...], answer: Settlement) -> None:
        run_id, outcomes = args
        for outcome, accepted in zip(outcomes, answer.accepted, strict=True):
            row = self._tables.steps_of(run_id)[outcome.name]
            claim, _, _, attempt = self._seen[run_id].claims.get(outcome.name, (None, None, None, 0))
            is_repeat = row.author == outcome.claim_id
            if accepted and (claim, attempt) != (outcome.claim_id, outcome.attempt) and not is_repeat:
                raise self._broken(
                    "I5 no write by a superseded claim", f"{outcome.claim_id} on {run_id} {outcome.name}"
                )

    def _renewed(self, args: tuple[Any, ...], _answer: Renewed) -> None:
        alive = set(args[0])
        for run in self._tables.runs.values():
            before = self._seen.get(run.id, _Seen())
            if run.pass_until != before.pass_until and run.pass_holder not in alive:
                raise self._broken(
                    "only the owner renews", f"the pass of {run.pass_holder} on {run.id} by {sorted(alive)}"
                )
            for row in self._tables.steps_of(run.id).values():
                until = before.claims.get(row.name, (None, None, None, 0))[1]
                if row.lease_until != until and row.claim_holder not in alive:
                    raise self._broken("only the owner renews", f"the claim of {row.claim_holder} on {row.name}")

    def _expired(self, args: tuple[Any, ...], _answer: Expired) -> None:
        if self._stage.was_late or self._stage.were_leases_lost:
            return
        for process in self._stage.processes():
            is_meant = process.holder == args[0] or process.node.uuid == args[0]
            if is_meant and not process.is_dead:
                raise self._broken("only the dead are taken over", f"{args[0]} lives")

    def _swept(self, _args: tuple[Any, ...], answer: Swept) -> None:
        for ref in answer.runs:
            before = self._seen[ref.id]
            if before.pass_id is None and before.news == before.seen:
                raise self._broken("I7 the backstop is not needed", ref.id)
            self._check_needed(ref.id)
        for message in answer.steps:
            self._check_needed(message.run_id)

    def _swept_due(self, _args: tuple[Any, ...], answer: Swept | Sequence[Run]) -> None:
        found: Sequence[Any] = [*answer.runs, *answer.steps] if isinstance(answer, Swept) else answer
        for one in found:
            self._check_needed(one.run_id if isinstance(one, StepMessage) else one.id)

    def _check_needed(self, run_id: RunId) -> None:
        stage = self._stage
        is_coming = stage.is_handled(run_id) or self.stops.is_told(run_id, stage.is_worked)
        if stage.is_disturbed or is_coming or self._is_inline(run_id):
            return
        raise self._broken("messages suffice where nothing fails", f"a sweep found {run_id}")

    def _is_inline(self, run_id: RunId) -> bool:
        """A client works the run, or one above it."""
        at: RunId | None = run_id
        while at is not None:
            if any(at in client.handles for client in self._stage.clients):
                return True
            at = self.stops.begun_by(at)
        return False

    # --- remembering ------------------------------------------------------------------------------------------------
    def _remember(self, run: RunRow) -> None:
        before = self._seen.get(run.id)
        if before is None:
            before = self._seen[run.id] = _Seen()
        self.stops.look(run)
        if run.pass_id != before.pass_id:
            is_live = run.pass_id is not None and _is_after(before.pass_until, self._tables.clock.now())
            if is_live:
                raise self._broken("I1 one live pass", f"{run.pass_id} opened {run.id} which {before.pass_id} held")
        before.pass_id, before.pass_holder, before.pass_until = run.pass_id, run.pass_holder, run.pass_until
        before.author, before.news, before.seen = run.author, run.news, run.seen
        for row in self._tables.steps_of(run.id).values():
            self._remember_step(run, before, row)

    def _remember_step(self, run: RunRow, before: _Seen, row: StepRow) -> None:
        name = row.name
        before.claims[name] = (row.claim_id, row.lease_until, row.claim_holder, row.attempt)
        if row.attempt > row.retries + 1 and row.kind != "sleep":
            raise self._broken("I3 attempts are at most retries + 1", f"{row.run_id} {name} attempt {row.attempt}")
        if name not in before.statuses:
            self.stops.appeared(run, row)
        known = before.steps.get(name)
        if known is None:
            if row.status in SETTLED_STEP:
                before.steps[name] = outcome_of(row)
                self.stops.settled(row, run.pass_id)
        elif known != outcome_of(row):
            raise self._broken("I4 one recorded outcome", f"{row.run_id} {name}: {known} -> {outcome_of(row)}")
        was, before.statuses[name] = before.statuses.get(name, row.status), row.status
        if (
            was is not row.status
            and row.status not in STEP_TRANSITIONS[was].values()
            and not ends_unstarted(run, was, row)
        ):
            raise self._broken("a step moves as its table says", f"{row.run_id} {name}: {was} -> {row.status}")


_READS = frozenset(
    {
        "beat", "find_runs", "get_run", "get_state", "get_step", "list_attempts", "list_runs", "list_steps", "note_sweep",
        "overdue_runs", "sweep_ages", "undelivered_runs", "upcoming",
    }
)  # fmt: skip


def _is_after(at: datetime | None, now: datetime) -> bool:
    return at is not None and at > now
