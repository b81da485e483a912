"""Steps: one record per stage of life. The current attempt lives on the step's row; earlier attempts have rows of their own (design 6)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pikkuflow.domain.failure import Failure
from pikkuflow.domain.ids import ClaimId, FanId, RunId, StepName
from pikkuflow.domain.status import SETTLED_STEP, StepKind, StepStatus

__all__ = ["NUMBERS_A_NEWS", "Attempt", "NewStep", "Place", "Step", "attempt_seconds", "first_no"]

NUMBERS_A_NEWS: Final = 1 << 32


def attempt_seconds(timeout: float | None, heartbeat: float | None, worked: float = 0.0) -> float | None:
    """How long an attempt has from now until it is overdue, when it gives a sign of life now and has worked for ``worked`` seconds."""
    limits = [] if timeout is None else [timeout - worked]
    limits += [] if heartbeat is None else [heartbeat]
    return min(limits, default=None)


def first_no(news: int) -> int:
    """The first of the numbers that order what happens while a run's newest news is that.

    A pass that has seen ``news`` gives its own events the numbers after ``first_no(news)``, one by one. An outcome from elsewhere is
    ``first_no(news + 1)``: what a body does next can rest on it only once a pass has loaded that news. So the numbers cost no statement,
    and say what can rest on what, whatever the clocks say.
    """
    return news * NUMBERS_A_NEWS


class Place:
    """The text of a row's ``place``: where its step is worked. Decisions about a row use it, never today's routing (design 2, D1)."""

    QUEUE = "worker:"
    """Dispatched: any step worker; after a claim it is ``worker:<holder>``."""

    @staticmethod
    def in_pass(pass_id: str) -> str:
        """Worked in place by that pass."""
        return f"pass:{pass_id}"

    @staticmethod
    def worker(holder: str) -> str:
        """Claimed by a step worker."""
        return f"worker:{holder}"

    @staticmethod
    def child(run_id: str) -> str:
        """Worked by that child run."""
        return f"child:{run_id}"

    @staticmethod
    def is_queue(place: str) -> bool:
        """A message works this row (dispatched, claimed or not)."""
        return place.startswith("worker:")

    @staticmethod
    def is_child(place: str) -> bool:
        """A child run works this row."""
        return place.startswith("child:")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewStep:
    """A step about to get its row; what never changes afterwards.

    ``seq`` is the index of the durable call in the body's order, from 0. ``args`` is the codec's text of ``{"args": [...],
    "kwargs": {...}}``
    (None for sleeps). ``retry_delay`` is text: ``"exponential"`` or a number of seconds. ``options`` is JSON of the message options the
    dispatcher honours. ``lease_seconds`` is how long a claim lasts between renewals. ``queue`` is for show and for sweeps.
    """

    name: StepName
    seq: int
    kind: StepKind
    task: str | None = None
    args: str | None = None
    retries: int = 0
    retry_delay: str = "exponential"
    place: str
    queue: str | None = None
    options: str = "{}"
    lease_seconds: float = 60.0
    delay_seconds: float | None = None
    """``due_at`` counted from the write: a sleep's length, a dispatched step's countdown."""
    expires_seconds: float | None = None
    child_run_id: RunId | None = None
    fan_id: FanId | None = None
    from_step: StepName | None = None
    group: str | None = None
    undo_task: str | None = None
    """The task that undoes it (the workflow, for a child run); None: it is not undone. Recorded, so that an unwind asks no code."""
    begun_no: int = 0
    """Its place in the order of the run, see ``first_no``."""
    timeout_seconds: float | None = None
    """How long one attempt may take, from its claim."""
    heartbeat_seconds: float | None = None
    """How long one attempt may go without a heartbeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A stored step with its current attempt.

    ``is_due`` and ``is_lapsed`` were judged by the database's clock in the statement that read the row: ``due_at`` absent or
    reached; status
    running with ``lease_until`` in the past. ``due_in_seconds`` is how far ahead ``due_at`` was then (None without one).
    """

    run_id: RunId
    name: StepName
    seq: int
    kind: StepKind
    task: str | None
    args: str | None
    status: StepStatus
    result: str | None
    error: Failure | None
    attempt: int
    retries: int
    retry_delay: str
    place: str
    queue: str | None
    options: str
    claim_id: ClaimId | None
    lease_seconds: float
    lease_until: datetime | None
    due_at: datetime | None
    due_in_seconds: float | None
    is_due: bool
    is_lapsed: bool
    is_expired: bool
    """``expires_at`` (the signature's ``expires``) is in the past."""
    sent_at: datetime | None
    override: str | None
    """What a task's own ``retry(args=, kwargs=, queue=…)`` changed, for the current attempt only: JSON of ``args``,
    ``kwargs``, ``options``. Of a succeeded node of a graph: JSON of the ``branch`` that it chose and the ``state`` it kept."""
    child_run_id: RunId | None
    fan_id: FanId | None
    from_step: StepName | None
    group: str | None
    author: str | None
    expires_in_seconds: float | None = None
    """How far ahead ``expires_at`` was when the row was read, negative once it is past (None without one)."""
    undo_task: str | None = None
    begun_no: int = 0
    settled_no: int | None = None
    """When it began and settled, in the order of the run (``first_no``): what an unwind goes by. 0 and None before revision 0003."""
    timeout_seconds: float | None = None
    heartbeat_seconds: float | None = None
    """How long one attempt may take, and go without a heartbeat; a claimed row's ``due_at`` is then when the first of them is over."""
    details: str | None = None
    """What an attempt said last at a heartbeat, as the codec's text; it outlives the attempt."""
    created_at: datetime
    running_at: datetime | None
    scheduled_at: datetime | None
    settled_at: datetime | None

    @property
    def is_settled(self) -> bool:
        """It has its final outcome; ``failed`` always means exhausted (D2)."""
        return self.status in SETTLED_STEP

    @property
    def is_waiting(self) -> bool:
        """No worker has taken its current attempt."""
        return self.status in {StepStatus.PENDING, StepStatus.SCHEDULED}

    @property
    def is_overdue(self) -> bool:
        """A worker has it, and the time that its attempt may take is over."""
        return self.status is StepStatus.RUNNING and self.due_at is not None and self.is_due

    @property
    def is_silent(self) -> bool:
        """It is overdue, or will be, for want of a heartbeat: the time that its attempt may take is not over by then."""
        if self.heartbeat_seconds is None or self.due_at is None or self.running_at is None:
            return False
        limit = self.timeout_seconds
        return limit is None or self.due_at < self.running_at + timedelta(seconds=limit)

    @property
    def begun_at(self) -> datetime | None:
        """When its current attempt began: a sleep when the body asked for it, anything else when it was first worked."""
        return self.created_at if self.kind is StepKind.SLEEP else self.running_at

    @property
    def attempts_allowed(self) -> int:
        """Retries plus one, everywhere (D10)."""
        return self.retries + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An earlier attempt, copied from the step's row when the next one opened (I9)."""

    run_id: RunId
    step: StepName
    attempt: int
    status: StepStatus
    error: Failure | None
    result: str | None
    place: str
    created_at: datetime
    running_at: datetime | None
    scheduled_at: datetime | None
    settled_at: datetime | None

    @property
    def begun_at(self) -> datetime | None:
        """When it was first worked."""
        return self.running_at
