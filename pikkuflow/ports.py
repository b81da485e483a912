"""The ports of the engine: Protocols whose docstrings are the contract. Adapters translate; they never decide.

Time: every ``*_seconds`` is a number of seconds. "Now" inside a store or lease service is that service's own clock, never the caller's
(spec 6.1). Idempotence: each act of the store may be sent twice when the answer of the first was lost; the second finds its own author id
and answers as the first did (design 3.4). Outages: a store waits for a database that is away, with jittered retries, for as long as its
process has patience, then raises ``StoreUnavailable``; an outage never turns into a failed step (design 3.4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from pikkuflow.domain.act import (
    ClaimRequest,
    Claims,
    Closed,
    Closing,
    Expired,
    PassNews,
    PassOpening,
    PassRef,
    PassRefusal,
    Renewed,
    RunRef,
    Settlement,
    StepMessage,
    StepOutcome,
    StepWrite,
    SweepRequest,
    Swept,
)
from pikkuflow.domain.command import StepCall
from pikkuflow.domain.history import History
from pikkuflow.domain.ids import Holder, RunId, StepName
from pikkuflow.domain.run import InsertedRun, NewRun, Run, RunFilter, RunKey
from pikkuflow.domain.step import Attempt, NewStep, Step

__all__ = [
    "Attempted",
    "AttemptEnd",
    "Clock",
    "Codec",
    "Deliverer",
    "Dispatcher",
    "Hints",
    "Ids",
    "Lease",
    "Leases",
    "Observer",
    "PassEnded",
    "PassOutcome",
    "Route",
    "RunStore",
    "StepLost",
    "StepRunner",
    "StepWork",
    "Watch",
]


class RunStore(Protocol):
    """The truth about runs and steps. Every act is one guarded transaction (one statement where the database can do that).

    Lock order everywhere: child run before parent run; several runs in the order of their ids; a run before its steps.
    """

    # --- runs -------------------------------------------------------------------------------------------------------
    def insert_runs(self, runs: Sequence[NewRun]) -> tuple[InsertedRun, ...]:
        """Insert each run unless its id is there; answers in the order given.

        A new run is ``running`` with ``news = 1, seen = 0``; a delayed one also has ``due_at`` and a time before which no pass opens.
        An existing run is never touched (spec 9.2, T-run-id: the same id twice is the same run).
        """
        ...

    def open_pass(self, opening: PassOpening) -> History | PassRefusal:
        """Take the run, lock first and read second: two statements in one round trip (design 3.2).

        Opens only if no other pass is live by the database's clock. Sets ``pass_id``, ``pass_holder``, ``pass_until`` and
        ``seen = news``. A pass that was there unclosed leaves the run marked ``lost`` and counts in ``passes_lost``. Opening again with the
        same ``pass_id`` is the same opening. The status is left as it is.
        """
        ...

    def record(self, ref: PassRef, write: StepWrite) -> PassNews | None:
        """Write one in-place row (see ``StepWrite``), fenced by the pass. An outcome (SUCCEEDED, FAILED, PENDING) is recorded whatever the
        run's status and clears ``lost`` and ``passes_lost``; a start (RUNNING) only while the run is open. None: fenced, nothing written.
        """
        ...

    def insert_steps(self, ref: PassRef, steps: Sequence[NewStep], *, joined: bool = False) -> PassNews | None:
        """Insert pending (sleeps: scheduled) rows, all with one multi-row insert, if the run is open. Rows that are there by this pass count
        as done. ``joined`` sets the counter of their ``fan_id`` to the number of rows, in the same transaction. None: fenced.
        """
        ...

    def start_child(self, ref: PassRef, step: NewStep, child: NewRun) -> PassNews | None:
        """Insert the child run and the parent's row (running, ``child:<run>``) in one transaction; idempotent by step (D1). None: fenced."""
        ...

    def close_pass(self, ref: PassRef, closing: Closing) -> Closed | None:
        """The last write of a pass (see ``Closing``). None: fenced, nothing written."""
        ...

    def resume_run(self, run_id: RunId) -> RunRef | None:
        """``suspended -> running`` under a guard: clears code, error, ``due_at`` and ``passes_lost``, raises news (D4). None: it was not suspended."""
        ...

    def ask_pass(self, run_id: RunId, in_seconds: float) -> None:
        """Have the scheduled sweep look at the run in that time: ``due_at`` becomes the earlier of the two. No news is raised."""
        ...

    # --- dispatched steps -------------------------------------------------------------------------------------------
    def claim_steps(self, request: ClaimRequest) -> Claims:
        """Claim each step by one conditional update (design 3.6): the same attempt, ``due_at`` reached, the run running; a live claim
        excludes others; a lapsed one is taken as a new attempt opened in ``running``, or, exhausted, failed with STEP_LEASE_EXPIRED and
        told to the run. The table is spec 16.2. The lease lasts the row's ``lease_seconds``.
        """
        ...

    def settle_steps(self, run_id: RunId, outcomes: Sequence[StepOutcome]) -> Settlement:
        """Store the outcomes of claimed attempts, each fenced by attempt and claim id.

        News rises when a settled step has no fan, or its fan's counter reaches zero (taken down on a locked row in the same transaction).
        PENDING raises none. A failure settles its member like a success.
        """
        ...

    def expire_holder(self, holder: Holder) -> Expired:
        """Expire at once what a dead process held, compared by holder (design 3.9): its passes' ``pass_until`` and claims' ``lease_until``."""
        ...

    def expire_node(self, node: str) -> Expired:
        """As ``expire_holder`` for every holder ``<node>:<pid>`` of a node uuid."""
        ...

    def renew_holders(self, holders: Sequence[Holder], run_lease_seconds: float) -> Renewed:
        """Extend what live processes hold: passes by ``run_lease_seconds``, claims by their rows' ``lease_seconds``. What lapsed meanwhile but
        was not taken is extended too."""
        ...

    # --- sweeps -----------------------------------------------------------------------------------------------------
    def sweep_stalled(self, request: SweepRequest) -> Swept:
        """Non-terminal runs (suspended and compensating too) with unseen news older than the threshold, or with a lapsed pass, or, as a
        backstop, running with no pass, claim, unsent row, due row or live child and untouched for 5 minutes (design 3.8)."""
        ...

    def sweep_undispatched(self, request: SweepRequest) -> Swept:
        """Dispatched rows of open runs that were not sent, or sent and not picked up for the threshold, and running ones whose claim lapsed:
        as messages with the row's attempt. Rows not yet due are left."""
        ...

    def sweep_scheduled(self, request: SweepRequest) -> Swept:
        """Everything with a ``due_at`` more than the threshold in the past: sleeps, in-place retries and runs as runs to wake, dispatched
        retries as messages."""
        ...

    def note_sweep(self, kind: str) -> None:
        """Remember that a sweep of that kind ran now."""
        ...

    def sweep_ages(self) -> Mapping[str, float]:
        """Seconds since each kind of sweep last ran; a kind that never ran is absent."""
        ...

    def undelivered_runs(self, limit: int) -> tuple[Run, ...]:
        """Settled runs with a ``handover`` that are not marked delivered."""
        ...

    def mark_delivered(self, run_id: RunId) -> None:
        """The run's outcome was handed on (design 7)."""
        ...

    # --- reading ----------------------------------------------------------------------------------------------------
    def get_run(self, run_id: RunId) -> Run | None:
        """The run, or None."""
        ...

    def list_runs(self, where: RunFilter, *, limit: int, after: RunKey | None = None) -> tuple[Run, ...]:
        """Newest first, by (created_at, id); ``after`` is the key of the last run of the page before."""
        ...

    def list_steps(self, run_id: RunId) -> tuple[Step, ...]:
        """The run's steps by ``seq``."""
        ...

    def get_step(self, run_id: RunId, name: StepName) -> Step | None:
        """One step, or None."""
        ...

    def list_attempts(self, run_id: RunId) -> tuple[Attempt, ...]:
        """Earlier attempts of the run's steps, ordered by step and attempt."""
        ...

    def get_state(self, run_id: RunId) -> Mapping[str, str]:
        """The run's key/value state as stored texts."""
        ...

    def delete_run(self, run_id: RunId) -> bool:
        """Remove a settled run with its steps, attempts, fans and state; False when there is none or it is not settled."""
        ...

    # --- life -------------------------------------------------------------------------------------------------------
    def check_schema(self) -> None:
        """Raise ``SchemaOutdated`` (with the command to run) unless the schema is this code's."""
        ...

    def close(self) -> None:
        """Give back connections; the store can be used again afterwards."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A timed right. ``token`` starts at 1 and rises by one whenever the key changes hands, also after a release (spec 6.1)."""

    key: str
    holder: str
    token: int
    expires_at: float
    """Epoch seconds by the service's clock."""


