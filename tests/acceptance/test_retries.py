"""Retries are durable, counted, and share one idempotency key (spec V2, 13.4)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from pikkuflow import RunFailed
from tests.acceptance.deployment import Deployment, attempts_of, step_of
from tests.servers.processes import wait_until

PLACES = [pytest.param({}, id="in-place"), pytest.param({"dispatch": "queue"}, id="dispatched")]


@pytest.fixture(scope="module")
def running(shared_deployment: Deployment) -> Deployment:
    """One prefork worker; both of the slow runs of V2 are started at once, so that their delays pass together."""
    shared_deployment.worker("steps", concurrency=2)
    steps = shared_deployment.load("steps")
    for place, options in (("in-place", {}), ("dispatched", {"dispatch": "queue"})):
        steps.one.start("steps.fail_until", 99, run_id=f"exhausted-{place}", **options)
        steps.one.start("steps.fail_until", 3, run_id=f"recovers-{place}", **options)
    return shared_deployment


@pytest.fixture(scope="module")
def steps(running: Deployment) -> Any:
    """The client."""
    return running.load("steps")


@pytest.mark.parametrize("options", PLACES)
def test_two_failures_and_a_success_are_three_executions_with_one_key(
    running: Deployment, steps: Any, options: dict[str, Any]
) -> None:
    """V2a, T3.3: attempts 1, 2, 3 share the invocation id, and the effect happens once."""
    run = steps.one.start("steps.fail_until", 3, retries=3, retry_delay=0.1, **options)
    assert run.result(timeout=20) == 3
    tried = running.journal("tried", run=run)
    assert [line["attempt"] for line in tried] == [1, 2, 3]
    assert len({line["key"] for line in tried}) == 1
    assert len(running.journal("effect", run=run)) == 1
    history = attempts_of(steps, run, "work")
    assert [(row.attempt, row.status) for row in history] == [(1, "failed"), (2, "failed"), (3, "succeeded")]


@pytest.mark.parametrize("options", PLACES)
def test_without_retries_there_is_one_execution(running: Deployment, steps: Any, options: dict[str, Any]) -> None:
    """V2b, T4.2: ``retries=0`` fails at the first failure."""
    run = steps.one.start("steps.fail_until", 2, retries=0, **options)
    with pytest.raises(RunFailed, match="attempt 1 failed"):
        run.result(timeout=20)
    assert len(running.journal("tried", run=run)) == 1
    assert step_of(steps, run, "work").attempt == 1


def test_a_delay_of_its_own_is_kept_between_attempts(running: Deployment, steps: Any) -> None:
    """T4.3, T4.4: explicit retries and a fixed delay, in seconds (D28); nothing waits in the worker meanwhile."""
    run = steps.one.start("steps.fail_until", 9, retries=2, retry_delay="1s")
    quick = steps.one.start("steps.touch", 1)
    assert quick.result(timeout=10) == 1
    with pytest.raises(RunFailed, match="attempt 3 failed"):
        run.result(timeout=20)
    at = [line["at"] for line in running.journal("tried", run=run)]
    gaps = [later - earlier for earlier, later in pairwise(at)]
    assert len(gaps) == 2
    assert all(0.9 <= gap < 3.5 for gap in gaps), gaps


def test_a_final_error_is_not_tried_again(running: Deployment, steps: Any) -> None:
    """A type in ``no_retry_on`` ends the step at once; here through the step's own workflow, with attempts left."""
    run = steps.stubborn.start()
    with pytest.raises(RunFailed, match="attempt 1 failed"):
        run.result(timeout=20)
    assert len(running.journal("tried", run=run)) == 1


@pytest.mark.parametrize("place", ["in-place", "dispatched"])
def test_defaults_recover_at_the_third_execution(running: Deployment, steps: Any, place: str) -> None:
    """V2d, T4.1: with nothing said, two failures are survived."""
    run = steps.pikku.runs.get(f"recovers-{place}")
    assert run.result(timeout=30) == 3
    assert [line["attempt"] for line in running.journal("tried", run=run)] == [1, 2, 3]


@pytest.mark.parametrize("place", ["in-place", "dispatched"])
def test_defaults_end_after_six_executions(running: Deployment, steps: Any, place: str) -> None:
    """V2c, T4.1: five retries, exponential from one second: some 31 s, then failed; one key throughout."""
    run = steps.pikku.runs.get(f"exhausted-{place}")
    with pytest.raises(RunFailed, match="attempt 6 failed"):
        run.result(timeout=60)
    tried = running.journal("tried", run=run)
    assert [line["attempt"] for line in tried] == [1, 2, 3, 4, 5, 6]
    assert len({line["key"] for line in tried}) == 1
    gaps = [later["at"] - earlier["at"] for earlier, later in pairwise(tried)]
    for expected, gap in zip([1, 2, 4, 8, 16], gaps, strict=True):
        assert expected * 0.75 <= gap <= expected * 1.2 + 3, gaps
    assert not running.journal("effect", run=run)
    wait_until(lambda: step_of(steps, run, "work").status == "failed", what="the step's end")
