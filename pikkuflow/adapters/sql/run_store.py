"""The run store on PostgreSQL, MySQL, MariaDB and SQLite: which statements an act takes on which database."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence

from pikkuflow.adapters.sql import (
    claims,
    closing,
    holders,
    passes,
    postgres_claims,
    postgres_closing,
    postgres_passes,
    postgres_together,
    runs,
    sweeps,
    timers,
)
from pikkuflow.adapters.sql.database import Database
from pikkuflow.adapters.sql.engines import Kind
from pikkuflow.adapters.sql.gate_store import GateActs
from pikkuflow.adapters.sql.migrations import check_schema
from pikkuflow.adapters.sql.stopping import StoppingActs
from pikkuflow.adapters.sql.versions import VersionActs
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

__all__ = ["SqlRunStore"]


class _Reads:
    """What only reads."""

    database: Database

    def undelivered_runs(self, limit: int) -> tuple[Run, ...]:
        """Settled runs whose outcome is due to be handed on."""
        return self.database.read(lambda tx: runs.undelivered_runs(tx, limit))

    def get_run(self, run_id: RunId) -> Run | None:
        """The run, or None."""
        if self.database.kind is Kind.POSTGRESQL:
            return self.database.autocommit(lambda db: postgres_passes.get_run(db, run_id))
        return self.database.read(lambda tx: runs.get_run(tx, run_id))

    def find_runs(self, run_ids: Sequence[RunId]) -> tuple[FoundRun, ...]:
        """Those of the runs that are there and not settled, and whether a live pass holds them."""
        return self.database.read(lambda tx: timers.find_runs(tx, run_ids)) if run_ids else ()

    def upcoming(self, within_seconds: float, limit: int, after: str | None = None) -> Upcoming:
        """Times of open runs and their rows that are coming."""
        return self.database.read(lambda tx: timers.upcoming(tx, within_seconds, limit, after))

    def list_runs(self, where: RunFilter, *, limit: int, after: RunKey | None = None) -> tuple[Run, ...]:
        """Newest first, by (created_at, id)."""
        return self.database.read(lambda tx: runs.list_runs(tx, where, limit=limit, after=after))

    def list_steps(self, run_id: RunId) -> tuple[Step, ...]:
        """The run's steps by ``seq``."""
        return self.database.read(lambda tx: runs.list_steps(tx, run_id))

    def get_step(self, run_id: RunId, name: StepName) -> Step | None:
        """One step, or None."""
        return self.database.read(lambda tx: runs.get_step(tx, run_id, name))

    def list_attempts(self, run_id: RunId) -> tuple[Attempt, ...]:
        """Earlier attempts of the run's steps, ordered by step and attempt."""
        return self.database.read(lambda tx: runs.list_attempts(tx, run_id))

    def get_state(self, run_id: RunId) -> Mapping[str, str]:
        """The run's key/value state as stored texts."""
        return self.database.read(lambda tx: runs.get_state(tx, run_id))

    def sweep_ages(self) -> Mapping[str, float]:
        """Seconds since each kind of sweep last ran."""
        return self.database.read(sweeps.sweep_ages)


class _Repairs:
    """Sweeps, and what a process holds."""

    database: Database

    def expire_holder(self, holder: Holder) -> Expired:
        """Expire at once what a dead process held."""
        return holders.expire_holder(self.database, holder)

    def expire_node(self, node: str) -> Expired:
        """As ``expire_holder`` for every process of a node."""
        return holders.expire_node(self.database, node)

    def renew_holders(self, holders_: Sequence[Holder], run_lease_seconds: float) -> Renewed:
        """Extend what live processes hold."""
        return holders.renew_holders(self.database, holders_, run_lease_seconds)

    def sweep_stalled(self, request: SweepRequest) -> Swept:
        """Runs with unseen news, a lapsed pass, or nothing that will move them."""
        return self.database.write(lambda tx: sweeps.sweep_stalled(tx, request))

    def sweep_undispatched(self, request: SweepRequest) -> Swept:
        """Dispatched rows that no worker has."""
        return self.database.write(lambda tx: sweeps.sweep_undispatched(tx, request))

    def sweep_scheduled(self, request: SweepRequest) -> Swept:
        """Everything that is due."""
        return self.database.write(lambda tx: sweeps.sweep_scheduled(tx, request))

    def put_off_delivery(self, run_id: RunId) -> bool:
        """Have an outcome that is due handed on later."""
        return self.database.write(lambda tx: sweeps.put_off_delivery(tx, run_id))

    def note_sweep(self, kind: str) -> None:
        """Remember that a sweep of that kind ran now."""
        self.database.write(lambda tx: sweeps.note_sweep(tx, kind))


