"""A durable canvas is a run like any other: shown, steered, called off, found again; and it is a step of a workflow."""

from __future__ import annotations

from typing import Any

import pytest
from celery import chain, chord, group

from pikkuflow import RunCancelled, RunFailed, Workflow
from pikkuflow.engine.execute_step import execute_step
from pikkuflow.engine.orchestrate import orchestrate
from pikkuflow.errors import WorkflowDefinitionError
from tests.unit.canvas.stage import PLACES, Stage, staged


def test_a_canvas_is_shown_as_its_steps(stage: Stage) -> None:
    """Each named after its task, each after the one that led to it."""
    stage.play(chain(stage.a.s(1), group(stage.b.s(), stage.c.s()), stage.a.s()))
    assert stage.run.head().workflow == "pikkuflow.canvas"
    assert {step.name: step.from_step for step in stage.steps()} == {"a": None, "b": "a", "c": "a", "a 2": "b"}


def test_lost_messages_cost_time_and_nothing_else() -> None:
    """Pain 12: step n succeeded and n + 1 was never published; a broker that forgets everything, again and again."""
    with staged("away") as stage:
        canvas = chord([chain(stage.a.s(n), stage.b.s()) for n in range(3)], stage.c.s())
        run = stage.pikku.durable(canvas).start(run_id="r1")
        for _ in range(40):
            stage.world.lose_messages()
            stage.world.advance("2m")
            stage.world.sweep()
            stage.world.work()
        assert run.result(timeout=0) == ["c", [["b", ["a", n]] for n in range(3)]]
        assert sorted(call[0] for call in stage.calls) == ["a"] * 3 + ["b"] * 3 + ["c"]


def test_messages_that_come_twice_make_no_second_join() -> None:
    """Pain 9: the header is delivered again, and again after its end; the body runs once, with one outcome of each member."""
    with staged("away") as stage:
        run = stage.pikku.durable(chord([stage.a.s(1), stage.b.s()], stage.c.s())).start(run_id="r1")
        again: list[Any] = []
        dispatcher = stage.world.dispatcher
        while dispatcher.wakes or dispatcher.messages:
            for wake in [*dispatcher.take_wakes()] * 2:
                orchestrate(stage.world.runtime, [wake.id])
            again += dispatcher.take_messages()
            for steps in again:
                named = [(step.name, step.attempt) for step in steps]
                execute_step(stage.world.runtime, steps[0].run_id, named, steps[0].task, may_continue=True)
        assert run.result(timeout=0) == ["c", [["a", 1], ["b"]]]
        assert sorted(call[0] for call in stage.calls) == ["a", "b", "c"]


def test_a_canvas_may_take_longer_than_any_result_is_kept() -> None:
    """Pain 10: ten days between the members of a fan-out and its join; Celery keeps results for one."""
    with staged("away") as stage:
        canvas = chord([stage.a.s(1), stage.b.s().set(countdown=10 * 86_400)], stage.c.s())
        run = stage.pikku.durable(canvas).start(run_id="r1")
        stage.world.advance("9d")
        assert [call[0] for call in stage.calls] == ["a"]
        stage.world.advance("2d")
        assert run.result(timeout=0) == ["c", [["a", 1], ["b"]]]


def test_a_run_is_finished_by_a_worker_that_never_saw_its_canvas() -> None:
    """The graph is stored before the run is, and the process that works it reads it there."""
    with staged("away") as stage:
        run = stage.pikku.durable(chain(stage.a.s(1), group(stage.b.s(), stage.c.s()), stage.d.s())).start(run_id="r1")
        stage.world.runtime.versions.clear()
        stage.world.settle()
        assert run.result(timeout=0) == ["d", [["b", ["a", 1]], ["c", ["a", 1]]]]


def test_a_canvas_that_is_called_off_begins_nothing_more() -> None:
    """Pain 11: a cancel has one meaning wherever the run is; the join does not begin, and no errback is told."""
    with staged("away") as stage:
        canvas = chord([stage.a.s(1), stage.b.s().set(countdown=60)], stage.c.s())
        canvas.body.on_error(stage.told.s())
        run = stage.pikku.durable(canvas).start(run_id="r1")
        stage.world.work()
        run.cancel("no longer wanted")
        stage.world.settle()
        with pytest.raises(RunCancelled):
            run.result(timeout=0)
        assert stage.calls == [["a", 1]]


