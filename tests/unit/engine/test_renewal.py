"""Renewal: by holder, guarded by what is still held, never beside itself (spec 13.6, D32)."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from pikkuflow.domain.act import ClaimRequest, StepOutcome
from pikkuflow.domain.ids import ClaimId, Holder, RunId, StepName
from pikkuflow.domain.status import StepStatus
from pikkuflow.engine.execute_step import execute_step
from pikkuflow.engine.keep import kept
from pikkuflow.engine.renew import Renewal, renew
from tests.servers.processes import wait_until
from tests.unit.engine.bench import Bench, Task

HERE, THERE = Holder("node:1"), Holder("other:9")


def test_a_renewal_after_the_outcome_touches_no_row() -> None:
    """T6.9, D32: the stop barrier across processes: whoever renews late finds a row that is no longer claimed."""
    bench = Bench()
    bench.task(lambda: "done", name="work", leaves="queue")
    bench.workflow(lambda wf: wf.do(Task("work")), name="flow")
    bench.start("flow")
    bench.orchestrate()
    (message,) = bench.broker.messages.pop()
    execute_step(bench.rt, RunId("r1"), [(StepName(message.name), 1)], message.task, may_continue=False)
    settled = bench.step("work")
    bench.clock.advance(5)
    renew(bench.rt, [Holder("node:1")])
    assert bench.step("work") == settled
    assert settled.lease_until is None


class _Slow:
    """A store whose renewals take longer than their interval; it notes how many are under way at once."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._inside = 0
        self._lock = threading.Lock()
        self.most = 0
        self.ended = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def renew_holders(self, *args: Any) -> Any:
        """One renewal."""
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)
        time.sleep(0.05)
        with self._lock:
            self._inside -= 1
            self.ended += 1
        return self._store.renew_holders(*args)


def test_no_renewal_begins_while_another_is_under_way() -> None:
    """T6.10, and T6.9 within a process: leaving the block waits for the renewal in flight."""
    bench = Bench(run_lease_seconds=0.1)
    slow: Any = _Slow(bench.store)
    rt = bench.other(store=slow)
    with kept(rt):
        wait_until(lambda: slow.ended >= 3, every=0.01)
    assert slow.most == 1
    assert slow._inside == 0


def a_dispatched_step(*, lease_seconds: float = 60.0, retries: int = 3) -> Bench:
    """A run that parked on a step; nobody has its message."""
    bench = Bench()
    bench.task(lambda: "done", name="work", leaves="queue")
    route = bench.runner.route
    leased: Any = lambda call, workflow: replace(route(call, workflow), lease_seconds=lease_seconds)  # noqa: E731 - one line
    bench.runner.route = leased  # type: ignore[method-assign]
    bench.workflow(lambda wf: wf.do(Task("work"), retries=retries, retry_delay=0), name="flow")
    bench.start("flow")
    bench.orchestrate()
    bench.broker.lose_all()
    return bench


def claim(bench: Bench, holder: Holder, attempt: int = 1) -> bool:
    """Claim the step with the attempt of its row."""
    claims = bench.store.claim_steps(
        ClaimRequest(
            run_id=RunId("r1"),
            steps=((StepName("work"), attempt),),
            task="work",
            claim_id=ClaimId(f"claim of {holder}"),
            holder=holder,
        )
    )
    return bool(claims.claimed)


def settle(bench: Bench, status: StepStatus, holder: Holder, attempt: int = 1) -> None:
    """The holder's attempt ends."""
    claim_id = ClaimId(f"claim of {holder}")
    outcome = StepOutcome(name=StepName("work"), attempt=attempt, claim_id=claim_id, status=status, result="1")
    assert bench.store.settle_steps(RunId("r1"), [outcome]).accepted == (True,)


def lost(bench: Bench) -> list[str]:
    """The warnings of lost leases."""
    return [warning for warning in bench.ear.warnings if "lease" in warning and "lost" in warning]


@pytest.mark.parametrize("ends", [False, True])
def test_renewal_stops_after_one_no_and_warns_once(*, ends: bool) -> None:
    """T6.13: another took the lapsed claim, and has ended it or not: told once, and its lease is not touched."""
    bench = a_dispatched_step()
    renewal = Renewal(bench.rt)
    claim(bench, HERE)
    renewal.renew([HERE])
    assert lost(bench) == []
    bench.clock.advance(61)
    assert claim(bench, THERE)
    if ends:
        settle(bench, StepStatus.SUCCEEDED, THERE, attempt=2)
    theirs = bench.step("work")
    for _ in range(3):
        bench.clock.advance(5)
        renewal.renew([HERE])
    assert bench.step("work") == theirs
    assert len(lost(bench)) == 1
    assert "step 'work' attempt 1" in lost(bench)[0]


def test_a_lease_that_was_lost_on_the_last_attempt_is_told_once() -> None:
    """T6.13: the claim of another failed the step instead of taking it."""
    bench = a_dispatched_step(retries=0)
    renewal = Renewal(bench.rt)
    claim(bench, HERE)
    renewal.renew([HERE])
    bench.clock.advance(61)
    assert not claim(bench, THERE)
    renewal.renew([HERE])
    renewal.renew([HERE])
    assert len(lost(bench)) == 1


@pytest.mark.parametrize("status", [StepStatus.SUCCEEDED, StepStatus.FAILED, StepStatus.PENDING])
def test_a_claim_that_ended_was_not_lost(status: StepStatus) -> None:
    """Also when the next attempt is another worker's by then."""
    bench = a_dispatched_step()
    renewal = Renewal(bench.rt)
    claim(bench, HERE)
    renewal.renew([HERE])
    settle(bench, status, HERE)
    claim(bench, THERE, attempt=2)
    renewal.renew([HERE])
    assert bench.ear.warnings == []


def test_a_lease_that_is_renewed_more_than_once_a_second_is_warned_of_once() -> None:
    """T6.11, D32: the warning names step, lease, interval and what to set; every further step is quiet."""
    bench = a_dispatched_step(lease_seconds=0.9)
    rt = bench.other(holder=lambda: Holder("short:1"))
    bench.start("flow", run_id="r2")
    bench.orchestrate("r2")
    for run_id in ("r1", "r2"):
        execute_step(rt, RunId(run_id), [(StepName("work"), 1)], "work", may_continue=False)
    assert len(bench.runner.works) == 2
    (told,) = bench.ear.warnings
    assert "Step 'work' has a lease of 0.9 s, renewed every 0.3 s" in told
    assert "pikkuflow_step_lease_seconds above 3" in told


def test_a_lease_of_three_seconds_is_not_warned_of() -> None:
    """D32: once a second is often enough."""
    bench = a_dispatched_step(lease_seconds=3.0)
    execute_step(bench.rt, RunId("r1"), [(StepName("work"), 1)], "work", may_continue=False)
    assert bench.ear.warnings == []