class Leases(Protocol):
    """The lease service (spec 6.1, D19). Never waits. Raises ``ConnectionError`` (or a subclass) when the service does not answer."""

    def acquire(self, key: str, holder: str, ttl_seconds: float) -> Lease | None:
        """Take a free or lapsed key, or extend one's own (same token). None: someone else holds it."""
        ...

    def refresh(self, lease: Lease, ttl_seconds: float) -> Lease | None:
        """Extend by compare (holder and token). None: the lease is no longer this one."""
        ...

    def release(self, lease: Lease) -> bool:
        """Free by compare; the token counter stays. False: it was not this lease's any more."""
        ...

    def get(self, key: str) -> Lease | None:
        """The live lease, or None."""
        ...

    def expire(self, key: str, holder_prefix: str) -> bool:
        """Free the key if its holder is the prefix or begins with it as whole ``:`` parts (take-over, design 3.9). False: it does not.

        ``node:12`` and ``node:`` mean ``node:12`` and ``node:12:x``, and ``node:12`` never means ``node:123``.
        """
        ...


class Hints(Protocol):
    """Best-effort speed: nothing depends on a hint. No method raises on an outage; it logs once and returns the empty answer."""

    def leave(self, run_id: RunId, in_seconds: float) -> None:
        """Ask that the run be woken in that time; one hint a run, the earlier one stays (design 4)."""
        ...

    def pop_due(self, limit: int) -> tuple[RunId, ...]:
        """Take the runs whose time has come, by the service's clock; each is given to one caller."""
        ...

    def announce(self, run_id: RunId) -> None:
        """Tell waiters that the run has moved (settled, suspended)."""
        ...

    def watching(self, run_id: RunId) -> AbstractContextManager[Watch]:
        """Listen from the moment of entering until leaving.

        Nothing is missed in this order: enter, read the store, ``wait``, read again, and so on. A run that is settled already needs no
        watch: read once before entering.
        """
        ...

    def wait(self, run_id: RunId, seconds: float) -> bool:
        """One ``watching(run_id)`` with one ``wait(seconds)``: for a caller who looks again anyway, and may be late by that much."""
        ...


