"""What a user may hand to ``wf``, and the plain call that it becomes (design 1)."""

from __future__ import annotations

import json
from datetime import date
from functools import partial
from typing import Any

import pytest
from celery import Celery, Task, chain, chord, group

from pikkuflow.adapters.celery.translate import SignatureTranslator
from pikkuflow.domain.canvas import canvas_definition
from pikkuflow.domain.definition import Registry, WorkflowDefinition
from pikkuflow.domain.status import Dispatch, StepKind
from pikkuflow.errors import WorkflowDefinitionError
from pikkuflow.replay.options import PLAIN, StepOptions, step_options
from tests.calls import python_calls

app = Celery("shop", broker="memory://", set_as_current=False)


@app.task(name="shop.charge", shared=False)
def charge(order_id: int, cents: int = 0) -> str:
    """Charge."""
    return f"{order_id}:{cents}"


@app.task(name="shop.invoice", shared=False)
def invoice_task() -> None:
    """Stands for the Celery task of a workflow."""


def today() -> str:
    """The date."""
    return date(2026, 12, 1).isoformat()


async def later() -> None:
    """A coroutine."""


@pytest.fixture
def translate() -> SignatureTranslator:
    """A translator that knows one workflow and one compensation."""
    registry = Registry([canvas_definition()])
    registry.add(WorkflowDefinition(name="shop.invoice", body=lambda wf: wf, version="1"))
    return SignatureTranslator(app, registry, undo_task_of={"shop.charge": "shop.refund"}.get)


def test_a_signature_is_a_call_of_its_task(translate: SignatureTranslator) -> None:
    """Named after the task's full Celery name, with the signature's own options."""
    call = translate(charge.s(1, cents=999).set(queue="vip", priority=3), None, PLAIN)
    assert (call.name, call.kind, call.task) == ("shop.charge", StepKind.TASK, "shop.charge")
    assert (call.args, call.kwargs) == ((1,), {"cents": 999})
    assert call.options == {"queue": "vip", "priority": 3}


def test_the_name_given_is_the_steps(translate: SignatureTranslator) -> None:
    """``wf.do("charge card", charge.s(…))``."""
    assert translate(charge.s(1), "charge card", PLAIN).name == "charge card"


@pytest.mark.parametrize(
    "what",
    [
        charge.s(1, 2),
        charge.si(1, 2),
        charge.s(2).clone(args=(1,)),
        json.loads(json.dumps(charge.s(1, 2))),
        app.signature("shop.charge", args=(1, 2)),
    ],
    ids=["full", "immutable", "completed", "dict", "by name"],
)
def test_every_form_of_a_signature_is_read_alike(translate: SignatureTranslator, what: Any) -> None:
    """A JSON round trip gives a plain dict; it is a signature still."""
    call = translate(what, None, PLAIN)
    assert (call.kind, call.task, call.args) == (StepKind.TASK, "shop.charge", (1, 2))


def test_a_task_known_by_name_only_is_a_task(translate: SignatureTranslator) -> None:
    """Its worker knows it; this process need not."""
    call = translate(app.signature("far.away", args=(1,)), None, PLAIN)
    assert (call.name, call.kind, call.task) == ("far.away", StepKind.TASK, "far.away")


@pytest.mark.parametrize("what", [invoice_task.s(5), invoice_task, app.signature("shop.invoice", args=(5,))])
def test_a_workflow_is_a_child_run(translate: SignatureTranslator, what: Any) -> None:
    """By its task, its signature or its name."""
    call = translate(what, None, PLAIN)
    assert (call.kind, call.task, call.name) == (StepKind.CHILD, "shop.invoice", "shop.invoice")


def test_a_workflow_of_another_registry_is_told_by_its_task(translate: SignatureTranslator) -> None:
    """The attribute ``pikkuflow_workflow`` of the registered task."""

    class WorkflowLike(Task):  # type: ignore[type-arg]
        name = "shop.returns"
        pikkuflow_workflow = "shop.returns"

    app.register_task(WorkflowLike())
    assert translate(app.signature("shop.returns"), None, PLAIN).kind is StepKind.CHILD


def test_a_function_is_remembered_under_its_name(translate: SignatureTranslator) -> None:
    """A lambda needs one; a partial has its function's."""
    assert translate(today, None, PLAIN).name == "today"
    call = translate(lambda: 7, "seven", PLAIN)
    assert (call.kind, call.name, call.task) == (StepKind.FUNCTION, "seven", None)
    assert call.function is not None
    assert call.function() == 7
    assert translate(partial(max, 1, 2), None, PLAIN).name == "max"


