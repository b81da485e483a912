"""Claimed steps whose worker dies, is outdated, or cannot store what it did (spec 5, T6, T7)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.adapters.json_codec import JsonCodec
from pikkuflow.domain.act import ClaimRequest, StepOutcome
from pikkuflow.domain.ids import ClaimId, Holder, RunId, StepName
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.errors import PayloadError
from tests.unit.engine.bench import Bench
from tests.unit.engine.far_step import a_bench, execute


def test_a_step_whose_worker_died_is_taken_as_a_new_attempt() -> None:
    """T6.2, T6.7: the row stays running, is sent again with its attempt, and the claim counts another; it is told as lost."""
    bench = a_bench()
    claim(bench)
    bench.broker.lose_all()
    bench.clock.advance(61)

    bench.orchestrate()
    assert bench.step("far").status is StepStatus.RUNNING
    bench.work()

    assert [work.attempt for work in bench.runner.works] == [2]
    assert [(loss.attempt, loss.exhausted) for loss in bench.ear.losses] == [(1, False)]
    assert bench.output() == 2


def test_a_resumed_pass_leaves_a_live_claim_alone() -> None:
    """T6.8: dispatches nothing."""
    bench = a_bench()
    claim(bench)
    bench.broker.lose_all()

    bench.orchestrate()

    assert not bench.broker.messages
    assert bench.step("far").attempt == 1


def test_a_step_that_lost_its_worker_on_every_attempt_fails() -> None:
    """T6.6: the text mentions the lease; the run is driven once and fails by it."""
    bench = a_bench()
    claim(bench)
    bench.clock.advance(61)
    claim(bench)
    bench.clock.advance(61)

    execute(bench, attempt=2)

    assert bench.step("far").status is StepStatus.FAILED
    assert "lease expired" in bench.error()
    assert [(loss.attempt, loss.exhausted) for loss in bench.ear.losses] == [(2, True)]
    assert bench.run().status is RunStatus.FAILED


@pytest.mark.parametrize("says", [None, "boom"])
def test_a_superseded_worker_ends_quietly(says: str | None) -> None:
    """T7.9, T7.10: whatever its task did, nothing is stored, nothing is raised, a warning says so."""
    bench = a_bench()

    def slow(number: int) -> int:
        bench.clock.advance(61)
        claim(bench, attempt=1)
        bench.store.settle_steps(
            RunId("r1"),
            [
                StepOutcome(
                    name=StepName("far"), attempt=2, claim_id=ClaimId("c9"), status=StepStatus.SUCCEEDED, result="7"
                )
            ],
        )
        if says is not None:
            raise ValueError(says)
        return number

    bench.task(slow, name="far", leaves="queue")
    execute(bench)

    assert "outdated" in bench.ear.warnings[0]
    assert bench.step("far").result == "7"
    assert bench.step("far").attempt == 2


def test_arguments_that_cannot_be_read_are_an_attempt_that_failed() -> None:
    """The claim is not left to lapse: the attempt is recorded with its reason, and the next one has its time."""
    bench = a_bench()

    class Other(JsonCodec):
        def decode(self, text: str) -> Any:
            if '"args"' in text:
                raise PayloadError("A stored payload cannot be read: another key.")
            return super().decode(text)

    execute(bench, codec=Other(1_000_000))

    assert bench.step("far").status is StepStatus.PENDING
    (lost,) = bench.attempts()
    assert lost.error is not None
    assert "another key" in lost.error.message


def test_a_run_is_woken_though_something_was_raised_after_the_outcome() -> None:
    """The outcome is stored and raised its run's news: whoever raised them sends the wake-up (design 3.5)."""
    bench = a_bench()

    class Noisy:
        def __getattr__(self, name: str) -> Any:
            return getattr(bench.runner, name)

        def run(self, work: Any, commit: Any) -> None:
            bench.runner.run(work, commit)
            raise OSError("a hook")

    with pytest.raises(OSError, match="a hook"):
        execute(bench, runner=Noisy())

    assert bench.step("far").status is StepStatus.SUCCEEDED
    assert [ref.id for ref in bench.broker.wakes] == ["r1"]


def test_a_process_that_is_told_to_end_gives_its_step_back_as_a_counted_attempt() -> None:
    """SystemExit in a task: the next attempt is written, then the process ends."""
    bench = a_bench()

    def leaving(_: int) -> int:
        raise SystemExit(1)

    bench.task(leaving, name="far", leaves="queue")
    with pytest.raises(SystemExit):
        execute(bench)

    assert bench.step("far").status is StepStatus.PENDING
    assert bench.step("far").attempt == 2


def claim(bench: Bench, *, attempt: int = 1) -> None:
    """Another worker claims the step."""
    claims = bench.store.claim_steps(
        ClaimRequest(
            run_id=RunId("r1"),
            steps=((StepName("far"), attempt),),
            task="far",
            claim_id=ClaimId("c9" if bench.step("far").status is StepStatus.RUNNING else "c1"),
            holder=Holder("other:9"),
        )
    )
    assert claims.claimed