class Watch(Protocol):
    """An open ear for one run (``Hints.watching``)."""

    def wait(self, seconds: float) -> bool:
        """Wait at most that long for an announcement made since entering or since the last True. True: there was one, or may have been.

        A service without announcements, or one that is away, waits 0.5 s at most and answers False: look again.
        """
        ...


class Dispatcher(Protocol):
    """Hands messages to the broker. Messages carry ids only (design 7). Raises ``DispatchError`` when the broker does not take them."""

    def wake(self, runs: Sequence[RunRef]) -> None:
        """Ask for a pass over each run: few messages, grouped by the queue of the workflow."""
        ...

    def send_steps(self, messages: Sequence[StepMessage], *, chunk: int = 1) -> None:
        """Send step messages, pipelined; ``chunk`` members of the same task and route travel in one message."""
        ...


class Clock(Protocol):
    """The process's own time, for waits and budgets; never for what is stored."""

    def now(self) -> datetime:
        """Aware wall-clock time."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait (a test's clock moves instead)."""
        ...


class Ids(Protocol):
    """Randomness: ids and jitter."""

    def new_id(self) -> str:
        """A fresh UUID-like text."""
        ...

    def jitter(self) -> float:
        """A number from 0 to 1."""
        ...


class Codec(Protocol):
    """Payloads to JSON text and back (design 6)."""

    def encode(self, value: Any, *, what: str) -> str:
        """Text of the value; ``what`` names it in errors (``result of step 'x'``). Raises ``PayloadError`` when it cannot be stored as it is
        (lock object, set, NaN) or is larger than the limit."""
        ...

    def decode(self, text: str) -> Any:
        """The value of a text that ``encode`` made."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where a new step's message would go, and whether it must leave the pass.

    ``leaves`` is the reason to leave (``"queue"``: routed to a queue other than the workflow's own; ``"limit"``: a time limit of its own;
    ``"unknown"``: the task is known by name only), or None. ``options`` is JSON of routed message options.
    ``args`` and ``kwargs`` are the call's, checked (``typing``, ``pydantic=True``) and dumped.
    """

    leaves: str | None
    queue: str | None
    options: str
    lease_seconds: float
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    delay_seconds: float | None = None
    expires_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """One attempt about to be worked, in place or claimed."""

    run_id: RunId
    step: StepName
    workflow: str
    owner: str | None
    task: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    attempt: int
    attempts_allowed: int
    options: Mapping[str, Any]
    wire: str = "{}"
    from_step: StepName | None = None
    no_retry_on: tuple[type[BaseException], ...] = ()


