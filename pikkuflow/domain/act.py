"""The arguments and answers of the store's durable acts: plain records, so that every adapter refuses and accepts the same things.

Words used throughout: an act is *fenced* when its pass or claim no longer owns what it writes; the run is *stopped* when its status is
neither running nor suspended; *news* counts what the run has not seen yet (design 3.5).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pikkuflow.domain.failure import Failure
from pikkuflow.domain.ids import ClaimId, Holder, PassId, RunId, StepName
from pikkuflow.domain.run import Run
from pikkuflow.domain.status import OPEN_RUN, RunStatus, StepStatus
from pikkuflow.domain.step import NewStep, Step

__all__ = [
    "ClaimRefusal",
    "ClaimRequest",
    "Claims",
    "Closed",
    "Closing",
    "DueRun",
    "EndedAttempt",
    "Expired",
    "FoundRun",
    "PassNews",
    "PassOpening",
    "PassRef",
    "PassRefusal",
    "Renewed",
    "RunRef",
    "Settlement",
    "StepMessage",
    "StepOutcome",
    "StepWrite",
    "SweepRequest",
    "Swept",
    "Upcoming",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRef:
    """Enough of a run to wake it: the workflow decides the queue."""

    id: RunId
    workflow: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRun:
    """A run that is not settled. While a live pass holds it: for how many seconds it has, and how many are left unless it is renewed."""

    ref: RunRef
    held_seconds: float | None = None
    left_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMessage:
    """What a step message is made of. ``options`` is the row's JSON of routed message options, so a resend needs no arguments.

    ``override`` is the row's own, as stored: what it says about options is the engine's to merge before the message leaves.
    """

    run_id: RunId
    name: StepName
    attempt: int
    task: str
    queue: str | None
    options: str
    override: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRef:
    """Who writes: every write of a pass locks the run's row and requires ``pass_id`` to be its own (design 3.3)."""

    run_id: RunId
    pass_id: PassId


@dataclass(frozen=True, slots=True, kw_only=True)
class PassOpening:
    """A pass asks for its run. ``passes_lost_limit`` unclosed passes in a row without a new outcome suspend the run (PASS_LOST).

    ``lightly``: the answer need not wait for the disk. A database server that dies may forget such an opening, which fences its pass, so
    nothing is worked in the pass before a write of it was answered that did wait.
    """

    run_id: RunId
    pass_id: PassId
    holder: Holder
    lease_seconds: float
    passes_lost_limit: int
    lightly: bool = False


