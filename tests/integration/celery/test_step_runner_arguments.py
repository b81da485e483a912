"""Arguments are checked before a row is written, instrumentation sees steps, and neither costs much (design 1)."""

from __future__ import annotations

import gc
import logging
import weakref
from datetime import date
from typing import Any

import pytest
from pydantic import ValidationError

from pikkuflow.errors import TaskNotFound
from pikkuflow.ports import AttemptEnd
from tests.calls import python_calls
from tests.integration.celery.step_ledger import Ledger
from tests.integration.celery.step_tasks import (
    Declined,
    Line,
    add,
    again,
    app,
    order_line,
    show,
    strict_line,
    task,
)


@pytest.fixture
def ledger() -> Ledger:
    """A runner on this file's app."""
    return Ledger(app)


class TestArguments:
    """Checked before a row is written."""

    @pytest.mark.parametrize("signature", [add.s(), add.s(1, 2, 3), add.s(1, wrong=2)])
    def test_arguments_that_do_not_fit_are_an_error_at_the_caller(self, ledger: Ledger, signature: Any) -> None:
        """``typing``, as ``apply_async`` does."""
        with pytest.raises(TypeError):
            ledger.route(signature)

    def test_a_task_without_typing_is_not_checked(self, ledger: Ledger) -> None:
        """``typing=False``."""
        task("loose", typing=False)(add.__wrapped__)
        assert ledger.route(app.tasks["shop.loose"].s(1, 2, 3)).args == (1, 2, 3)

    def test_a_bound_task_is_checked_without_its_self(self, ledger: Ledger) -> None:
        """``bind=True``."""
        assert ledger.route(again.s(1)).args == (1,)

    def test_an_unknown_task_is_known_to_be_unknown(self, ledger: Ledger) -> None:
        """It runs nothing, and says what to do."""
        assert not ledger.runner.is_known("far.away")
        with pytest.raises(TaskNotFound, match=r"far\.away") as missing:
            ledger.runner.run(ledger.work(app.signature("far.away")), ledger.commit)
        assert (missing.value.task, ledger.events) == ("far.away", [])

    def test_a_workflow_run_as_a_task_is_a_mistake_that_says_so(self, ledger: Ledger) -> None:
        """A parent that knew the child by name only; it must not start a run that nobody waits for."""
        task("order_like", pikkuflow_workflow="shop.order_like")(lambda_like)
        attempted = ledger.run(app.tasks["shop.order_like"].s())
        assert attempted.end is AttemptEnd.GAVE_UP
        assert "names the workflow" in str(attempted.error)


def lambda_like() -> None:
    """A body that must not run."""
    raise AssertionError("ran")


class TestPydantic:
    """``pydantic=True``: models travel as data, and what does not fit is an error before a row is written."""

    def test_a_model_is_dumped_and_comes_back_as_a_model(self, ledger: Ledger) -> None:
        """The result as well."""
        line = Line(sku="a", count=2, day=date(2026, 1, 2))
        route = ledger.route(order_line.s(line, times=3))
        assert route.args == ({"sku": "a", "count": 2, "day": "2026-01-02"},)
        assert ledger.run(order_line.s(line, times=3)).value == {"sku": "a", "count": 6, "day": "2026-01-02"}

    @pytest.mark.parametrize(
        "signature",
        [
            order_line.s({"sku": "a"}),
            order_line.s(line={"sku": "a", "count": "many"}),
            order_line.s({"sku": "a", "count": 1}, {"sku": 5}),
            strict_line.s({"sku": "a", "count": "1"}),
        ],
    )
    def test_data_that_is_no_such_model_is_refused_by_the_pass(self, ledger: Ledger, signature: Any) -> None:
        """Celery alone finds out on the worker, and every attempt would fail in the same way."""
        with pytest.raises(ValidationError):
            ledger.route(signature)

    def test_data_that_fits_is_left_as_it_is(self, ledger: Ledger) -> None:
        """Also where the task is lax."""
        assert ledger.route(order_line.s({"sku": "a", "count": "1"})).args == ({"sku": "a", "count": "1"},)
        assert ledger.route(strict_line.s({"sku": "a", "count": 1})).args == ({"sku": "a", "count": 1},)

    def test_arguments_that_do_not_bind_are_a_type_error(self, ledger: Ledger) -> None:
        """As for other tasks."""
        with pytest.raises(TypeError):
            ledger.route(order_line.s())


class TestInstrumentation:
    """OpenTelemetry's and Sentry's Celery integrations see steps (design 1)."""

    def test_a_run_that_was_wrapped_is_what_runs(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        """Sentry puts its wrapper on the task object; the undecorated function is never called around it."""
        inner = add.run
        monkeypatch.setattr(add, "run", lambda *args, **kwargs: ("wrapped", inner(*args, **kwargs)))
        assert ledger.run(add.s(1, 2)).value == ("wrapped", 3)

    def test_headers_of_a_trace_reach_the_request(self, ledger: Ledger) -> None:
        """``traceparent`` is read from the request by OpenTelemetry's getter."""
        ledger.run(show.s().set(headers={"traceparent": "00-1-2-01"}))
        assert ledger.attempted[-1].value["headers"] == {"traceparent": "00-1-2-01"}


class TestPrice:
    """A step in place costs a commit, not a runner."""

    def test_running_a_task_adds_little(self, ledger: Ledger) -> None:
        """Signals and log lines included, it calls few functions."""
        runner, work = ledger.runner, ledger.work(add.s(1, 2))
        runner.run(work, lambda _attempted: True)
        assert python_calls(lambda: runner.run(work, lambda _attempted: True)) <= 120

    def test_a_failed_attempt_keeps_nothing_alive(self, ledger: Ledger) -> None:
        """The locals of its frames go with it, without waiting for the garbage collector (celery issue 8882)."""
        # given
        kept: list[weakref.ref[Any]] = []

        class Big:
            """Something that a task works on."""

        def failing() -> None:
            big = Big()
            kept.append(weakref.ref(big))
            raise Declined("no")

        task("failing")(failing)
        runner, work = ledger.runner, ledger.work(app.tasks["shop.failing"].s())
        gc.collect()
        gc.disable()
        logging.disable(logging.CRITICAL)  # pytest keeps the records
        try:
            # when
            runner.run(work, lambda _attempted: True)
            # then
            assert kept[0]() is None
        finally:
            gc.enable()
            logging.disable(logging.NOTSET)