class SqlRunStore(_Reads, _Repairs, GateActs, StoppingActs, VersionActs):
    """``RunStore`` over a SQL database. The contract of each act is in ``pikkuflow.ports``.

    Parameters
    ----------
    url:
        ``postgresql://``, ``mysql://`` or ``sqlite:///``; a missing folder of an SQLite file is created.
    pool_size:
        Connections kept by this process, twice as many at most; none is held while user code runs.
    patience_seconds:
        How long an act waits for a database that is away before it raises ``StoreUnavailable``; None: for ever.
    is_stopping:
        Asked while waiting; True ends the wait.

    Raises:
        SettingError: The URL is none that pikkuflow supports.
    """

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 5,
        patience_seconds: float | None = None,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self.database = Database(url, pool_size=pool_size, patience_seconds=patience_seconds, is_stopping=is_stopping)
        self._is_postgres = self.database.kind is Kind.POSTGRESQL

    # --- runs -------------------------------------------------------------------------------------------------------
    def insert_runs(self, runs_: Sequence[NewRun]) -> tuple[InsertedRun, ...]:
        """Insert each run unless its id is there; answers in the order given."""
        if not runs_:
            return ()
        author = str(uuid.uuid4())
        if self._is_postgres:
            inserted = self.database.autocommit(lambda db: postgres_claims.insert_runs(db, runs_, author))
            if inserted is not None:
                return inserted
        return self.database.write(lambda tx: runs.insert_runs(tx, runs_, author))

    def ask_pass(self, run_id: RunId, in_seconds: float, *, patience_seconds: float | None = -1) -> None:
        """``due_at`` becomes the earlier of the two."""
        self.database.write(lambda tx: runs.ask_pass(tx, run_id, in_seconds), patience_seconds=patience_seconds)

    def mark_delivered(self, run_id: RunId) -> None:
        """The run's outcome was handed on."""
        self.database.write(lambda tx: runs.mark_delivered(tx, run_id))

    def delete_run(self, run_id: RunId) -> bool:
        """Remove a settled run with all that hangs on it."""
        return self.database.write(lambda tx: runs.delete_run(tx, run_id))

    # --- passes -----------------------------------------------------------------------------------------------------
    def open_pass(self, opening: PassOpening) -> History | PassRefusal:
        """Take the run, lock first and read second."""
        if self._is_postgres:
            history = self.database.autocommit(lambda db: postgres_passes.open_pass(db, opening))
            if history is not None:
                return history
        return self.database.write(lambda tx: passes.open_pass(tx, opening))

    def record(self, ref: PassRef, write: StepWrite) -> PassNews | None:
        """Write one in-place row, fenced by the pass."""
        if self._is_postgres and postgres_passes.is_plain(write):
            news, is_refused = self.database.autocommit(lambda db: postgres_passes.record(db, ref, write))
            if not is_refused:
                return news
        return self.database.write(lambda tx: passes.record(tx, ref, write))

    def record_all(self, writes: Sequence[tuple[PassRef, StepWrite]]) -> tuple[PassNews | None, ...]:
        """Write in-place rows of one run or of several, each judged by itself."""
        if not writes:
            return ()
        if self._is_postgres and all(postgres_passes.is_plain(write) for _, write in writes):
            answers = self.database.autocommit(lambda db: postgres_together.record_all(db, writes))
            if answers is not None:
                return answers
        return self.database.write(lambda tx: passes.record_all(tx, writes))

    def insert_steps(
        self, ref: PassRef, steps: Sequence[NewStep], *, joined: bool = False, lightly: bool = False
    ) -> PassNews | None:
        """Insert waiting rows, all with one multi-row insert; ``lightly`` is for PostgreSQL."""
        if self._is_postgres:
            return self.database.autocommit(
                lambda db: postgres_passes.insert_steps(db, ref, steps, joined=joined, lightly=lightly)
            )
        return self.database.write(lambda tx: passes.insert_steps(tx, ref, steps, joined=joined))

    def start_child(self, ref: PassRef, step: NewStep, child: NewRun, *, result: str | None = None) -> PassNews | None:
        """Insert the child run and the parent's row in one transaction."""
        return self.database.write(lambda tx: passes.start_child(tx, ref, step, child, result=result))

    def close_pass(self, ref: PassRef, closing_: Closing) -> Closed | None:
        """The last write of a pass."""
        if self._is_postgres:
            closed = self.database.autocommit(lambda db: postgres_closing.close_pass(db, ref, closing_))
            if closed is not None:
                return closed
        return self.database.write(lambda tx: closing.close_pass(tx, ref, closing_))

    # --- dispatched steps -------------------------------------------------------------------------------------------
    def claim_steps(self, request: ClaimRequest) -> Claims:
        """Claim each step, or say why not."""
        if self._is_postgres:
            claimed = self.database.autocommit(lambda db: postgres_claims.claim_steps(db, request))
            if claimed is not None:
                return claimed
        return self.database.write(lambda tx: claims.claim_steps(tx, request))

    def settle_steps(self, run_id: RunId, outcomes: Sequence[StepOutcome]) -> Settlement:
        """Store the outcomes of claimed attempts."""
        if self._is_postgres and len(outcomes) == 1:
            settled = self.database.autocommit(lambda db: postgres_claims.settle_step(db, run_id, outcomes[0]))
            if settled is not None:
                return settled
        return self.database.write(lambda tx: claims.settle_steps(tx, run_id, outcomes))

    def give_back(
        self, run_id: RunId, claim_id: ClaimId, steps: Sequence[tuple[StepName, int]]
    ) -> tuple[StepMessage, ...]:
        """Let claimed steps that never began wait again, with the same attempt."""
        return self.database.write(lambda tx: claims.give_back(tx, run_id, claim_id, steps))

    # --- life -------------------------------------------------------------------------------------------------------
    def check_schema(self) -> None:
        """Raise ``SchemaOutdated`` unless the schema is this code's."""
        check_schema(self.database)

    def close(self) -> None:
        """Give back connections; the store can be used again afterwards."""
        self.database.close()
