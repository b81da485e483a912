"""The store: the truth about runs and steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pikkuflow.domain.act import (
    ClaimRequest,
    Claims,
    Closed,
    Closing,
    Expired,
    FoundRun,
    PassNews,
    PassOpening,
    PassRef,
    PassRefusal,
    Renewed,
    Settlement,
    StepMessage,
    StepOutcome,
    StepWrite,
    SweepRequest,
    Swept,
    Upcoming,
)
from pikkuflow.domain.history import History
from pikkuflow.domain.ids import ClaimId, Holder, RunId, StepName
from pikkuflow.domain.run import InsertedRun, NewRun, Run, RunFilter, RunKey
from pikkuflow.domain.step import Attempt, NewStep, Step
from pikkuflow.ports.gates import GateStore
from pikkuflow.ports.stopping import StoppingStore
from pikkuflow.ports.versions import VersionStore

__all__ = ["RunStore"]


class RunStore(GateStore, StoppingStore, VersionStore, Protocol):
    """The truth about runs and steps; its acts at gates are ``GateStore``'s, on versions ``VersionStore``'s.

    Every act is one guarded transaction (one statement where the database can do that).

    Lock order everywhere: child run before parent run; several runs in the order of their ids; a run before its steps.
    """

    # --- runs -------------------------------------------------------------------------------------------------------
    def insert_runs(self, runs: Sequence[NewRun]) -> tuple[InsertedRun, ...]:
        """Insert each run unless its id is there; answers in the order given.

        A new run is ``running`` with ``news = 1, seen = 0``; a delayed one also has ``due_at`` and a time before which no pass opens.
        ``timeout_seconds`` sets its ``deadline_at``, counted from there (else from now), which no later act moves.
        An existing run is never touched (spec 9.2, T-run-id: the same id twice is the same run).
        """
        ...

    def open_pass(self, opening: PassOpening) -> History | PassRefusal:
        """Take the run, lock first and read second: two statements in one round trip (design 3.2).

        Opens only if no other pass is live by the database's clock. Sets ``pass_id``, ``pass_holder``, ``pass_until`` and
        ``seen = news``. A pass that was there unclosed leaves the run marked ``lost`` and counts in ``passes_lost``. Opening
        again with the
        same ``pass_id`` is the same opening. The status is left as it is. ``updated_at`` of the run that it answers with is its moment.
        One that is opened ``lightly`` may be forgotten by a server that dies, with all that was written lightly after it; any act that is
        not written lightly keeps what came before it.
        """
        ...

    def record(self, ref: PassRef, write: StepWrite) -> PassNews | None:
        """Write one in-place row (see ``StepWrite``), fenced by the pass.

        An outcome (SUCCEEDED, FAILED, PENDING) is recorded whatever the run's status and clears ``lost`` and ``passes_lost``; a start
        (RUNNING) only while the run is open, of a compensation only while it unwinds. None: fenced, nothing written.
        """
        ...

    def record_all(self, writes: Sequence[tuple[PassRef, StepWrite]]) -> tuple[PassNews | None, ...]:
        """Write in-place rows of one run or of several in one transaction: for each what ``record`` would answer, in the order given.

        A step is in it once at most. Runs are locked in the order of their ids. Each write is fenced, judged and answered by itself; one
        that the store cannot take (a text that it cannot hold) raises and leaves all of them unwritten.
        """
        ...

    def insert_steps(
        self, ref: PassRef, steps: Sequence[NewStep], *, joined: bool = False, lightly: bool = False
    ) -> PassNews | None:
        """Insert pending (sleeps: scheduled) rows with one multi-row insert, if the run is open (compensations: if it unwinds).

        Rows that are there by this pass count as done. ``joined`` sets the counter of their ``fan_id`` to the number of rows,
        in the same
        transaction. ``lightly``: the answer need not wait for the disk; a server that dies may forget all of the rows, and the closing
        of the pass has to say that they are ``expected``. None: fenced.
        """
        ...

    def start_child(self, ref: PassRef, step: NewStep, child: NewRun, *, result: str | None = None) -> PassNews | None:
        """Insert the child run and the parent's row (running, ``child:<run>``) in one transaction.

        With a ``result`` the row has succeeded with it at once: nothing waits for that child. Idempotent by step (D1). None: fenced.
        """
        ...

    def close_pass(self, ref: PassRef, closing: Closing) -> Closed | None:
        """The last write of a pass (see ``Closing``). None: fenced, nothing written."""
        ...

    def ask_pass(self, run_id: RunId, in_seconds: float) -> None:
        """Have the scheduled sweep look at the run in that time: ``due_at`` becomes the earlier of the two. No news is raised."""
        ...

    # --- dispatched steps -------------------------------------------------------------------------------------------
    def claim_steps(self, request: ClaimRequest) -> Claims:
        """Claim each step by one conditional update (design 3.6); the table is spec 16.2.

        It needs the same attempt, ``due_at`` reached and the run running (a compensation: compensating). A live claim excludes others; a
        lapsed one is taken as a new attempt opened in ``running``, or, exhausted, failed with STEP_LEASE_EXPIRED and told to the run. The
        lease lasts the row's ``lease_seconds``; ``due_at`` becomes the time at which the attempt is overdue, if the row limits it
        (``timeout_seconds``, ``heartbeat_seconds``).
        """
        ...

    def settle_steps(self, run_id: RunId, outcomes: Sequence[StepOutcome]) -> Settlement:
        """Store the outcomes of claimed attempts, each fenced by attempt and claim id.

        News rises when a settled step has no fan, or its fan's counter reaches zero (taken down on a locked row in the same
        transaction). What raises it, here and at a child's end, clears ``passes_lost`` and leaves the mark ``lost``.
        PENDING raises none; once the run has settled there is no further attempt, and the step ends failed with this error. A failure
        settles its member like a success.
        """
        ...

    def give_back(
        self, run_id: RunId, claim_id: ClaimId, steps: Sequence[tuple[StepName, int]]
    ) -> tuple[StepMessage, ...]:
        """Give back claimed steps whose work never began; they wait again, due at once, with the attempt of the claim.

        None is charged for it, and nothing goes to the attempts table. Fenced by attempt and claim id like an outcome: a step that another
        has, or that is settled, is left alone. Returns the messages to send, of those given back before too. No news rises. In a
        run that is settled, rows end as its closing ends waiting ones, and there is nothing to send.
        """
        ...

    def expire_holder(self, holder: Holder) -> Expired:
        """Expire at once what a dead process held, compared by holder (design 3.9).

        That is its passes' ``pass_until`` and its claims' ``lease_until``.
        """
        ...

    def expire_node(self, node: str) -> Expired:
        """As ``expire_holder`` for every holder ``<node>:<pid>`` of a node uuid."""
        ...

    def renew_holders(self, holders: Sequence[Holder], run_lease_seconds: float) -> Renewed:
        """Extend what live processes hold: passes by ``run_lease_seconds``, claims by their rows' ``lease_seconds``.

        What lapsed meanwhile but was not taken is extended too.
        """
        ...

    # --- sweeps -----------------------------------------------------------------------------------------------------
    def sweep_stalled(self, request: SweepRequest) -> Swept:
        """Find non-terminal runs (suspended and compensating too) that nobody looks after (design 3.8).

        They have unseen news older than the threshold, or a lapsed pass, or, as a backstop (``forgotten``), are running with no
        pass, time of their own, claim, unsent row, due row or live child and untouched for 5 minutes.
        """
        ...

    def sweep_undispatched(self, request: SweepRequest) -> Swept:
        """Find dispatched rows of open runs, and compensations of those that unwind, whose message must be sent, with its attempt.

        They were not sent, or sent and not picked up for the threshold, or are running under a claim that lapsed. Rows not yet
        due are left.
        """
        ...

    def sweep_scheduled(self, request: SweepRequest) -> Swept:
        """Find everything with a ``due_at`` more than the threshold in the past.

        Sleeps, in-place retries, overdue attempts and runs come as runs to wake, dispatched retries as messages. A run that is due
        itself is driven for that, not for its rows as well.
        """
        ...

    def note_sweep(self, kind: str) -> None:
        """Remember that a sweep of that kind ran now."""
        ...

    def sweep_ages(self) -> Mapping[str, float]:
        """Seconds since each kind of sweep last ran; a kind that never ran is absent."""
        ...

    def undelivered_runs(self, limit: int) -> tuple[Run, ...]:
        """Settled runs with a ``handover`` that are not marked delivered and due to be handed on, those due longest first.

        A run is due as soon as it settles, and again when the time that ``put_off_delivery`` gave it is over.
        """
        ...

    def put_off_delivery(self, run_id: RunId) -> bool:
        """Have an outcome that is due handed on (again) later: in 30 s, doubling with each call, at most 10 min (D13).

        False: it is not due (any more): another sweeper has it, or it was marked delivered.
        """
        ...

    def mark_delivered(self, run_id: RunId) -> None:
        """The run's outcome was handed on (design 7)."""
        ...

    # --- reading ----------------------------------------------------------------------------------------------------
    def get_run(self, run_id: RunId) -> Run | None:
        """The run, or None."""
        ...

    def find_runs(self, run_ids: Sequence[RunId]) -> tuple[FoundRun, ...]:
        """Those of the runs that are there and not settled, and whether a live pass holds them, in no order: one read for all of them."""
        ...

    def upcoming(self, within_seconds: float, limit: int, after: str | None = None) -> Upcoming:
        """Times of open runs and their waiting rows that come within that time and are not there yet; ``limit`` at most.

        ``after`` is the last key of the page before (D12). Hints are left again from it (design 3.8).
        """
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
        """Remove a settled run with all that hangs on it but the audit; False when there is none or it is not settled."""
        ...

    # --- life -------------------------------------------------------------------------------------------------------
    def check_schema(self) -> None:
        """Raise ``SchemaOutdated`` (with the command to run) unless the schema is this code's."""
        ...

    def close(self) -> None:
        """Give back connections; the store can be used again afterwards."""
        ...
