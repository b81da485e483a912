"""What cannot be made durable is refused by name, before any run exists (issue E, bad input)."""

from __future__ import annotations

from typing import Any

import pytest
from celery import chain, group

from pikkuflow.domain.run import RunFilter
from pikkuflow.errors import PayloadError, WorkflowDefinitionError
from tests.unit.canvas.stage import Stage

REFUSED: dict[str, tuple[Any, str]] = {
    "a callback that is no signature": (lambda s: s.a.s(1).set(link=[print]), "print.*the link of 'a'"),
    "an errback that is no signature": (lambda s: s.a.s(1).set(link_error="boom"), "'boom', the link_error of 'a'"),
    "a task that nobody knows": (lambda s: s.a.s(1) | s.pikku.app.signature("shop.gone"), "'shop.gone'.*not known"),
    "an unknown task in a callback": (lambda s: s.a.s(1).set(link=[{"task": "shop.gone"}]), "'shop.gone'.*not known"),
    "a signature that was frozen": (lambda s: _frozen(s.a.s(1)), "'a' carries task_id"),
    "a function": (lambda _s: print, "print.*is no signature"),
    "nothing": (lambda _s: None, "None.*is no signature"),
    "an empty group": (lambda _s: group(), "no task in it"),
    "an empty chain": (lambda _s: {"task": "celery.chain", "kwargs": {"tasks": []}}, "no task in it"),
    "a member that is no signature": (lambda s: _group([s.a.s(1), 7]), "7, a member of a group"),
    "a chord without a body": (lambda _s: {"task": "celery.chord", "kwargs": {"header": []}}, "the body of a chord"),
    "items that are no list": (lambda s: _with(s.a.map([]), it=7), "7, the items of map"),
    "starmap over what is no list": (lambda s: s.a.starmap([1]), "starmap over 'a'"),
    "chunks of nothing": (lambda s: s.a.chunks([(1,)], 0), "Chunks of 0"),
    "a chord of nothing": (lambda _s: {"task": "celery.chord"}, "the body of a chord"),
    "a map of nothing": (lambda _s: {"task": "celery.map"}, "the task of map"),
    "a map over a chain": (lambda s: _with(s.a.map([1]), task=s.a.s() | s.b.s()), "chain cannot be the task of map"),
    "arguments that are no list": (lambda s: _group([{"task": "a", "args": "xy"}, s.a.s(1)]), "args of 'a'.*'xy'"),
    "keywords that are no mapping": (lambda _s: {"task": "a", "kwargs": [1]}, "kwargs of 'a'"),
    "options that are no mapping": (lambda _s: {"task": "a", "options": "queue"}, "options of 'a'"),
    "a canvas that holds itself": (lambda _s: _endless(), "holds itself"),
    "a countdown that is no number": (lambda s: s.a.s(1).set(countdown="soon"), "countdown='soon'.*'a'"),
    "a countdown past every calendar": (lambda s: s.a.s(1).set(countdown=1e18), "countdown=1e.18.*'a'"),
    "a time that is none": (lambda s: s.a.s(1).set(eta="soon"), "eta='soon'.*'a'"),
    "a limit that is no number": (lambda s: s.a.s(1).set(time_limit="x"), "time_limit='x'.*'a'"),
    "a queue that is no name": (lambda s: s.a.s(1).set(queue=7), "queue=7.*'a'"),
    "headers that are no mapping": (lambda s: s.a.s(1).set(headers=7), "headers=7.*'a'"),
    "a task that moves runs": (
        lambda _s: {"task": "pikkuflow.sweep", "args": ["stalled"]},
        "'pikkuflow.sweep' is.*own",
    ),
    "an option that is no JSON": (lambda s: s.a.s(1).set(headers={"x": object()}), "'a'.*JSON"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_durable_is_refused_by_name(here: Stage, what: str) -> None:
    """One clear error with what to look at, and no run."""
    build, named = REFUSED[what]
    with pytest.raises(WorkflowDefinitionError, match=named):
        here.pikku.durable(build(here))
    assert here.world.store.list_runs(RunFilter(), limit=1) == ()


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.a.s(object()),
        lambda s: s.b.s(1) | s.a.s(x=object()),
        lambda s: s.a.map([object()]),
        lambda s: group(s.a.s(object()), s.a.s(1)),
    ],
    ids=["argument", "keyword", "item", "member"],
)
def test_an_argument_that_cannot_be_stored_is_refused_with_its_task(here: Stage, build: Any) -> None:
    """As an argument of a step: when the canvas is started, and no run is made."""
    with pytest.raises(PayloadError, match="arguments of 'a'"):
        here.pikku.durable(build(here)).start()
    assert here.world.store.list_runs(RunFilter(), limit=1) == ()


def test_nothing_of_the_canvas_is_changed(here: Stage) -> None:
    """It may be used again, here and in Celery."""
    made = chain(here.a.s(1), group(here.b.s(), here.c.s()), here.d.s())
    made.link(here.e.s())
    made.on_error(here.e.s())
    before = repr(dict(made)), str(made)
    here.play(made, 5)
    assert (repr(dict(made)), str(made)) == before


def test_two_canvases_under_one_id_are_refused(here: Stage) -> None:
    """The same arguments in another shape are another canvas."""
    here.pikku.durable(here.a.s(1)).start(run_id="x")
    here.pikku.durable(here.a.s(1)).start(run_id="x")
    with pytest.raises(Exception, match="another input"):
        here.pikku.durable(here.b.s(1)).start(run_id="x")


def _frozen(signature: Any) -> Any:
    signature.freeze()
    return signature


def _endless() -> Any:
    made: dict[str, Any] = {"task": "celery.chain", "kwargs": {"tasks": []}}
    made["kwargs"]["tasks"].append(made)
    return made


def _with(signature: Any, **kwargs: Any) -> Any:
    signature["kwargs"].update(kwargs)
    return signature


def _group(tasks: list[Any]) -> Any:
    return {"task": "celery.group", "kwargs": {"tasks": tasks}}


def test_a_chord_as_written_by_hand_is_read(here: Stage) -> None:
    """A header that is a group's mapping, as JSON may have it."""
    header = {"task": "celery.group", "kwargs": {"tasks": [here.a.s(1), here.b.s()]}}
    run = here.play({"task": "celery.chord", "kwargs": {"header": header, "body": here.c.s()}})
    assert run.result(timeout=0) == ["c", [["a", 1], ["b"]]]


@pytest.mark.parametrize("given", [{"run_id": 7}, {"run_id": ""}, {"owner": "a\0b"}])
def test_a_run_id_or_owner_that_cannot_be_stored_makes_no_run(stage: Stage, given: dict[str, Any]) -> None:
    """Bad input: as for a workflow, one error that names it."""
    with pytest.raises(PayloadError, match=next(iter(given))):
        stage.pikku.durable(stage.a.s()).start(**given)