class PassRefusal(StrEnum):
    """Why no pass opened; nothing was written, but for LOST which suspends the run."""

    MISSING = "missing"
    SETTLED = "settled"
    HELD = "held"
    """Another pass is live by the database's clock."""
    NOT_DUE = "not_due"
    """Its start is delayed (``delay_seconds`` of the insert) and not reached."""
    LOST = "lost"
    """``passes_lost_limit`` is reached: the run is (now) suspended with code PASS_LOST until it is resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedAttempt:
    """An attempt that ended and never had, or no longer has, the step's row: it goes to the attempts table."""

    attempt: int
    status: StepStatus
    error: Failure | None
    started_seconds_ago: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWrite:
    """One in-place row as the pass wants it after this write.

    The row may be absent (it is inserted), or show ``attempt`` or ``expects`` with a non-final status (it is updated; when its attempt
    changes, what it showed is copied to the attempts table first); a dispatched row must show ``expects`` when that is given, since
    ``attempt`` may be another's by then. A row that shows ``attempt``, ``status`` and this pass as author is this
    very write, done before (design 3.4). Anything else is refused.

    ``status``: RUNNING records a start; SUCCEEDED and FAILED settle (``failed`` means exhausted); PENDING waits for the next
    attempt, with
    ``delay_seconds`` until it is due, and ``ended`` carries the attempt that just failed. ``started_seconds_ago`` stamps
    ``running_at``.
    ``state`` is a key and value of the run's state, written along.
    """

    step: NewStep
    attempt: int
    status: StepStatus
    expects: int | None = None
    result: str | None = None
    error: Failure | None = None
    delay_seconds: float | None = None
    override: str | None = None
    ended: EndedAttempt | None = None
    started_seconds_ago: float = 0.0
    state: tuple[str, str] | None = None
    no: int = 0
    """The place of this write in the order of the run; a settled row keeps it (``first_no``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassNews:
    """What every write of a pass brings back without a read. ``written`` is False when a start or insert met a stopped run."""

    news: int
    status: RunStatus
    written: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """The last write of a pass: it releases the run and returns whether there is news the pass did not see.

    ``status`` None leaves the status as it is. RUNNING and SUSPENDED park: ``code`` and ``error`` say why it is suspended (both cleared
    by RUNNING), ``due_seconds`` sets the run's ``due_at`` (None clears it). A settled status is written only over an open one;
    it cancels
    rows that never started, and settles the parent's step in the same transaction, child locked before parent (D9). ``sent``
    are the steps whose message left: they become ``scheduled``. ``returned`` are those whose message came to a worker that does not know
    their task: what is ``scheduled`` of them is ``pending`` again, as if never sent (D5). ``raise_news`` is for a pass that yields.
    ``broke_off``: the pass ended by something that is not the run's, which counts in ``passes_lost`` like an unclosed one, without its
    mark. The mark and the count are cleared by an in-place outcome, never by closing. ``outcomes`` are in-place outcomes recorded
    first, in the same transaction; when one of them is refused, the pass is released with news and without a status, so that another
    meets what is there. ``expected`` are rows that the pass inserted lightly: when one of them is not there, the database's server died
    and forgot it, and news is raised for the pass that inserts it again.

    COMPENSATING stops an open run to undo it: rows end as with a settled status, the fans' counters go (every outcome is news from
    here on), and news is raised for the pass that undoes. ``unwinds`` closes a pass of an unwind: it is written over compensating
    only, keeps error and code, and tells the parent (design 3.7, D23).
    """

    status: RunStatus | None = None
    output: str | None = None
    error: Failure | None = None
    code: str | None = None
    due_seconds: float | None = None
    sent: tuple[StepName, ...] = ()
    returned: tuple[StepName, ...] = ()
    raise_news: bool = False
    broke_off: bool = False
    outcomes: tuple[StepWrite, ...] = ()
    expected: tuple[StepName, ...] = ()
    unwinds: bool = False

    def moves(self, status: RunStatus) -> bool:
        """Whether its status is written over that one."""
        if self.status is None:
            return False
        return status is RunStatus.COMPENSATING if self.unwinds else status in OPEN_RUN


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """What a closing found.

    ``wake``: news moved past what the pass had seen and the run is not settled. ``status`` is as it now is. ``parent`` is set when the
    parent's step was settled and the parent wants a wake-up.
    """

    wake: bool
    status: RunStatus
    parent: RunRef | None = None


class ClaimRefusal(StrEnum):
    """Why a step was not claimed. Only EXHAUSTED and EXPIRED wrote something: the step failed."""

    MISSING = "missing"
    SETTLED = "settled"
    HELD = "held"
    STALE = "stale"
    """The message names another attempt than the row's, or the row is not a dispatched one."""
    NOT_DUE = "not_due"
    STOPPED = "stopped"
    """The run is not running."""
    MISMATCH = "mismatch"
    """The message names another task than the row (409); nothing was written."""
    EXHAUSTED = "exhausted"
    """Its claim lapsed on the last attempt: it failed with STEP_LEASE_EXPIRED."""
    EXPIRED = "expired"
    """The signature's ``expires`` has passed: it failed without running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """A step message asks for its steps (several when they travel in a chunk): names with the attempt that the message carries."""

    run_id: RunId
    steps: tuple[tuple[StepName, int], ...]
    task: str
    claim_id: ClaimId
    holder: Holder


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What became of a claim request.

    ``claimed`` rows are running under the claim, as they are after it (a lapsed one with its next attempt). ``wake``: a refusal settled a
    step and the run wants a wake-up. ``run`` is None when there is no such run.
    """

    run: Run | None
    claimed: tuple[Step, ...] = ()
    refused: tuple[tuple[StepName, ClaimRefusal], ...] = ()
    wake: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """The end of one claimed attempt.

    SUCCEEDED with ``result``; FAILED with ``error`` (exhausted); PENDING with ``error``: attempts are left, the same statement
    writes the
    next attempt, due in ``delay_seconds``, and copies this one to the attempts table (D2). ``override`` is stored with each.
    """

    name: StepName
    attempt: int
    claim_id: ClaimId
    status: StepStatus
    result: str | None = None
    error: Failure | None = None
    delay_seconds: float | None = None
    override: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What became of outcomes.

    ``accepted`` says for each whether it landed (or had landed before); False: superseded, nothing stored. ``wake``: the run's news rose
    from seen to unseen and no live pass holds it, so the caller publishes a wake-up (design 3.5).
    """

    accepted: tuple[bool, ...]
    wake: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed:
    """What is still held after a renewal by holder: open passes, and claims as (run, step)."""

    passes: tuple[PassRef, ...] = ()
    claims: tuple[tuple[RunId, StepName], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """What a dead holder had: runs to wake, and step messages to send again with the same attempt (design 3.8)."""

    runs: tuple[RunRef, ...] = ()
    steps: tuple[StepMessage, ...] = ()
    passes: tuple[PassRef, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest:
    """One page of a sweep.

    ``older_than_seconds`` is the threshold of its kind. ``limit`` rows at most; ``after`` is the last key of the page before (D12).
    Each row driven has its send count and next-send time raised by the sweep's own update: 30 s, doubling, at most 10 min (D13).
    """

    older_than_seconds: float
    limit: int
    after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a page found: runs to wake and messages to send; ``last`` is the key to go on after, None at the end.

    ``forgotten`` are those of ``runs`` that only the backstop found, and not for the second time since their last pass.
    """

    runs: tuple[RunRef, ...] = ()
    steps: tuple[StepMessage, ...] = ()
    forgotten: tuple[RunId, ...] = ()
    last: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRun:
    """A run, or one of its rows, has a time that comes in so many seconds."""

    run_id: RunId
    in_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Upcoming:
    """One page of times that are coming; a run may be in it more than once. ``last`` is the key to go on after, None at the end."""

    due: tuple[DueRun, ...] = ()
    last: str | None = None