class TestMembers:
    """``wf.map(task, items)`` calls ``task(item)``."""

    def test_a_task_gets_the_item(self, translate: SignatureTranslator) -> None:
        """As its only argument."""
        assert translate(translate.member(charge, 5), "m[0]", PLAIN).args == (5,)

    def test_a_partial_signature_is_completed_as_celery_does(self, translate: SignatureTranslator) -> None:
        """The item comes first; keywords and options stay."""
        call = translate(translate.member(charge.s(999).set(queue="vip"), 5), None, PLAIN)
        assert (call.args, call.options) == ((5, 999), {"queue": "vip"})

    def test_an_immutable_signature_keeps_its_arguments(self, translate: SignatureTranslator) -> None:
        """As in a chain."""
        assert translate(translate.member(charge.si(1), 5), None, PLAIN).args == (1,)

    def test_a_workflow_and_a_function_get_the_item(self, translate: SignatureTranslator) -> None:
        """Child runs and inline functions can be mapped, too."""
        child = translate(translate.member(invoice_task, 5), None, PLAIN)
        assert (child.kind, child.args) == (StepKind.CHILD, (5,))
        call = translate(translate.member(lambda item: item * 2, 5), "doubled", PLAIN)
        assert call.function is not None
        assert call.function() == 10


def test_options_are_taken_over(translate: SignatureTranslator) -> None:
    """And left to the settings where nothing was said."""
    options = step_options({"retries": 0, "retry_delay": "10s", "no_retry_on": ValueError, "dispatch": "queue"})
    call = translate(charge.s(1), None, options)
    assert (call.retries, float(call.retry_delay or 0), call.no_retry_on) == (0, 10, (ValueError,))
    assert call.dispatch is Dispatch.QUEUE
    plain = translate(charge.s(1), None, PLAIN)
    assert (plain.retries, plain.retry_delay, plain.dispatch) == (None, None, None)


def test_a_compensated_task_is_compensable_unless_told_otherwise(translate: SignatureTranslator) -> None:
    """``compensate=False`` leaves it out."""
    assert translate(charge.s(1), None, PLAIN).undo_task == "shop.refund"
    assert translate(charge.s(1), None, StepOptions(compensate=False)).undo_task is None
    assert translate(app.signature("far.away"), None, PLAIN).undo_task is None


class TestRefused:
    """One clear error each, in the body, before anything is written."""

    @pytest.mark.parametrize(
        ("build", "named"),
        [
            (lambda: charge.s(1).set(link=charge.s(2)), "link"),
            (lambda: charge.s(1).set(link_error=charge.s(2)), "link_error"),
            (lambda: charge.s(1).set(task_id="x"), "task_id"),
        ],
    )
    def test_options_that_a_step_cannot_have(self, translate: SignatureTranslator, build: Any, named: str) -> None:
        """Design 1: ``link``, ``link_error`` and ``task_id`` are refused, with what to write instead."""
        with pytest.raises(WorkflowDefinitionError, match=f"{named}\\.") as caught:
            translate(build(), None, PLAIN)
        assert caught.value.hint

    @pytest.mark.parametrize(
        "build",
        [
            lambda: chain(charge.s(1), charge.s(2)),
            lambda: group(charge.s(1), charge.s(2)),
            lambda: chord([charge.s(1), charge.s(2)], charge.s(3)),
            lambda: charge.map([1, 2]),
            lambda: charge.chunks([(1, 2)], 1),
        ],
        ids=["chain", "group", "chord", "map", "chunks"],
    )
    def test_canvas_is_a_run_of_its_own(self, translate: SignatureTranslator, build: Any) -> None:
        """Issue E, Build 3: a child run, named after its shape, and looked into only when it is new."""
        call = translate(build(), None, PLAIN)
        assert (call.kind, call.task) == (StepKind.CHILD, "pikkuflow.canvas")
        assert build()["task"] == f"celery.{call.name}"
        assert call.canvas is not None
        assert call.canvas().graph.fail_late

    @pytest.mark.parametrize(
        "what",
        ["shop.charge", 7, None, {"args": [1]}, later, lambda: 1, Task],
        ids=["text", "number", "none", "dict", "coroutine", "lambda without a name", "task class"],
    )
    def test_what_is_no_step(self, translate: SignatureTranslator, what: Any) -> None:
        """Named by its repr or its nature."""
        with pytest.raises(WorkflowDefinitionError):
            translate(what, None, PLAIN)


def test_reading_a_signature_is_cheap(translate: SignatureTranslator) -> None:
    """It happens for every step of every replay, so it may call no more than a handful of functions (perf.md)."""
    signature = charge.s(1, cents=2)
    translate(signature, None, PLAIN)
    assert python_calls(lambda: translate(signature, None, PLAIN)) <= 15
