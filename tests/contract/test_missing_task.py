"""A step message on a worker that does not know its task, over every store (D5, T7.8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus
from pikkuflow.engine.execute_step import execute_step
from pikkuflow.engine.runtime import Runtime
from pikkuflow.errors import TaskNotFound
from tests.contract.scene import BOOM, Scene, new_step
from tests.unit.engine.bench import Bench

TASK = "shop.pack"


def a_worker(scene: Scene, **changed: Any) -> Runtime:
    """A worker over the store that knows no task."""
    return replace(Bench().rt, store=scene.store, **changed)


def execute(rt: Runtime, attempt: int) -> None:
    """Handle the message of the step."""
    execute_step(rt, RunId("r1"), [(StepName("a"), attempt)], TASK, may_continue=False)


def taken_over(scene: Scene) -> None:
    """Attempt 1 lost its step to attempt 2, which is at work."""
    scene.dispatch("a")
    scene.claimed()
    scene.advance(61)
    scene.claimed(claim="c2")


def test_a_missing_task_suspends_the_run_and_spends_no_attempt(scene: Scene) -> None:
    """D5: nobody has the step, so the run waits for a deploy."""
    scene.dispatch("a")
    execute(a_worker(scene), 1)
    assert (scene.run().status, scene.run().code) == (RunStatus.SUSPENDED, "TASK_NOT_FOUND")
    assert (scene.step().status, scene.step().attempt) == (StepStatus.PENDING, 1)


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_superseded_worker_whose_task_is_missing_changes_nothing(scene: Scene, attempt: int) -> None:
    """T7.8: neither fails the step nor suspends the run; also when the message is a second one for the attempt at work."""
    taken_over(scene)
    before = scene.step(), scene.run()
    execute(a_worker(scene), attempt)
    assert (scene.step(), scene.run()) == before
    assert scene.succeed(attempt=2, claim="c2").accepted == (True,)


def test_a_worker_whose_task_vanished_under_its_claim_is_refused_when_it_is_late(scene: Scene) -> None:
    """T7.8: it had the step, was superseded, and then finds no task: its failure is dropped."""
    bench = Bench()
    scene.dispatch("a")

    class Vanished:
        def is_known(self, _task: str) -> bool:
            return True

        def run(self, _work: Any, _commit: Callable[..., bool]) -> None:
            scene.advance(61)
            scene.claimed(claim="c2")
            raise TaskNotFound("it is gone", TASK)

    runner: Any = Vanished()
    execute(replace(bench.rt, store=scene.store, runner=runner), 1)
    assert scene.run().status is RunStatus.RUNNING
    assert (scene.step().status, scene.step().attempt) == (StepStatus.RUNNING, 2)
    assert "outdated" in bench.ear.warnings[0]
    assert scene.succeed(attempt=2, claim="c2").accepted == (True,)


def test_a_lapsed_claim_is_no_other_worker(scene: Scene) -> None:
    """Its worker is gone: a step that only workers without its task are left for suspends its run."""
    scene.dispatch("a")
    scene.claimed()
    scene.advance(61)
    execute(a_worker(scene), 1)
    assert scene.run().code == "TASK_NOT_FOUND"


def test_a_compensation_whose_task_is_missing_waits_as_if_never_sent(scene: Scene) -> None:
    """D5: the run is still being undone, by its own error; it is due in a while, and no attempt is spent."""
    ref = scene.begin()
    scene.write(ref, StepStatus.SUCCEEDED, result="1", step={"undo_task": TASK})
    scene.close(ref, status=RunStatus.COMPENSATING, error=BOOM, code="X")
    scene.open(by="p2")
    undo = new_step("undo", kind=StepKind.COMPENSATION, task=TASK, from_step=StepName("a"))
    scene.store.insert_steps(scene.ref(by="p2"), [undo])
    scene.close(scene.ref(by="p2"), sent=("undo",))
    assert scene.step("undo").status is StepStatus.SCHEDULED
    execute_step(a_worker(scene), RunId("r1"), [(StepName("undo"), 1)], TASK, may_continue=False)
    run, row = scene.run(), scene.step("undo")
    assert (run.status, run.error, run.code, run.pass_id) == (RunStatus.COMPENSATING, BOOM, "X", None)
    assert run.due_at is not None
    assert (row.status, row.attempt, row.sent_at) == (StepStatus.PENDING, 1, None)
