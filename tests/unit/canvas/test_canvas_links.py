"""Partial arguments, options, callbacks and errbacks of a durable canvas (issue E, Build 3; recipes 3)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from celery import chain, chord, group

from pikkuflow import RunFailed
from pikkuflow.domain.ids import StepName, invocation_id
from tests.unit.canvas.stage import Stage

BAD = ValueError("no")

PARTIAL: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "task": (lambda s: s.a.s(1), ["a", 7, 1, {"x": 8}]),
    "immutable task": (lambda s: s.a.si(1), ["a", 1]),
    "chain": (lambda s: s.a.s(1) | s.b.s(2), ["b", ["a", 7, 1, {"x": 8}], 2]),
    "chain(group(), d)": (lambda s: chain(group(), s.a.s(1)), ["a", 7, 1, {"x": 8}]),
    "group": (lambda s: group(s.a.s(1), s.b.s()), [["a", 7, 1, {"x": 8}], ["b", 7, {"x": 8}]]),
    "group of one task": (lambda s: group(s.a.s(1), s.a.s()), [["a", 7, 1, {"x": 8}], ["a", 7, {"x": 8}]]),
    "chord": (lambda s: chord([s.a.s(1), s.b.s()], s.c.s()), ["c", [["a", 7, 1, {"x": 8}], ["b", 7, {"x": 8}]]]),
    "map": (lambda s: s.a.map([1]), [["a", 1]]),
}


@pytest.mark.parametrize("shape", PARTIAL)
def test_partial_arguments_go_to_the_first_tasks(stage: Stage, shape: str) -> None:
    """As ``canvas.delay(7, x=8)`` has it: before their own, in every head that is not immutable."""
    build, value = PARTIAL[shape]
    assert stage.play(build(stage), 7, x=8).result(timeout=0) == value


def test_canvases_of_one_shape_share_a_version(here: Stage) -> None:
    """Arguments, also the members of a group, belong to the run: starting canvases in a loop stores one graph."""
    versions = {
        here.pikku.durable(chain(here.a.s(n), group(here.b.s(i) for i in range(n)), here.c.s())).graph.version
        for n in range(2, 6)
    }
    assert len(versions) == 1


@pytest.mark.parametrize(
    ("build", "queues"),
    [
        (lambda s: (s.a.s(1) | s.b.s()).set(queue="x"), {"a": "x", "b": None}),
        (lambda s: group(s.a.s(1).set(queue="y"), s.b.s()).set(queue="x"), {"a": "x", "b": "x"}),
        (lambda s: chord([s.a.s(1), s.b.s()], s.c.s()).set(queue="x"), {"a": "x", "b": "x", "c": "x"}),
        (lambda s: s.a.s(1) | s.b.s().set(queue="y"), {"a": None, "b": "y"}),
        (lambda s: s.a.map([1]).set(queue="x"), {"a": "x"}),
        (lambda s: chain(group(s.a.s(1), s.b.s()), s.c.s()).set(queue="x"), {"a": "x", "b": "x", "c": "x"}),
    ],
    ids=["chain", "group", "chord", "task", "map", "chain that is a chord"],
)
def test_options_reach_those_that_celery_gives_them_to(here: Stage, build: Any, queues: dict[str, str | None]) -> None:
    """Recipes 3: of a chain the first task only, of a group every member, over its own; of a chord header and body."""
    nodes = here.pikku.durable(build(here)).graph.nodes
    assert {name: (node.fields.get("options") or {}).get("queue") for name, node in nodes.items()} == queues


def test_a_countdown_is_the_steps_due_time(here: Stage) -> None:
    """A column, and no message that waits."""
    here.pikku.durable(here.a.s(1) | here.b.s().set(countdown=3600)).start(run_id="r1")
    here.world.work()
    here.world.advance("59m")
    assert [call[0] for call in here.calls] == ["a"]
    here.world.advance("2m")
    assert [call[0] for call in here.calls] == ["a", "b"]


def test_an_eta_is_kept_as_a_moment(here: Stage) -> None:
    """A ``datetime`` among options is no reason to refuse them."""
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    node = here.pikku.durable(here.a.s(1).set(eta=moment)).graph.nodes["a"]
    assert node.fields["options"] == {"eta": moment.isoformat()}


class TestCallbacks:
    """``link``: what follows a success, beside the canvas."""

    @pytest.mark.parametrize(
        ("build", "value", "call"),
        [
            (lambda s: _linked(s.a.s(1), s.c.s(9)), ["a", 1], ["c", ["a", 1], 9]),
            (lambda s: _linked(s.a.s(1), s.c.si(9)), ["a", 1], ["c", 9]),
            (lambda s: _linked(s.a.s(1) | s.b.s(), s.c.s()), ["b", ["a", 1]], ["c", ["b", ["a", 1]]]),
            (lambda s: _linked(s.a.s(1), s.c.s()) | s.b.s(), ["b", ["a", 1]], ["c", ["a", 1]]),
            (lambda s: _linked(group(s.a.s(1), s.b.s()), s.c.s()), [["a", 1], ["b"]], ["c"]),
            (lambda s: _linked(chord([s.a.s(1)], s.b.s()), s.c.s()), ["b", [["a", 1]]], ["c", ["b", [["a", 1]]]]),
            (lambda s: _linked(s.a.s(1), s.b.s() | s.c.s()), ["a", 1], ["c", ["b", ["a", 1]]]),
        ],
        ids=["task", "immutable", "chain", "in a chain", "group: its first", "chord: its body", "a chain as callback"],
    )
    def test_a_callback_gets_the_result(self, stage: Stage, build: Any, value: Any, call: Any) -> None:
        """After the last of a chain, the body of a chord, the first member of a group (where Celery makes it immutable)."""
        assert stage.play(build(stage)).result(timeout=0) == value
        assert call in stage.calls

    def test_a_callback_that_fails_changes_nothing(self, stage: Stage) -> None:
        """As with Celery: it is seen among the steps, and the canvas goes on."""
        stage.says["c"] = BAD
        run = stage.play(_linked(stage.a.s(1), stage.c.s() | stage.d.s()) | stage.b.s())
        assert run.result(timeout=0) == ["b", ["a", 1]]
        assert stage.ends() == {"a": "succeeded", "b": "succeeded", "c": "failed"}


class TestFailures:
    """What becomes of a canvas whose tasks fail."""

    def test_what_follows_does_not_begin(self, stage: Stage) -> None:
        """The run fails with the step's own error."""
        stage.says["b"] = BAD
        run = stage.play(stage.a.s(1) | stage.b.s() | stage.c.s())
        with pytest.raises(RunFailed, match="no"):
            run.result(timeout=0)
        assert stage.ends() == {"a": "succeeded", "b": "failed"}

    @pytest.mark.parametrize("same", [True, False], ids=["of one task", "of several"])
    def test_the_other_members_of_a_group_are_worked(self, stage: Stage, *, same: bool) -> None:
        """As with Celery; the chord's body does not begin, and the run fails when all have ended."""
        stage.says["a" if not same else "a[0]"] = BAD
        members = [stage.a.s(1), stage.a.s(2), stage.a.s(3)] if same else [stage.a.s(1), stage.b.s(), stage.c.s()]
        run = stage.play(chord(members, stage.d.s()))
        with pytest.raises(RunFailed):
            run.result(timeout=0)
        assert len(stage.calls) == 3
        assert "d" not in stage.ends()

    def test_a_failure_deep_inside_reaches_the_run(self, stage: Stage) -> None:
        """Pain 6: the first step of a branch's chain fails, and the outer join is over at once."""
        stage.says["b"] = BAD
        branch = chain(stage.b.s(), stage.c.s())
        stage.play(chord([chain(stage.a.s(1), group(branch, stage.e.s())), stage.e.s()], stage.d.s()))
        assert stage.status == "failed"
        assert stage.ends() == {"a": "succeeded", "e": "succeeded", "b": "failed", "e 2": "succeeded"}


