"""The rows that the memory store keeps, and what is true about them at a moment.

A row is mutable and never leaves the store; what leaves is a frozen record made under the lock. Columns beyond the records' own are those
that only the store reads: ``not_before``, ``news_at``, ``retried``, ``opened_at``, ``claim_holder``, send counts and next-send times.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Final

from pikkuflow.adapters.memory.gate_tables import GateTables
from pikkuflow.domain.act import RunRef, StepMessage
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.ids import ClaimId, FanId, Holder, PassId, RunId, StepName
from pikkuflow.domain.run import NewRun, ParentStep, Run
from pikkuflow.domain.status import SETTLED_RUN, SETTLED_STEP, RunStatus, StepKind, StepStatus
from pikkuflow.domain.step import Attempt, NewStep, Place, Step, attempt_seconds, first_no
from pikkuflow.domain.version import StoredVersion
from pikkuflow.ports import Clock

__all__ = ["RunRow", "StepRow", "Tables", "wait_after"]

_FIRST_DELAY: Final = timedelta(seconds=30)
_LONGEST_DELAY: Final = timedelta(minutes=10)


def wait_after(send_count: int) -> timedelta:
    """How long what was sent that often waits until it is sent again: 30 s, doubling, at most 10 min (D13)."""
    return min(_FIRST_DELAY * (1 << min(send_count, 10)), _LONGEST_DELAY)


@dataclass(slots=True, kw_only=True)
class RunRow:
    """One run."""

    id: RunId
    workflow: str
    version: str
    input: str
    inline: bool
    owner: str | None
    wire: str
    planned_steps: str | None
    deterministic: bool
    parent: ParentStep | None
    handover: str | None
    created_at: datetime
    updated_at: datetime
    news_at: datetime
    not_before: datetime | None
    due_at: datetime | None
    timeout_seconds: float | None = None
    deadline_at: datetime | None = None
    status: RunStatus = RunStatus.RUNNING
    output: str | None = None
    error: Failure | None = None
    code: str | None = None
    news: int = 1
    seen: int = 0
    pass_id: PassId | None = None
    pass_holder: Holder | None = None
    pass_until: datetime | None = None
    opened_at: datetime | None = None
    """When its pass opened."""
    retried: set[StepName] = field(default_factory=set)
    """Steps whose next attempt a worker opened while the pass was open."""
    lost: bool = False
    passes_lost: int = 0
    author: PassId | None = None
    handover_at: datetime | None = None
    delivered_at: datetime | None = None
    finished_at: datetime | None = None
    send_count: int = 0
    next_send_at: datetime | None = None

    @classmethod
    def of(cls, new: NewRun, now: datetime) -> RunRow:
        """A run that begins now."""
        start = now + timedelta(seconds=new.delay_seconds) if new.delay_seconds else None
        return cls(
            id=new.id,
            workflow=new.workflow,
            version=new.version,
            input=new.input,
            inline=new.inline,
            owner=new.owner,
            wire=new.wire,
            planned_steps=new.planned_steps,
            deterministic=new.deterministic,
            parent=new.parent,
            handover=new.handover,
            created_at=now,
            updated_at=now,
            news_at=now,
            not_before=start,
            due_at=start,
            timeout_seconds=new.timeout_seconds,
            deadline_at=_ahead(start or now, new.timeout_seconds),
        )

    @property
    def ref(self) -> RunRef:
        """What wakes it."""
        return RunRef(id=self.id, workflow=self.workflow)

    @property
    def is_settled(self) -> bool:
        """It has a final status."""
        return self.status in SETTLED_RUN

    @property
    def has_unseen_news(self) -> bool:
        """Something came that no pass has loaded."""
        return self.news > self.seen

    @property
    def outside_no(self) -> int:
        """The number of what comes from outside a pass now."""
        return first_no(self.news + 1)

    def is_held(self, now: datetime) -> bool:
        """A pass is live."""
        return self.pass_until is not None and self.pass_until > now

    def is_delayed(self, now: datetime) -> bool:
        """Its first pass may not open yet."""
        return self.not_before is not None and self.not_before > now

    def raise_news(self, now: datetime) -> bool:
        """Raise news (design 3.5). True: the caller publishes a wake-up, for there was none unseen and no live pass will see it."""
        if self.is_settled:
            return False
        was_seen = not self.has_unseen_news
        self.news += 1
        if was_seen:
            self.news_at = now
        self.updated_at = now
        return was_seen and not self.is_held(now)

    def record(self) -> Run:
        """The frozen record of this row."""
        return Run(**{name: getattr(self, name) for name in _RUN_FIELDS})


_RUN_FIELDS: Final = tuple(column.name for column in fields(Run))


@dataclass(slots=True, kw_only=True)
class StepRow:
    """One step with its current attempt, which came to be at ``opened_at``."""

    run_id: RunId
    name: StepName
    seq: int
    kind: StepKind
    task: str | None
    args: str | None
    status: StepStatus
    attempt: int
    retries: int
    retry_delay: str
    place: str
    queue: str | None
    options: str
    lease_seconds: float
    due_at: datetime | None
    expires_at: datetime | None
    child_run_id: RunId | None
    fan_id: FanId | None
    from_step: StepName | None
    group: str | None
    author: str
    created_at: datetime
    opened_at: datetime
    undo_task: str | None
    begun_no: int
    timeout_seconds: float | None = None
    heartbeat_seconds: float | None = None
    settled_no: int | None = None
    details: str | None = None
    result: str | None = None
    error: Failure | None = None
    claim_id: ClaimId | None = None
    claim_holder: Holder | None = None
    lease_until: datetime | None = None
    sent_at: datetime | None = None
    override: str | None = None
    running_at: datetime | None = None
    scheduled_at: datetime | None = None
    settled_at: datetime | None = None
    send_count: int = 0
    next_send_at: datetime | None = None

    @classmethod
    def of(cls, run_id: RunId, new: NewStep, status: StepStatus, author: str, now: datetime) -> StepRow:
        """A row that begins now, at its first attempt."""
        return cls(
            run_id=run_id,
            name=new.name,
            seq=new.seq,
            kind=new.kind,
            task=new.task,
            args=new.args,
            status=status,
            attempt=1,
            retries=new.retries,
            retry_delay=new.retry_delay,
            place=new.place,
            queue=new.queue,
            options=new.options,
            lease_seconds=new.lease_seconds,
            due_at=_ahead(now, new.delay_seconds),
            expires_at=_ahead(now, new.expires_seconds),
            child_run_id=new.child_run_id,
            fan_id=new.fan_id,
            from_step=new.from_step,
            group=new.group,
            author=author,
            created_at=now,
            opened_at=now,
            undo_task=new.undo_task,
            begun_no=new.begun_no,
            timeout_seconds=new.timeout_seconds,
            heartbeat_seconds=new.heartbeat_seconds,
        )

    @property
    def is_settled(self) -> bool:
        """It has its final outcome."""
        return self.status in SETTLED_STEP

    @property
    def is_exhausted(self) -> bool:
        """The current attempt is the last one."""
        return self.attempt > self.retries

    @property
    def is_waiting(self) -> bool:
        """No one works it and it has no outcome: pending, scheduled, or suspended at a gate."""
        return self.status in {StepStatus.PENDING, StepStatus.SCHEDULED, StepStatus.SUSPENDED}

    def is_due(self, now: datetime) -> bool:
        """``due_at`` is absent or reached."""
        return self.due_at is None or self.due_at <= now

    def is_expired(self, now: datetime) -> bool:
        """The signature's ``expires`` has passed."""
        return self.expires_at is not None and self.expires_at <= now

    def is_lapsed(self, now: datetime) -> bool:
        """Running with a lease in the past. No lease is live for ever (spec 5.1)."""
        return self.status is StepStatus.RUNNING and self.lease_until is not None and self.lease_until <= now

    def message(self) -> StepMessage:
        """What a message for the current attempt is made of."""
        return StepMessage(
            run_id=self.run_id,
            name=self.name,
            attempt=self.attempt,
            task=self.task or "",
            queue=self.queue,
            options=self.options,
            override=self.override,
        )

    def sign_of_life(self, now: datetime) -> None:
        """Whoever works it is alive: it is overdue when one of its two times is over, counted from here and from its claim."""
        worked = 0.0 if self.running_at is None else (now - self.running_at).total_seconds()
        left = attempt_seconds(self.timeout_seconds, self.heartbeat_seconds, worked)
        self.due_at = None if left is None else now + timedelta(seconds=left)

    def next_attempt(self, attempt: int, now: datetime) -> None:
        """Make the row show another attempt, with nothing of the one before. What it showed must have been copied."""
        self.attempt = attempt
        self.opened_at = now
        self.result = self.error = self.override = None
        self.claim_id = self.claim_holder = self.lease_until = None
        self.running_at = self.scheduled_at = self.settled_at = self.sent_at = self.due_at = None
        self.forget_sends()

    def wait_again(self, now: datetime) -> None:
        """Make a claimed row wait for a worker, due now, with the same attempt."""
        self.status = StepStatus.PENDING
        self.place = Place.QUEUE
        self.claim_id = self.claim_holder = self.lease_until = None
        self.running_at = self.sent_at = None
        self.due_at = now
        self.forget_sends()

    def return_message(self) -> None:
        """Make a sent row wait as if its message had never left."""
        self.status = StepStatus.PENDING
        self.scheduled_at = self.sent_at = None

    def settle(
        self, status: StepStatus, now: datetime, *, no: int, result: str | None = None, error: Failure | None = None
    ) -> None:
        """Give the row its final outcome; ``no`` is its place in the order of the run."""
        self.settled_no = no
        self.status = status
        self.result = result
        self.error = error
        self.settled_at = now
        self.lease_until = self.due_at = None

    def forget_sends(self) -> None:
        """It moved, so the next loss is a new one (D13)."""
        self.send_count = 0
        self.next_send_at = None

    def shown_attempt(self) -> Attempt:
        """The current attempt as a record of its own."""
        return Attempt(
            run_id=self.run_id,
            step=self.name,
            attempt=self.attempt,
            status=self.status,
            error=self.error,
            result=self.result,
            place=self.place,
            created_at=self.opened_at,
            running_at=self.running_at,
            scheduled_at=self.scheduled_at,
            settled_at=self.settled_at,
        )

    def record(self, now: datetime) -> Step:
        """The frozen record of this row, judged now."""
        return Step(
            **{name: getattr(self, name) for name in _STEP_FIELDS},
            due_in_seconds=None if self.due_at is None else (self.due_at - now).total_seconds(),
            is_due=self.is_due(now),
            is_lapsed=self.is_lapsed(now),
            is_expired=self.is_expired(now),
            expires_in_seconds=None if self.expires_at is None else (self.expires_at - now).total_seconds(),
        )


