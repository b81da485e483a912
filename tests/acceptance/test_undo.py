"""Runs are called off and undone on real workers: in place, dispatched, and with processes killed on the way (spec 2.12, 13.11)."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from pikkuflow import Run, RunFailed
from tests.acceptance.deployment import Deployment, attempts_of, step_of, steps_of, wait_for_status
from tests.servers.processes import wait_until

PLACES = [pytest.param({}, id="in-place"), pytest.param({"dispatch": "queue"}, id="dispatched")]
SOON = 12.0
"""Far below the leases of the deployment: nobody waited for one to lapse."""


@pytest.fixture(scope="module")
def running(shared_deployment: Deployment) -> Deployment:
    """One prefork worker of three processes: what dies leaves others that work."""
    shared_deployment.worker("undo", concurrency=3)
    return shared_deployment


@pytest.fixture(scope="module")
def shop(running: Deployment) -> Any:
    """The client."""
    return running.load("undo")


def released(running: Deployment, run: Run[Any]) -> list[str]:
    """What was put back, in order."""
    return [line["what"] for line in running.journal("released", run=run)]


def child_of(shop: Any, run: Run[Any]) -> str | None:
    """The id of its child run, once there is one."""
    return next((step.child_run_id for step in steps_of(shop, run) if step.name == "child"), None)


@pytest.mark.parametrize("options", PLACES)
def test_an_order_saga_is_happy_flaky_or_dead(running: Deployment, shop: Any, options: dict[str, Any]) -> None:
    """C1, T11.39: a flaky payment is tried again; a dead one has its reservations undone exactly once, newest first, error kept."""
    happy = shop.order.start(["tea"], "good", options)
    flaky = shop.order.start(["tea"], "flaky", options)
    dead = shop.order.start(["tea", "cup"], "dead", options)
    assert happy.result(timeout=30) == "paid by good"
    assert flaky.result(timeout=30) == "paid by flaky"
    with pytest.raises(RunFailed, match="dead card was not charged"):
        dead.result(timeout=30)
    assert dead.status().status == "compensated"
    assert released(running, dead) == ["cup", "tea"]
    assert released(running, happy) == released(running, flaky) == []
    forward = running.journal("reserved", run=dead)[0]
    undone = running.journal("releasing", run=dead)[-1]
    assert (undone["ok"], undone["output"], undone["undone"]) == (True, "shelf of tea", "reserve tea")
    assert undone["key"] != forward["key"]


@pytest.mark.parametrize("options", PLACES)
def test_an_unwind_goes_on_when_the_process_that_undoes_is_killed(
    running: Deployment, shop: Any, options: dict[str, Any]
) -> None:
    """T11.25: SIGKILL in the middle of a compensation: another process takes it as a counted attempt under the same key."""
    run = shop.order.start(["tea", "hang", "cup"], "dead", options)
    (begun,) = running.wait_for_journal("releasing", run=run, count=2)[1:]
    row = f"reserve {begun['what']}:compensate"
    wait_until(lambda: step_of(shop, run, row).status == "running", what="the start of the compensation")
    os.kill(begun["pid"], signal.SIGKILL)
    wait_for_status(run, "compensated", seconds=SOON)
    assert released(running, run) == ["cup", "hang", "tea"]
    tries = [line for line in running.journal("releasing", run=run) if line["what"] == "hang"]
    assert [line["attempt"] for line in tries] == [1, 2]
    assert len({line["key"] for line in tries}) == 1


@pytest.mark.parametrize("options", PLACES)
def test_a_compensation_that_kills_its_process_is_tried_again(
    running: Deployment, shop: Any, options: dict[str, Any]
) -> None:
    """T11.12, T11.25: each death is an attempt."""
    run = shop.order.start(["tea", "die", "flaky"], "dead", options)
    wait_for_status(run, "compensated", seconds=40)
    assert released(running, run) == ["flaky", "die", "tea"]


@pytest.mark.parametrize("options", PLACES)
def test_a_stuck_compensation_is_shown_with_the_steps_it_protects(
    running: Deployment, shop: Any, options: dict[str, Any]
) -> None:
    """T11.13, T11.16: what came before it is untouched."""
    run = shop.order.start(["tea", "never"], "dead", {**options, "retries": 1, "retry_delay": 0.1})
    wait_for_status(run, "compensation_failed", seconds=30)
    summary = run.status()
    assert [stuck["stepName"] for stuck in summary.to_dict()["stuckSteps"]] == ["reserve never"]
    assert released(running, run) == []
    assert "dead card" in str(summary.error)


@pytest.mark.parametrize("options", PLACES)
def test_a_run_that_waits_is_called_off_once(running: Deployment, shop: Any, options: dict[str, Any]) -> None:
    """T11.34, T11.37, scenario 23: compensating first; the second cancel changes nothing; the reason stays."""
    run = shop.waits.start(["tea", "cup"], options)
    running.wait_for_journal("reserved", run=run, count=2)
    wait_until(lambda: len(steps_of(shop, run)) == 3, what="the sleep")
    assert run.cancel("changed mind") == "compensating"
    assert run.cancel("again") in {"compensating", "compensated"}
    wait_for_status(run, "compensated")
    assert released(running, run) == ["cup", "tea"]
    summary = run.status()
    assert (summary.error, summary.head.code) == ("changed mind", "WORKFLOW_CANCELLED")
    assert run.cancel() == "compensated"


@pytest.mark.parametrize("options", PLACES)
def test_a_cancel_reaches_a_step_that_is_at_work(running: Deployment, shop: Any, options: dict[str, Any]) -> None:
    """Scenario 24, T11.40: at its next heartbeat it learns that it works in vain; it is undone as a failed step."""
    run = shop.works.start(60.0, options)
    running.wait_for_journal("begun", run=run)
    assert run.cancel("enough") == "compensating"
    wait_for_status(run, "compensated", seconds=SOON)
    (forgotten,) = running.journal("forgotten", run=run)
    assert not forgotten["ok"]
    assert "stopped" in forgotten["error"]
    assert released(running, run) == ["tea"]
    assert step_of(shop, run, "long").details is not None


def test_a_cancel_goes_down_to_children(running: Deployment, shop: Any) -> None:
    """Scenario 24: the parent is stopped first, then the child, which is undone first."""
    run = shop.parent.start(["inner"], 86400, {})
    running.wait_for_journal("reserved", count=1, run=run)
    child = wait_until(lambda: child_of(shop, run), what="the child")
    running.wait_for_journal("reserved", run=child)
    assert run.cancel("enough") == "compensating"
    wait_for_status(run, "compensated", seconds=20)
    below = shop.pikku.runs.get(child).status()
    assert (below.status, below.error) == ("compensated", "enough")
    order = [line["what"] for line in running.journal("released") if line["what"] in {"inner", "before"}]
    assert order[-2:] == ["inner", "before"]


def test_a_completed_child_is_undone_as_one_unit(running: Deployment, shop: Any) -> None:
    """T11.28: between what came after it and what came before."""
    run = shop.parent.start(["one", "two"], 0.1, {})
    wait_for_status(run, "compensated", seconds=30)
    child = child_of(shop, run)
    assert child is not None
    assert shop.pikku.runs.get(child).status().status == "compensated"
    assert released(running, run) == ["after", "before"]
    assert [line["what"] for line in running.journal("released", run=child)] == ["two", "one"]


@pytest.mark.parametrize(
    ("options", "code"),
    [({"timeout": 1.5}, "STEP_TIMEOUT"), ({"heartbeat_timeout": 0.7, "timeout": "1h"}, "HEARTBEAT_TIMEOUT")],
)
def test_a_hung_attempt_is_ended_by_the_store(
    running: Deployment, shop: Any, options: dict[str, Any], code: str
) -> None:
    """Scenarios 08 and 39, design 7: its process still hangs when the next attempt, which knows what it said last, has ended the run."""
    run = shop.hangs.start(2, 8, options)
    assert run.result(timeout=SOON) == 2
    first, second = running.journal("begun", run=run)
    assert (first["details"], second["details"]) == (None, {"beat": 7})
    assert first["key"] == second["key"]
    (lost, _) = attempts_of(shop, run, "hang")
    assert lost.error is not None
    assert lost.error.code == code
    assert [line["attempt"] for line in running.journal("ended", run=run)] == [2]


def test_a_step_that_waits_for_a_worker_in_vain_is_over_in_time(running: Deployment, shop: Any) -> None:
    """Issue D, Build 7: nobody consumes its queue, so no message could have said it."""
    run = shop.nobody.start(2)
    with pytest.raises(RunFailed, match="expired before a worker took it"):
        run.result(timeout=SOON)
    assert released(running, run) == ["tea"]


@pytest.mark.parametrize("options", PLACES)
def test_a_run_that_waits_past_its_timeout_is_undone(running: Deployment, shop: Any, options: dict[str, Any]) -> None:
    """Issue D, Build 7: the whole run's time, by the database's clock; it sleeps, and ends at its deadline, not a sweep later."""
    run = shop.waits.start(["tea", "cup"], options, timeout="3s")
    deadline = run.head().deadline_at
    assert deadline is not None
    with pytest.raises(RunFailed, match="longer than its timeout of 3 s"):
        run.result(timeout=SOON)
    assert released(running, run) == ["cup", "tea"]
    head = run.head()
    assert (head.status, head.code, head.deadline_at) == ("compensated", "RUN_TIMEOUT", deadline)
    assert head.completed_at is not None
    assert 0 <= (head.completed_at - deadline).total_seconds() < SOON / 2


@pytest.mark.parametrize("options", PLACES)
def test_a_step_at_work_learns_that_its_runs_time_is_over(
    running: Deployment, shop: Any, options: dict[str, Any]
) -> None:
    """Issue D, Build 7: as with a cancel, at its next heartbeat, whether a pass holds the run or not."""
    run = shop.works.start(60.0, options, timeout=3)
    with pytest.raises(RunFailed, match="longer than its timeout of 3 s"):
        run.result(timeout=20)
    (forgotten,) = running.journal("forgotten", run=run)
    assert not forgotten["ok"]
    assert "stopped" in forgotten["error"]
    assert released(running, run) == ["tea"]


def test_an_inline_run_is_undone_in_its_own_process(shop: Any) -> None:
    """T11.2 without a worker: the caller's process undoes it and returns."""
    run = shop.order.run_inline(["flaky"], "dead", {"retry_delay": 0.1})
    assert run.status().status == "compensated"