class TestErrbacks:
    """``link_error``: who is told of a failure."""

    @pytest.mark.parametrize(
        ("build", "failing"),
        [
            (lambda s: _on_error(s.a.s(1), s.told.s()), "a"),
            (lambda s: _on_error(s.a.s(1) | s.b.s() | s.c.s(), s.told.s()), "b"),
            (lambda s: _on_error(group(s.a.s(1), s.b.s()), s.told.s()), "a"),
            (lambda s: _on_error(chord([s.a.s(1), s.b.s()], s.c.s()), s.told.s()), "c"),
            (lambda s: _on_error(chord([s.a.s(1), s.b.s()], s.c.s()), s.told.s()), "a"),
            (lambda s: _on_error(chord([s.a.s(1), s.b.s()], s.c.s() | s.d.s()), s.told.s()), "b"),
        ],
        ids=["task", "chain", "group", "chord: body", "chord: header", "chord with a chain as body: header"],
    )
    def test_an_errback_gets_the_id_of_the_failed_step(self, stage: Stage, build: Any, failing: str) -> None:
        """As Celery's errbacks of one argument get the task's id; the run fails all the same."""
        stage.says[failing] = BAD
        stage.play(build(stage))
        assert stage.status == "failed"
        step_id = invocation_id(stage.run.run_id, StepName(failing))
        assert [call for call in stage.calls if call[0] == "told"] == [["told", step_id]]

    def test_a_chord_tells_its_errback_once(self, stage: Stage) -> None:
        """However many of its header fail."""
        stage.says |= {"a": BAD, "b": BAD}
        stage.play(_on_error(chord([stage.a.s(1), stage.b.s()], stage.c.s()), stage.told.s()))
        assert len([call for call in stage.calls if call[0] == "told"]) == 1

    def test_a_header_that_never_began_is_not_told_of(self, stage: Stage) -> None:
        """The members of a second group tell their errbacks of their own failures, not of the first group's."""
        stage.says["a"] = BAD
        second = chord([_on_error(stage.c.s(), stage.told.s()), stage.d.s()], stage.e.s())
        stage.play(chord([stage.a.s(1), stage.b.s()], second))
        assert stage.ends() == {"a": "failed", "b": "succeeded"}

    def test_each_member_of_a_group_tells_its_own(self, stage: Stage) -> None:
        """``group.on_error`` is the error handler of every member."""
        stage.says |= {"a": BAD, "b": BAD}
        stage.play(_on_error(group(stage.a.s(1), stage.b.s()), stage.told.s()))
        assert len([call for call in stage.calls if call[0] == "told"]) == 2

    def test_an_errback_may_be_a_canvas_and_immutable(self, stage: Stage) -> None:
        """Whatever may be linked in Celery."""
        stage.says["a"] = BAD
        stage.play(_on_error(stage.a.s(1), stage.d.si(1) | stage.e.s()))
        assert ["e", ["d", 1]] in stage.calls
        assert stage.status == "failed"

    def test_an_errback_of_three_arguments_gets_request_error_and_trace(self, stage: Stage) -> None:
        """The kind that Celery's own pages show."""
        found: list[Any] = []

        @stage.pikku.app.task(name="new", shared=False)
        def new(request: Any, exc: Any, traceback: Any, more: int) -> None:
            found.append((request.id, request.task, exc, traceback, more))

        stage.says["a"] = BAD
        stage.play(_on_error(stage.a.s(1), new.s(5)))
        ((step_id, task, error, trace, more),) = found
        assert (step_id, task, more) == (invocation_id(stage.run.run_id, StepName("a")), "a", 5)
        assert isinstance(error, ValueError)
        assert str(error) == "no"
        assert "ValueError: no" in trace
        assert stage.ends() == {"a": "failed", "new": "succeeded"}


def _linked(canvas: Any, callback: Any) -> Any:
    canvas.link(callback)
    return canvas


def _on_error(canvas: Any, errback: Any) -> Any:
    # Celery puts a chord's on its body, and warns that it may come to put it on the header as well.
    getattr(canvas, "body", canvas).on_error(errback)
    return canvas
