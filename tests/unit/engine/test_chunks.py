"""What a chunk claimed and did not come to is given back: only the member that was at work had its attempt (design 3.6)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.domain.act import ClaimRequest, StepOutcome
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.ids import ClaimId, Holder, RunId, StepName
from pikkuflow.domain.status import StepStatus
from pikkuflow.engine.fail_claim import fail_claimed
from pikkuflow.errors import StoreUnavailable
from tests.unit.engine.bench import Bench, Task

LIMIT = Failure(type="TimeLimitExceeded", message="the hard time limit was reached")
CHILD = Holder("node:7")


def a_bench(member: Any = lambda n: n) -> Bench:
    """A run that parked on a chunk of four; its message is in the broker."""
    bench = Bench()
    bench.task(member, name="member")

    def flow(wf: Any) -> list[Any]:
        values: list[Any] = wf.map(Task("member"), [0, 1, 2, 3], chunk=4, retries=2, retry_delay="10s")
        return values

    bench.workflow(flow)
    bench.start("flow")
    bench.work_one()
    return bench


def shown(bench: Bench) -> list[tuple[StepStatus, int]]:
    """Status and attempt of each member."""
    return [(step.status, step.attempt) for step in bench.steps()]


def sent(bench: Bench) -> list[list[tuple[str, int]]]:
    """The messages in the broker."""
    return [[(step.name, step.attempt) for step in message] for message in bench.broker.messages]


DONE = (StepStatus.SUCCEEDED, 1)
WAITS = (StepStatus.PENDING, 1)
FAILED_ONCE = (StepStatus.PENDING, 2)
LEFT = [[("member[2]", 1)], [("member[3]", 1)]]


def test_a_member_that_leaves_its_process_costs_the_others_no_attempt() -> None:
    """SystemExit in a member, in a pool of threads too: its own attempt failed, those that had not begun are sent again at once."""

    def leaving(number: int) -> int:
        if number == 1 and len(bench.runner.works) < 3:
            raise SystemExit(1)
        return number

    bench = a_bench(leaving)
    with pytest.raises(SystemExit):
        bench.work_one()

    assert shown(bench) == [DONE, FAILED_ONCE, WAITS, WAITS]
    assert sent(bench) == LEFT
    bench.work()
    bench.pass_time(10)
    assert bench.output() == [0, 1, 2, 3]
    assert [work.attempt for work in bench.runner.works] == [1, 1, 1, 1, 2]


def test_a_warm_shutdown_ends_a_chunk_after_the_member_in_hand() -> None:
    """Design 2: the step in hand is recorded; the rest is another worker's, without an attempt."""

    def stopping(number: int) -> int:
        bench.stopping = number == 1
        return number

    bench = a_bench(stopping)
    bench.work_one()

    assert shown(bench) == [DONE, DONE, WAITS, WAITS]
    assert sent(bench) == LEFT


def test_what_is_raised_after_an_outcome_gives_the_others_back() -> None:
    """The message fails by it, and nobody would come to them."""
    bench = a_bench()

    class Noisy:
        def __getattr__(self, name: str) -> Any:
            return getattr(bench.runner, name)

        def run(self, work: Any, commit: Any) -> None:
            bench.runner.run(work, commit)
            if work.step == "member[1]":
                raise OSError("a hook")

    with pytest.raises(OSError, match="a hook"):
        bench.work_one(bench.other(runner=Noisy()))

    assert shown(bench) == [DONE, DONE, WAITS, WAITS]
    assert sent(bench) == LEFT


def test_what_cannot_be_sent_when_it_is_given_back_is_left_to_a_hint() -> None:
    """D21: the rows wait, and the run gets a pass soon that sends them."""

    def stopping(_: int) -> None:
        bench.stopping = bench.broker.is_down = True

    bench = a_bench(stopping)
    bench.work_one()

    assert shown(bench)[1:] == [WAITS, WAITS, WAITS]
    assert bench.due() == pytest.approx(1)


def test_what_cannot_be_given_back_in_an_outage_is_told() -> None:
    """What ended the message is what is raised; the claims lapse by themselves."""

    class Away:
        def __getattr__(self, name: str) -> Any:
            return getattr(bench.store, name)

        def give_back(self, *_: Any) -> None:
            raise StoreUnavailable("the database is away")

    def leaving(_: int) -> int:
        raise SystemExit(1)

    bench = a_bench(leaving)
    with pytest.raises(SystemExit):
        bench.work_one(bench.other(store=Away()))

    assert shown(bench) == [FAILED_ONCE, *[(StepStatus.RUNNING, 1)] * 3]
    assert [warning for warning in bench.ear.warnings if "3 step(s) could not be given back" in warning]


def test_a_hard_limit_fails_only_the_member_at_work() -> None:
    """Its main process writes for the dead child: settled members stay, the one at work failed, the others never began."""
    bench = a_bench()
    message = bench.broker.messages.pop()
    named = tuple((step.name, step.attempt) for step in message)
    bench.store.claim_steps(
        ClaimRequest(run_id=RunId("r1"), steps=named, task="member", claim_id=ClaimId("c1"), holder=CHILD)
    )
    done = StepOutcome(
        name=StepName("member[0]"), attempt=1, claim_id=ClaimId("c1"), status=StepStatus.SUCCEEDED, result="0"
    )
    bench.store.settle_steps(RunId("r1"), [done])

    fail_claimed(bench.rt, RunId("r1"), named, CHILD, LIMIT)
    fail_claimed(bench.rt, RunId("r1"), named, CHILD, LIMIT)

    assert shown(bench) == [DONE, FAILED_ONCE, WAITS, WAITS]
    assert sent(bench) == LEFT
    assert [(lost.step, lost.error) for lost in bench.attempts()] == [(StepName("member[1]"), LIMIT)]


def test_members_with_a_timeout_travel_by_themselves() -> None:
    """Each has its time from when a worker takes it; a member that waits for others of its chunk would spend it unbegun."""
    bench = Bench()
    overdue: list[bool] = []

    def member(number: int) -> int:
        bench.clock.advance(4)
        overdue.append(bench.step(f"member[{number}]").is_overdue)
        return number

    bench.task(member, name="member")

    def flow(wf: Any) -> Any:
        return wf.map(Task("member"), [0, 1, 2, 3], chunk=4, timeout=5, retries=0)

    bench.workflow(flow)
    bench.start("flow")
    bench.work()

    assert bench.output() == [0, 1, 2, 3]
    assert overdue == [False] * 4


def test_members_that_are_tried_once_travel_by_themselves() -> None:
    """A process that dies under one of them must not cost the others the only attempt they have."""
    bench = Bench()
    bench.task(lambda number: number, name="member")

    def flow(wf: Any) -> Any:
        return wf.map(Task("member"), [0, 1, 2, 3], chunk=4, retries=0)

    bench.workflow(flow)
    bench.start("flow")
    bench.work_one()

    assert sent(bench) == [[(f"member[{number}]", 1)] for number in range(4)]
