"""What dead processes held is taken over, what live ones hold is renewed, and a hard limit fails a claim (design 3.9, recipes 5)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.domain.act import ClaimRequest, PassOpening
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.ids import ClaimId, Holder, PassId, RunId, StepName
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.engine.fail_claim import fail_claimed
from pikkuflow.engine.fire_timer import fire_due
from pikkuflow.engine.renew import renew
from pikkuflow.engine.take_over import take_over_holder, take_over_node
from tests.unit.engine.bench import Bench, Life, Task

_OURS = Holder("node:2")


def a_bench(**options: Any) -> Bench:
    """A run of one dispatched step, parked on it; its message is lost, and the step is claimed by a worker."""
    bench = Bench()
    bench.task(lambda: "far", name="far", leaves="queue")

    def flow(wf: Any) -> str:
        value: str = wf.do(Task("far"), **options)
        return value

    bench.workflow(flow)
    bench.start("flow")
    bench.work_one()
    bench.broker.lose_all()
    bench.store.claim_steps(
        ClaimRequest(
            run_id=RunId("r1"),
            steps=((StepName("far"), 1),),
            task="far",
            claim_id=ClaimId("c1"),
            holder=_OURS,
        )
    )
    return bench


def open_pass(bench: Bench, run_id: str, holder: Holder) -> None:
    """A process opens a pass behind its front door, and is then not heard of."""
    pass_id = PassId(f"p-{run_id}")
    bench.leases.acquire(f"workflow-run:{run_id}", f"{holder}:{pass_id}", 30)
    bench.store.open_pass(
        PassOpening(run_id=RunId(run_id), pass_id=pass_id, holder=holder, lease_seconds=30, passes_lost_limit=10)
    )


def test_a_dead_workers_step_is_another_attempt_at_once() -> None:
    """Design 3.9: no lease is waited out; the message carries the same attempt, and the claim counts the next."""
    bench = a_bench()

    take_over_holder(bench.rt, _OURS)
    assert [message.attempt for (message,) in bench.broker.messages] == [1]
    bench.work()

    assert [work.attempt for work in bench.runner.works] == [2]
    assert bench.output() == "far"


def test_another_processes_claim_is_not_touched() -> None:
    """Compared by holder, never by key."""
    bench = a_bench()

    take_over_holder(bench.rt, Holder("node:22"))
    take_over_node(bench.rt, "nod")

    assert not bench.broker.messages
    assert bench.step("far").is_lapsed is False


def test_a_dead_processes_runs_go_on_at_once() -> None:
    """Its passes are expired, its front doors freed, its runs woken."""
    bench = Bench()

    def flow(wf: Any) -> int:
        return 1

    bench.workflow(flow)
    for run_id in ("r1", "r2"):
        bench.start("flow", run_id=run_id)
    bench.broker.lose_all()
    open_pass(bench, "r1", _OURS)
    open_pass(bench, "r2", Holder("node:3"))

    take_over_holder(bench.rt, _OURS)
    bench.work()
    assert bench.output("r1") == 1
    assert bench.run("r2").status is RunStatus.RUNNING

    take_over_node(bench.rt, "node")
    bench.work()
    assert bench.output("r2") == 1


def test_a_take_over_needs_no_lease_service() -> None:
    """The row decides; a front door that cannot be freed lapses."""
    bench = a_bench()
    bench.leases.is_down = True

    take_over_holder(bench.rt, _OURS)

    assert len(bench.broker.messages) == 1


def test_renewing_keeps_claims_passes_and_front_doors() -> None:
    """T6.4, design 3.1: a slow worker keeps its step and its run as long as it lives."""
    bench = a_bench()
    open_pass(bench, "r1", _OURS)
    for _ in range(20):
        bench.clock.advance(10)
        renew(bench.rt, [Holder("node:1"), _OURS])

    assert bench.step("far").is_lapsed is False
    assert bench.leases.get("workflow-run:r1") is not None
    bench.orchestrate()
    assert bench.run().pass_id == PassId("p-r1")


def test_a_lost_front_door_is_taken_again_while_the_row_is_ours() -> None:
    """D19: an emptied Redis cannot fence out a healthy pass."""
    bench = a_bench()
    open_pass(bench, "r1", _OURS)
    bench.leases.expire("workflow-run:r1", _OURS)

    renew(bench.rt, [_OURS])

    lease = bench.leases.get("workflow-run:r1")
    assert lease is not None
    assert lease.holder == "node:2:p-r1"


def test_a_front_door_of_someone_else_is_left_alone() -> None:
    """Renewal compares; it never steals."""
    bench = a_bench()
    open_pass(bench, "r1", _OURS)
    bench.leases.expire("workflow-run:r1", _OURS)
    bench.leases.acquire("workflow-run:r1", "other:1:p9", 30)

    renew(bench.rt, [_OURS])

    lease = bench.leases.get("workflow-run:r1")
    assert lease is not None
    assert lease.holder == "other:1:p9"


def test_renewing_without_holders_or_lease_service_does_no_harm() -> None:
    """An idle worker, an outage of Redis, an engine without leases."""
    bench = a_bench()
    open_pass(bench, "r1", _OURS)

    renew(bench.rt, [])
    renew(bench.other(leases=None), [_OURS])
    bench.leases.is_down = True
    renew(bench.rt, [_OURS])

    assert bench.run().pass_id is not None


@pytest.mark.parametrize(("retries", "status"), [(1, StepStatus.PENDING), (0, StepStatus.FAILED)])
def test_a_hard_limit_is_a_failing_outcome_of_the_claim(retries: int, status: StepStatus) -> None:
    """Recipes 5: only the main process saw it; it is tried again while attempts are left, else the run goes on at once."""
    bench = a_bench(retries=retries, retry_delay="10s")
    failure = Failure(type="TimeLimitExceeded", message="ran past 5 s")

    fail_claimed(bench.rt, RunId("r1"), [(StepName("far"), 1)], _OURS, failure)
    bench.work()

    assert bench.step("far").status is status
    if status is StepStatus.FAILED:
        assert bench.run().status is RunStatus.FAILED
        assert "ran past 5 s" in bench.error()
    else:
        assert [attempt.error for attempt in bench.attempts()] == [failure]
        assert bench.due() == pytest.approx(10)


def test_a_hard_limit_fails_nothing_that_is_not_that_holders() -> None:
    """A step that ended, or was taken by another process, is left alone."""
    bench = a_bench()
    failure = Failure(type="TimeLimitExceeded", message="ran past 5 s")

    fail_claimed(bench.rt, RunId("r1"), [(StepName("far"), 1), (StepName("no"), 1)], Holder("node:22"), failure)
    fail_claimed(bench.rt, RunId("nobody"), [(StepName("far"), 1)], _OURS, failure)

    assert bench.step("far").status is StepStatus.RUNNING


def test_due_hints_become_wake_ups_and_survive_a_broker_that_is_down() -> None:
    """Design 4: popped once; a broker outage leaves them a second ahead; settled runs need none."""
    bench = Bench()

    def flow(wf: Any) -> int:
        wf.sleep(5)
        return 1

    bench.workflow(flow)
    bench.start("flow")
    bench.work()
    bench.clock.advance(5)
    bench.broker.is_down = True
    assert fire_due(bench.rt) == 0
    bench.broker.is_down = False
    bench.clock.advance(1)

    assert fire_due(bench.rt) == 1
    assert fire_due(bench.rt) == 0
    bench.work()
    assert bench.output() == 1
    bench.hints.leave(RunId("r1"), 0)
    assert fire_due(bench.rt) == 0


def test_a_process_that_died_between_pop_and_wake_costs_one_sweep() -> None:
    """Nothing depends on a hint."""
    bench = Bench()

    def flow(wf: Any) -> int:
        wf.sleep(5)
        return 1

    bench.workflow(flow)
    bench.start("flow")
    bench.work()
    bench.clock.advance(6)
    life = Life(dies_at=2)
    with pytest.raises(BaseException, match="pop_due"):
        fire_due(bench.process(life))

    bench.recover()
    bench.work()

    assert bench.output() == 1
