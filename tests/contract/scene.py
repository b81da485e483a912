"""Short words for the acts of a store, so that a test shows only what it is about."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pikkuflow.domain.act import (
    ClaimRefusal,
    ClaimRequest,
    Claims,
    Closed,
    Closing,
    PassNews,
    PassOpening,
    PassRef,
    PassRefusal,
    Settlement,
    StepMessage,
    StepOutcome,
    StepWrite,
    SweepRequest,
    Swept,
)
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.history import History
from pikkuflow.domain.ids import ClaimId, Holder, PassId, RunId, StepName
from pikkuflow.domain.run import NewRun, Run
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus
from pikkuflow.domain.step import NewStep, Place, Step
from pikkuflow.ports import RunStore
from tests.contract.stores import StoreBench

__all__ = ["BOOM", "Scene", "new_run", "new_step", "race"]

BOOM = Failure(type="builtins.ValueError", message="boom")


def new_run(run_id: str = "r1", **more: Any) -> NewRun:
    """A run of ``shop.order``."""
    return NewRun(**{"id": RunId(run_id), "workflow": "shop.order", "version": "v1", "input": '{"args":[42]}', **more})


def new_step(name: str = "a", **more: Any) -> NewStep:
    """A dispatched step of task ``shop.pack``, five retries."""
    fields = {
        "name": StepName(name),
        "seq": 0,
        "kind": StepKind.TASK,
        "task": "shop.pack",
        "args": '{"args":[]}',
        "retries": 5,
        "place": Place.QUEUE,
        "queue": "packers",
        "lease_seconds": 60.0,
    }
    return NewStep(**{**fields, **more})


def race(*calls: Callable[[], Any]) -> list[Any]:
    """Make the calls at the same moment, a thread each; their answers in order. The first error is raised."""
    start = threading.Barrier(len(calls))
    answers: list[Any] = [None] * len(calls)
    errors: list[BaseException] = []

    def work(index: int) -> None:
        start.wait(timeout=30)
        try:
            answers[index] = calls[index]()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            errors.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    if errors:
        raise errors[0]
    return answers


class Scene:
    """A store with one or a few runs in it."""

    def __init__(self, bench: StoreBench) -> None:
        self.store: RunStore = bench.store
        self.advance = bench.advance
        self._set_status = bench.set_status

    # --- runs and passes ----------------------------------------------------------------------------------------------
    def insert(self, run_id: str = "r1", **more: Any) -> RunId:
        """A new run."""
        (inserted,) = self.store.insert_runs([new_run(run_id, **more)])
        assert inserted.created
        return inserted.id

    def try_open(
        self, run_id: str = "r1", by: str = "p1", *, holder: str = "node:1", lease: float = 30.0, limit: int = 10
    ) -> History | PassRefusal:
        """Ask for a pass; ``by`` is its id."""
        return self.store.open_pass(
            PassOpening(
                run_id=RunId(run_id),
                pass_id=PassId(by),
                holder=Holder(holder),
                lease_seconds=lease,
                passes_lost_limit=limit,
            )
        )

    def open(self, run_id: str = "r1", by: str = "p1", **more: Any) -> History:
        """Open a pass, which must succeed."""
        history = self.try_open(run_id, by, **more)
        assert isinstance(history, History), history
        return history

    def begin(self, run_id: str = "r1", by: str = "p1", **more: Any) -> PassRef:
        """A new run with an open pass."""
        self.insert(run_id, **more)
        self.open(run_id, by)
        return self.ref(run_id, by)

    def ref(self, run_id: str = "r1", by: str = "p1") -> PassRef:
        """A pass as a writer."""
        return PassRef(run_id=RunId(run_id), pass_id=PassId(by))

    def close(self, ref: PassRef, **closing: Any) -> Closed:
        """Close the pass, which must be the run's own."""
        closed = self.store.close_pass(ref, Closing(**closing))
        assert closed is not None
        return closed

    def park(self, ref: PassRef, **closing: Any) -> Closed:
        """Close the pass with the run running."""
        return self.close(ref, status=RunStatus.RUNNING, **closing)

    def stop(self, run_id: str = "r1", status: RunStatus = RunStatus.COMPENSATING) -> None:
        """Stop the run under its pass."""
        self._set_status(RunId(run_id), status)

    def run(self, run_id: str = "r1") -> Run:
        """The run, which must be there."""
        run = self.store.get_run(RunId(run_id))
        assert run is not None
        return run

    # --- in place -----------------------------------------------------------------------------------------------------
    def write(
        self, ref: PassRef, status: StepStatus, name: str = "a", attempt: int = 1, **more: Any
    ) -> PassNews | None:
        """Record an in-place row; ``step`` has the fields of its ``NewStep`` that are not usual."""
        step = new_step(name, **{"place": Place.in_pass(ref.pass_id), "queue": None, **more.pop("step", {})})
        return self.store.record(ref, StepWrite(step=step, attempt=attempt, status=status, **more))

    # --- dispatched ---------------------------------------------------------------------------------------------------
    def insert_steps(self, ref: PassRef, *names: str, joined: bool = False, **more: Any) -> PassNews | None:
        """Insert dispatched rows."""
        steps = [new_step(name, **{"seq": seq, **more}) for seq, name in enumerate(names)]
        return self.store.insert_steps(ref, steps, joined=joined)

    def dispatch(self, *names: str, run_id: str = "r1", joined: bool = False, **more: Any) -> RunId:
        """A new run whose first pass (``p1``) dispatched these steps and parked."""
        ref = self.begin(run_id)
        assert self.insert_steps(ref, *names, joined=joined, **more) is not None
        self.park(ref, sent=tuple(StepName(name) for name in names))
        return ref.run_id

    def claim(self, name: str = "a", attempt: int = 1, claim: str = "c1", **more: Any) -> Claims:
        """Ask for one step; ``holder``, ``task`` and ``run_id`` may be given."""
        return self.claim_all(((name, attempt),), claim, **more)

    def claim_all(
        self,
        steps: tuple[tuple[str, int], ...],
        claim: str = "c1",
        *,
        holder: str = "node:2",
        task: str = "shop.pack",
        run_id: str = "r1",
    ) -> Claims:
        """Ask for several steps at once."""
        return self.store.claim_steps(
            ClaimRequest(
                run_id=RunId(run_id),
                steps=tuple((StepName(name), attempt) for name, attempt in steps),
                task=task,
                claim_id=ClaimId(claim),
                holder=Holder(holder),
            )
        )

    def claimed(self, name: str = "a", attempt: int = 1, claim: str = "c1", **more: Any) -> Step:
        """Claim one step, which must succeed; the row as it is then."""
        claims = self.claim(name, attempt, claim, **more)
        assert claims.refused == ()
        return claims.claimed[0]

    def refusal(self, name: str = "a", attempt: int = 1, claim: str = "c1", **more: Any) -> ClaimRefusal:
        """Ask for one step, which must be refused; why."""
        claims = self.claim(name, attempt, claim, **more)
        assert claims.claimed == ()
        return claims.refused[0][1]

    def settle(
        self,
        status: StepStatus,
        name: str = "a",
        attempt: int = 1,
        claim: str = "c1",
        *,
        run_id: str = "r1",
        **more: Any,
    ) -> Settlement:
        """Store the outcome of one claimed attempt."""
        outcome = StepOutcome(name=StepName(name), attempt=attempt, claim_id=ClaimId(claim), status=status, **more)
        return self.store.settle_steps(RunId(run_id), [outcome])

    def succeed(self, name: str = "a", attempt: int = 1, claim: str = "c1", **more: Any) -> Settlement:
        """Store a success."""
        return self.settle(StepStatus.SUCCEEDED, name, attempt, claim, **{"result": '"done"', **more})

    def fail(self, name: str = "a", attempt: int = 1, claim: str = "c1", **more: Any) -> Settlement:
        """Store a final failure."""
        return self.settle(StepStatus.FAILED, name, attempt, claim, error=BOOM, **more)

    def try_again(self, name: str = "a", attempt: int = 1, claim: str = "c1", **more: Any) -> Settlement:
        """Store a failure with attempts left; ``delay_seconds`` until the next."""
        return self.settle(StepStatus.PENDING, name, attempt, claim, **{"error": BOOM, "delay_seconds": 0.0, **more})

    def give_back(
        self, *names: str, attempt: int = 1, claim: str = "c1", run_id: str = "r1"
    ) -> tuple[StepMessage, ...]:
        """Give back claimed steps that never began."""
        steps = [(StepName(name), attempt) for name in names]
        return self.store.give_back(RunId(run_id), ClaimId(claim), steps)

    def step(self, name: str = "a", run_id: str = "r1") -> Step:
        """A row, which must be there."""
        step = self.store.get_step(RunId(run_id), StepName(name))
        assert step is not None
        return step

    # --- sweeps -------------------------------------------------------------------------------------------------------
    def sleeping(self, run_id: str = "r1", seconds: float = 60.0) -> None:
        """A new run that parked on a sleep."""
        ref = self.begin(run_id)
        nap = {"kind": StepKind.SLEEP, "task": None, "args": None, "place": Place.in_pass("p1"), "queue": None}
        self.store.insert_steps(ref, [new_step("nap", delay_seconds=seconds, **nap)])
        self.park(ref)

    def stalled(self, older_than: float = 10.0) -> list[str]:
        """The runs that a sweep for stalled ones wakes."""
        return [ref.id for ref in self.store.sweep_stalled(self.sweep(older_than)).runs]

    def undispatched(self, older_than: float = 30.0) -> list[tuple[str, int]]:
        """The steps, with their attempts, that a sweep for undispatched ones sends."""
        swept = self.store.sweep_undispatched(self.sweep(older_than))
        return [(message.name, message.attempt) for message in swept.steps]

    def due(self) -> list[str]:
        """The runs that a sweep for scheduled rows wakes."""
        return [ref.id for ref in self.store.sweep_scheduled(self.sweep(0.0)).runs]

    def pages(self, sweep: Callable[[SweepRequest], Swept], older_than: float, limit: int) -> list[Swept]:
        """Every page of a sweep."""
        pages = [sweep(self.sweep(older_than, limit))]
        while pages[-1].last is not None:
            pages.append(sweep(self.sweep(older_than, limit, after=pages[-1].last)))
        return pages

    def sweep(self, older_than: float = 10.0, limit: int = 100, after: str | None = None) -> SweepRequest:
        """A page of a sweep."""
        return SweepRequest(older_than_seconds=older_than, limit=limit, after=after)