class AttemptEnd(StrEnum):
    """How an attempt ended, before retries are decided."""

    SUCCEEDED = "succeeded"
    RAISED = "raised"
    """It may be tried again while attempts are left."""
    GAVE_UP = "gave_up"
    """The task's own ``max_retries`` are spent, or ``no_retry_on`` matched: final whatever attempts remain."""
    IGNORED = "ignored"
    """``Ignore`` or ``Reject(requeue=False)``: final, ``StepIgnored``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    """What a task did. ``delay_seconds`` and ``override`` are what the task itself asked for by ``retry(countdown=…, args=…)``."""

    end: AttemptEnd
    value: Any = None
    error: BaseException | None = None
    delay_seconds: float | None = None
    override: Mapping[str, Any] | None = None


class StepRunner(Protocol):
    """Runs users' tasks under a step request (recipes.md 1). Publishes nothing, stores nothing."""

    def route(self, call: StepCall, workflow: str) -> Route:
        """Check the arguments and route a new step.

        Raises ``TypeError`` or the task's own validation error when the arguments do not fit; ``TaskNotFound`` when the task is not registered
        here and its message could not be routed either.
        """
        ...

    def is_known(self, task: str) -> bool:
        """The task is registered on this worker."""
        ...

    def run(self, work: StepWork, commit: Callable[[Attempted], bool]) -> None:
        """Run the task; call ``commit`` once with what it did, between the body and the success/retry/failure hooks, as Celery does.

        ``commit`` answers whether the attempt was the last (no retry follows), which decides the hooks: ``on_failure`` once at the end,
        ``on_retry`` for every attempt that will be tried again. Hooks and signals after the commit cannot change the outcome.
        ``SystemExit`` and other BaseExceptions pass through without a commit. What ``commit`` raises passes through.
        Raises ``TaskNotFound`` before anything was run.
        """
        ...


class Deliverer(Protocol):
    """Hands a settled run's outcome on to Celery: result backend, canvas (design 7; at least once)."""

    def wants(self, run: Run) -> bool:
        """There is something to hand on: a ``handover``, or a result backend that keeps results."""
        ...

    def deliver(self, run: Run) -> None:
        """Hand it on; may be called again for the same run. Raises whatever the backend or broker raises; a sweep repeats it."""
        ...


class PassOutcome(StrEnum):
    """How a pass ended, for observers (D31)."""

    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PassEnded:
    """One per pass."""

    run_id: RunId
    workflow: str
    outcome: PassOutcome
    steps_worked: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLost:
    """An attempt lost its worker or pass (spec 5.1 warnings). ``exhausted``: no attempt is left."""

    run_id: RunId
    step: StepName
    attempt: int
    exhausted: bool


class Observer(Protocol):
    """Told what happened; whatever it raises is logged and changes nothing (I12)."""

    def pass_ended(self, event: PassEnded) -> None:
        """A pass ended."""
        ...

    def step_lost(self, event: StepLost) -> None:
        """An attempt was lost and is worked again, or was the last."""
        ...

    def warn(self, message: str, *, run_id: RunId | None = None) -> None:
        """Something a person should know; carries the run's trace."""
        ...
