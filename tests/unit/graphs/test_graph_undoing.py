"""A graph run is undone as a function's is, node by node (spec 2.12, 3.6; T13.17 mirrors T11.1 to T11.17)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow import Undo, ref
from pikkuflow.errors import RunFailed
from tests.unit.graphs.stage import Stage

DEAD: dict[str, Any] = {"retries": 0, "compensate": False}


def _undone(stage: Stage) -> list[str]:
    return [line for line in stage.diary if line.startswith("un")]


def _undo_rows(stage: Stage) -> dict[str, str]:
    return {step.name: step.status.value for step in stage.steps() if step.name.endswith(":compensate")}


def _careful(stage: Stage, fails: int = 0, only: str | None = None) -> list[tuple[Undo, tuple[Any, ...]]]:
    """A task ``careful`` whose compensation fails that often, for that step or for each, and what it was told when it did not."""
    told: list[tuple[Undo, tuple[Any, ...]]] = []
    left: dict[str, int] = {}

    @stage.pikku.app.task(name="careful", shared=False)
    def careful(*args: Any) -> list[Any]:
        return ["did", *args]

    @stage.pikku.compensates(careful)
    def uncareful(undo: Undo, *args: Any) -> None:
        left[undo.step] = left.get(undo.step, fails if only in {None, undo.step} else 0)
        if left[undo.step]:
            left[undo.step] -= 1
            raise ValueError("glued")
        told.append((undo, args))

    return told


def test_a_graph_that_ends_well_undoes_nothing(stage: Stage) -> None:
    """T13.17 (T11.1): a milestone changes nothing either."""
    stage.play(a=["b", "m"], b=None, m={"milestone": "half", "next": "c"}, c=None)

    assert stage.status == "completed"
    assert _undone(stage) == []
    assert _undo_rows(stage) == {}


def test_a_node_is_undone_with_what_it_was_called_with_and_how_it_ended(stage: Stage) -> None:
    """T13.17 (T11.2, T11.4, T11.5, T11.10, T11.11): its own arguments and output; the run's error stays, and the rows say what they are."""
    told = _careful(stage)
    stage.says["c"] = ValueError("payment dead")
    stage.play(
        trigger=7,
        a={"task": "careful", "next": "b"},
        b={"task": "careful", "input": [ref("a"), 2], "next": "c"},
        c=DEAD,
    )

    assert told == [
        (Undo(ok=True, output=["did", ["did", 7], 2], error=None, error_type=None, step="b"), (["did", 7], 2)),
        (Undo(ok=True, output=["did", 7], error=None, error_type=None, step="a"), (7,)),
    ]
    assert _undo_rows(stage) == {"b:compensate": "succeeded", "a:compensate": "succeeded"}
    assert stage.status == "compensated"
    with pytest.raises(RunFailed, match="payment dead"):
        stage.run.result(timeout=0)


def test_the_failed_node_is_undone_first_and_told_that_it_failed(stage: Stage) -> None:
    """T13.17 (T11.2, T11.3): no output, its error and its name."""
    told: list[Undo] = []

    @stage.pikku.app.task(name="frail", shared=False)
    def frail(_value: Any = None) -> None:
        raise ValueError("payment dead")

    @stage.pikku.compensates(frail)
    def unfrail(undo: Undo, _value: Any = None) -> None:
        told.append(undo)
        stage.diary.append("unfrail")

    stage.play(a="b", b={"task": "frail", "input": [], "retries": 0})

    assert _undone(stage) == ["unfrail", "una"]
    (undo,) = told
    assert (undo.ok, undo.output, undo.step, undo.error, undo.error_type) == (
        False,
        None,
        "b",
        "payment dead",
        "ValueError",
    )


def test_nodes_whose_tasks_have_no_compensation_are_passed_over(stage: Stage) -> None:
    """T13.17 (T11.6, T11.7): with none at all the run has failed, and has no such rows."""

    @stage.pikku.app.task(name="plain", shared=False)
    def plain(*_: Any) -> None: ...

    stage.says["c"] = stage.says["z"] = ValueError("dead")
    stage.play(a="b", b={"task": "plain", "next": "c"}, c=DEAD)
    assert (_undone(stage), stage.status) == (["una"], "compensated")

    bare = stage.graph("y", name="bare", y={"task": "plain", "next": "z"}, z=DEAD)
    run = bare.using(run_id="r2")
    stage.run = run.run_inline(None) if stage.place == "inline" else run.start(None)
    stage.world.work()
    assert (stage.status, _undo_rows(stage)) == ("failed", {})


def test_what_is_wrong_with_the_graph_itself_undoes_too(stage: Stage) -> None:
    """T13.17 (T11.9): no step failed; the run did."""
    stage.says["a"] = {"lines": "abc"}
    stage.play(a="b", b={"for_each": ref("a", "lines")})

    assert _undone(stage) == ["una"]
    assert (stage.status, stage.code) == ("compensated", "GRAPH_NODE_FAILED")


def test_a_compensation_that_fails_is_tried_again(stage: Stage) -> None:
    """T13.17 (T11.12, T11.14, T11.17): the third try works; it is not undone itself; the node's own attempts all came before."""
    told = _careful(stage, fails=2)
    stage.says["b"] = ValueError("dead")
    stage.play(a={"task": "careful", "input": [1], "next": "b"}, b={**DEAD, "retries": 2, "retry_delay": 1})

    assert [args for _, args in told] == [(1,)]
    assert stage.step("a:compensate").attempt == 3
    assert list(_undo_rows(stage)) == ["a:compensate"]
    assert stage.diary == ["b", "b", "b"]
    assert stage.status == "compensated"


def test_a_stuck_compensation_blocks_what_came_before_and_no_branch_beside_it(stage: Stage) -> None:
    """T13.17 (T11.13, T11.15, T11.16): it is named, the branches' common start is left alone, and nothing is called undone."""
    told = _careful(stage, fails=100, only="c")
    careful = {"task": "careful", "input": []}
    stage.says["d"] = ValueError("dead")
    stage.play(
        a={**careful, "next": ["b", "c"]},
        b={**careful, "next": "d"},
        c={**careful, "next": "d"},
        d={**DEAD, "input": [ref("b"), ref("c")]},
    )

    assert [undo.step for undo, _ in told] == ["b"]
    assert stage.status == "compensation_failed"
    assert stage.run.status().stuck_steps == ({"stepName": "c", "error": "glued"},)