_JUDGED: Final = frozenset({"due_in_seconds", "is_due", "is_lapsed", "is_expired", "expires_in_seconds"})
_STEP_FIELDS: Final = tuple(column.name for column in fields(Step) if column.name not in _JUDGED)


@dataclass(slots=True, kw_only=True)
class Tables:
    """The whole database. Who holds ``lock`` is in a transaction; the clock is the database's.

    ``between_statements`` is called where SQL has two statements in one act, which others may come between: for the simulation.
    """

    clock: Clock
    lock: threading.RLock = field(default_factory=threading.RLock)
    between_statements: Callable[[], None] = lambda: None
    runs: dict[RunId, RunRow] = field(default_factory=dict)
    steps: dict[RunId, dict[StepName, StepRow]] = field(default_factory=dict)
    attempts: dict[RunId, dict[tuple[StepName, int], Attempt]] = field(default_factory=dict)
    fans: dict[RunId, dict[FanId, int]] = field(default_factory=dict)
    states: dict[RunId, dict[str, str]] = field(default_factory=dict)
    sweeps: dict[str, datetime] = field(default_factory=dict)
    versions: dict[tuple[str, str], StoredVersion] = field(default_factory=dict)
    gates: GateTables = field(default_factory=GateTables)

    def steps_of(self, run_id: RunId) -> dict[StepName, StepRow]:
        """The run's rows by name."""
        return self.steps.setdefault(run_id, {})

    def keep_attempt(self, attempt: Attempt) -> None:
        """Write an earlier attempt, unless it is there."""
        self.attempts.setdefault(attempt.run_id, {}).setdefault((attempt.step, attempt.attempt), attempt)

    def count_down(self, run_id: RunId, fan_id: FanId | None) -> bool:
        """One member of a fan has settled. True: none is open any more, or there is no counter."""
        fans = self.fans.get(run_id, {})
        if fan_id is None or fan_id not in fans:
            return True
        fans[fan_id] -= 1
        return fans[fan_id] <= 0

    def tell(self, run: RunRow, row: StepRow, now: datetime) -> bool:
        """A step settled outside a pass: raise news unless its fan is still open. True: the caller wakes the run."""
        if not self.count_down(run.id, row.fan_id):
            return False
        run.passes_lost = 0
        return run.raise_news(now)


def _ahead(now: datetime, seconds: float | None) -> datetime | None:
    return None if seconds is None else now + timedelta(seconds=seconds)
