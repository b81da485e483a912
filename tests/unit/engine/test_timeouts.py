"""``timeout=``: one attempt's time, from its claim, is the store's to judge, whatever the worker does (issue D, scenario 08)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.domain.act import ClaimRequest, PassNews, StepOutcome
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.ids import ClaimId, Holder, RunId, StepName
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.engine.cancel import cancel_run
from pikkuflow.engine.current_step import step_context
from pikkuflow.errors import StepFailed, WorkflowDefinitionError
from tests.unit.engine.bench import Bench, Child, Task
from tests.unit.engine.shop import Shop, step


def hanging(*, retries: int = 1, hangs: int = 1, by: str = "hint") -> tuple[Bench, list[str]]:
    """A run whose one step hangs for a minute in its first attempts; its time is over after 10 s, and found by a hint or a sweep."""
    bench = Bench()
    ends: list[str] = []

    def work() -> str:
        attempt = bench.runner.works[-1].attempt
        if attempt <= hangs:
            if by == "sweep":
                bench.hints.pop_due(10)
            bench.clock.advance(11)
            if by == "hint":
                bench.pass_time(0)
            else:
                bench.hints.pop_due(10)
                bench.recover()
                bench.work()
        ends.append(f"attempt {attempt} came to its end")
        return f"by attempt {attempt}"

    bench.task(work, name="work")

    def flow(wf: Any) -> Any:
        return wf.do(Task("work"), timeout="10s", retries=retries, retry_delay=5)

    bench.workflow(flow)
    bench.start("flow")
    bench.work()
    return bench, ends


@pytest.mark.parametrize("by", ["hint", "sweep"])
def test_an_attempt_that_takes_too_long_is_outdated_by_the_next(by: str) -> None:
    """Scenario 08: the next attempt is written at the deadline; what the hung one still comes to is refused."""
    bench, ends = hanging(by=by)

    row = bench.step("work")
    assert (row.status, row.attempt) == (StepStatus.PENDING, 2)
    assert ends == ["attempt 1 came to its end"]
    assert any("outdated" in warning for warning in bench.ear.warnings)
    (first,) = bench.attempts()
    assert first.error is not None
    assert (first.status, first.error.code) == (StepStatus.FAILED, "STEP_TIMEOUT")
    bench.pass_time(6)

    assert bench.output() == "by attempt 2"


def test_a_step_without_attempts_left_fails_with_its_timeout() -> None:
    """The body sees it as any failure of the step."""
    bench, _ = hanging(retries=0)

    assert bench.run().status is RunStatus.FAILED
    assert "longer than its timeout of 10 s" in bench.error()
    assert bench.step("work").attempt == 1


def test_a_step_in_time_is_not_touched() -> None:
    """Neither while it works nor after it."""
    bench, ends = hanging(hangs=0)

    assert bench.output() == "by attempt 1"
    assert bench.step("work").due_at is None
    bench.pass_time(60)
    assert ends == ["attempt 1 came to its end"]


def test_a_step_that_is_worked_in_place_is_judged_when_it_returns() -> None:
    """Asked to be inline, or a function: nobody else could have seen the time pass."""
    bench = Bench()
    tries: list[int] = []

    def slow() -> str:
        tries.append(1)
        bench.clock.advance(11 if len(tries) == 1 else 1)
        return "done"

    def flow(wf: Any) -> Any:
        return wf.do("slow", slow, timeout=10, retry_delay=0)

    bench.workflow(flow)
    bench.start("flow")
    bench.work()

    assert bench.output() == "done"
    assert len(tries) == 2


def test_an_unwind_does_not_wait_for_an_attempt_whose_time_is_over() -> None:
    """Design 3.7: its claim lives, as hung processes do; it is undone as a failed step."""
    shop = Shop("away")
    bench = shop.bench

    def hang() -> str:
        cancel_run(bench.rt, RunId("r1"), "enough")
        bench.pass_time(11)
        return "late"

    bench.task(hang, name="a", leaves="queue")

    def flow(wf: Any) -> None:
        wf.do(step("a"), timeout=10)

    shop.run(flow)

    assert shop.status is RunStatus.COMPENSATED
    assert [(undo.ok, "timeout" in (undo.error or "")) for undo in shop.undos] == [(False, True)]


class Overtaken:
    """A store in which the worker opens the next attempt just before a pass writes, and another worker takes that."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bench.store, name)

    def claim(self, attempt: int, claim: str) -> None:
        """A worker takes the step."""
        claims = self._bench.store.claim_steps(
            ClaimRequest(
                run_id=RunId("r1"),
                steps=((StepName("work"), attempt),),
                task="work",
                claim_id=ClaimId(claim),
                holder=Holder("node:9"),
            )
        )
        assert claims.claimed

    def record(self, *asked: Any) -> PassNews | None:
        """The pass writes just too late."""
        failed = StepOutcome(
            name=StepName("work"),
            attempt=1,
            claim_id=ClaimId("c1"),
            status=StepStatus.PENDING,
            error=Failure(type="OSError", message="no answer in 10 s"),
            delay_seconds=0,
        )
        assert self._bench.store.settle_steps(RunId("r1"), [failed]).accepted == (True,)
        self.claim(2, "c2")
        return self._bench.store.record(*asked)