@pytest.mark.parametrize("place", PLACES)
def test_a_branch_that_is_tried_again_holds_the_join_back(place: str) -> None:
    """Pains 3, 4 and 15: a retry is a state of the same step; the join runs once, after it, and nothing is lost behind it."""
    left = [2]
    with staged(place, retries=3) as stage:

        @stage.pikku.app.task(name="shaky", shared=False, bind=True, max_retries=5)
        def shaky(self: Any) -> str:
            left[0] -= 1
            if left[0] >= 0:
                raise self.retry(countdown=1)
            return "at last"

        run = stage.play(chain(chord([shaky.s(), stage.a.s(1)], stage.b.s()), stage.c.s()))
        assert run.result(timeout=0) == ["c", ["b", ["at last", ["a", 1]]]]
        assert [call[0] for call in stage.calls].count("b") == 1


def test_what_a_failed_canvas_did_is_undone(stage: Stage) -> None:
    """Pain 7: a failure in a nested branch undoes what has a compensation, wherever in the canvas it was."""
    undone: list[Any] = []

    @stage.pikku.compensates(stage.a)
    def undo(undo: Any, *args: Any) -> None:
        undone.append([undo.step, *args])

    stage.says["c"] = ValueError("no")
    stage.play(chain(stage.a.s(1), group(chain(stage.a.s(), stage.c.s()), stage.b.s()), stage.d.s()))
    assert stage.status == "compensated"
    assert undone == [["a 2", ["a", 1]], ["a", 1]]


class TestInAWorkflow:
    """``wf.do(chain(...))``: a canvas is a child run, and one step of its parent."""

    def test_a_workflow_does_a_canvas(self, stage: Stage) -> None:
        """Each kind, with and without a name; the steps are named after the shape."""

        @stage.pikku.workflow(name="parent")
        def parent(wf: Workflow) -> Any:
            first = wf.do(chain(stage.a.s(1), stage.b.s()))
            second = wf.do(stage.a.s(2) | stage.b.s())
            third = wf.do("both", group(stage.a.s(3), stage.b.s()))
            fourth = wf.do(chord([stage.a.s(4), stage.b.s()], stage.c.s()))
            fifth = wf.do(stage.a.map([1, 2]))
            return [first, second, third, fourth, fifth]

        run = _started(stage, parent)
        assert run.result(timeout=0) == [
            ["b", ["a", 1]],
            ["b", ["a", 2]],
            [["a", 3], ["b"]],
            ["c", [["a", 4], ["b"]]],
            [["a", 1], ["a", 2]],
        ]
        assert [step.name for step in stage.steps()] == ["chain", "chain#1", "both", "chord", "map"]

    def test_canvases_go_side_by_side_and_over_items(self, stage: Stage) -> None:
        """``wf.submit`` and ``wf.map`` take what ``wf.do`` takes; an item is the first argument of the first tasks."""

        @stage.pikku.workflow(name="parent")
        def parent(wf: Workflow) -> Any:
            both = wf.gather(wf.submit(chain(stage.a.s(1), stage.b.s())), wf.submit(stage.c.s()))
            return [*both, wf.map(chain(stage.a.s(), stage.b.s()), [1, 2])]

        run = _started(stage, parent)
        assert run.result(timeout=0) == [["b", ["a", 1]], ["c"], [["b", ["a", 1]], ["b", ["a", 2]]]]

    def test_a_failure_is_the_steps(self, stage: Stage) -> None:
        """The workflow sees ``StepFailed``; unhandled, it fails its run."""
        stage.says["b"] = ValueError("no")

        @stage.pikku.workflow(name="parent")
        def parent(wf: Workflow) -> Any:
            return wf.do(chain(stage.a.s(1), stage.b.s()))

        with pytest.raises(RunFailed, match="no"):
            _started(stage, parent).result(timeout=0)

    def test_what_cannot_be_durable_is_refused_in_the_workflow(self, stage: Stage) -> None:
        """Where it was written, and no child is made."""
        caught: list[WorkflowDefinitionError] = []

        @stage.pikku.workflow(name="parent")
        def parent(wf: Workflow) -> None:
            try:
                wf.do(chain(stage.a.s(1), stage.b.s().set(link=[print])))
            except WorkflowDefinitionError as error:
                caught.append(error)

        assert _started(stage, parent).result(timeout=0) is None
        assert "the link of 'b'" in str(caught[0])
        assert stage.steps() == ()

    def test_a_workflow_is_a_task_of_a_canvas(self, stage: Stage) -> None:
        """As a child run, whose outcome goes on."""

        @stage.pikku.workflow(name="child")
        def child(wf: Workflow, value: Any) -> Any:
            return wf.do(stage.b.s(value))

        assert stage.play(chain(stage.a.s(1), child.s(), stage.c.s())).result(timeout=0) == ["c", ["b", ["a", 1]]]


def _started(stage: Stage, workflow: Any) -> Any:
    if stage.place == "inline":
        stage.run = workflow.run_inline(run_id="r1")
    else:
        stage.run = workflow.start(run_id="r1")
        stage.world.settle()
    return stage.run