def test_a_pass_takes_no_attempt_away_from_a_worker_that_has_just_begun_it() -> None:
    """Design 3.3: it was overdue when the pass read it; the body goes on as far as it can at once, for that was no news."""
    bench = Bench()
    bench.task(lambda: None, name="work")

    def flow(wf: Any) -> None:
        slow = wf.submit(Task("work"), timeout="10s")
        wf.do("beside", lambda: 1)
        slow.result()

    bench.workflow(flow)
    bench.start("flow")
    bench.work_one()
    store: Any = Overtaken(bench)
    store.claim(1, "c1")
    bench.clock.advance(11)
    bench.orchestrate(store=store)

    row = bench.step("work")
    assert (row.status, row.attempt, row.claim_id) == (StepStatus.RUNNING, 2, "c2")
    assert len(bench.broker.wakes) == 1


def test_an_attempt_that_goes_silent_is_outdated_by_the_next() -> None:
    """Issue D: each heartbeat begins the time anew; what it said last is there for the next attempt."""
    bench = Bench()
    seen: list[Any] = []

    def work() -> str:
        at_work = bench.runner.works[-1]
        seen.append(at_work.details)
        with step_context(at_work) as here:
            for page in range(3):
                bench.clock.advance(4)
                here.heartbeat({"page": page})
                assert not bench.step("work").is_overdue
        if at_work.attempt == 1:
            bench.pass_time(6)
        return "done"

    bench.task(work, name="work")

    def flow(wf: Any) -> Any:
        return wf.do(Task("work"), heartbeat_timeout=5, retry_delay=1)

    bench.workflow(flow)
    bench.start("flow")
    bench.work()
    (first,) = bench.attempts()
    assert first.error is not None
    assert first.error.code == "HEARTBEAT_TIMEOUT"
    bench.pass_time(2)

    assert bench.output() == "done"
    assert seen == [None, {"page": 2}]


@pytest.mark.parametrize(
    ("what", "option"), [(Task("work"), {"timeout": 0}), (Child("flow"), {"heartbeat_timeout": 5})]
)
def test_a_timeout_that_means_nothing_is_refused(what: Any, option: dict[str, Any]) -> None:
    """Before anything is stored; a child run's steps have heartbeats, it has none."""
    bench = Bench()
    bench.task(lambda: None, name="work")
    found: list[Exception] = []

    def flow(wf: Any) -> None:
        try:
            wf.do(what, **option)
        except (WorkflowDefinitionError, StepFailed) as error:
            found.append(error)

    bench.workflow(flow)
    bench.start("flow")
    bench.work()

    assert [type(error) for error in found] == [WorkflowDefinitionError]
    assert bench.steps() == ()


def expiring(bench: Bench) -> list[str]:
    """A run of two members, of which a worker takes the first only; both may wait for one for half a minute. What the body saw."""
    seen: list[str] = []
    bench.task(lambda: "done", name="work", leaves="queue")

    def flow(wf: Any) -> list[str]:
        parts = wf.gather(
            *(wf.submit(name, Task("work", expires=30.0)) for name in ("taken", "left")), return_exceptions=True
        )
        seen.extend(str(part) for part in parts)
        return seen

    bench.workflow(flow)
    bench.start("flow")
    assert bench.work_one()
    assert bench.work_one()
    bench.broker.lose_all()
    return seen


@pytest.mark.parametrize("by", ["hint", "sweep"])
def test_a_step_that_no_worker_takes_in_time_has_failed(by: str) -> None:
    """Issue D, Build 7: a queue that nobody consumes gives no news; the run's own time does. What a worker took in time is not touched."""
    bench = Bench()
    seen = expiring(bench)
    if by == "hint":
        bench.pass_time(30.5)
    else:
        bench.clock.advance(30.5)
        bench.hints.pop_due(100)
        bench.recover()
        bench.broker.messages.clear()
        bench.work()

    assert [part[:4] for part in seen] == ["done", "Step"]
    assert "left' expired before a worker took it" in seen[1]
    row = bench.step("left")
    assert (row.status, row.attempt) == (StepStatus.FAILED, 1)
    assert bench.run().status is RunStatus.COMPLETED


def test_a_step_that_waits_for_a_worker_has_its_run_look_once() -> None:
    """No loop: nothing happens until its time, and a run without such a step has no time of its own."""
    bench = Bench()
    expiring(bench)
    passes = len(bench.ear.passes)
    assert bench.due() == pytest.approx(30)
    bench.pass_time(29)
    assert len(bench.ear.passes) == passes
    bench.pass_time(1.5)
    assert len(bench.ear.passes) == passes + 1
