"""An existing task runs unchanged as a step (design 1, recipes.md 1; issue A, Build 3)."""

from __future__ import annotations

import gc
import logging
import time
import weakref
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from celery import Celery, Task, chain, current_task, group
from celery.exceptions import Ignore, MaxRetriesExceededError, Reject
from pydantic import BaseModel, ValidationError

from pikkuflow.adapters.celery.names import qualified_name
from pikkuflow.domain.ids import RunId, StepName, invocation_id
from pikkuflow.engine.current_step import CurrentStep, current_step
from pikkuflow.errors import PikkuFlowError, SettingError, TaskNotFound
from pikkuflow.ports import AttemptEnd
from pikkuflow.replay.options import step_options
from tests.integration.celery.published import Published, caught
from tests.integration.celery.step_ledger import Ledger

app = Celery("shop", broker="memory://", set_as_current=False)
STEP_ID = invocation_id(RunId("run-1"), StepName("step"))


class Declined(Exception):
    """A card was declined."""


class Unpicklable(Exception):
    """Cannot be made again from its arguments."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code}: {reason}")


class Calling(Task):  # type: ignore[type-arg]
    """A base class as many projects have one: its ``__call__`` wraps Celery's."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Celery's own, after whatever such a class does."""
        return super().__call__(*args, **kwargs)


def task(name: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``@app.task`` for this file's app alone."""
    return app.task(name=f"shop.{name}", shared=False, **options)


@task("add")
def add(left: int, right: int = 0) -> int:
    """Add."""
    return left + right


@task("show", bind=True)
def show(self: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """What a bound task sees."""
    request = self.request
    return {
        "id": request.id,
        "retries": request.retries,
        "headers": request.headers,
        "tenant": getattr(request, "tenant", None),
        "args": request.args,
        "kwargs": request.kwargs,
        "root": request.root_id,
        "parent": request.parent_id,
        "directly": request.called_directly,
        "eager": bool(request.is_eager),
        "delivery": request.delivery_info,
        "limits": request.timelimit,
        "current": current_task.name,
        "step": current_step(),
    }


@task("again", bind=True)
def again(self: Any, value: int = 0, **how: Any) -> None:
    """Ask for another attempt."""
    raise self.retry(**how)


@task("again_calling", bind=True, base=Calling)
def again_calling(self: Any, value: int = 0, **how: Any) -> None:
    """The same, with a base class that calls ``super().__call__``."""
    raise self.retry(**how)


@task("wrapped", bind=True)
def wrapped(self: Any, error: str) -> None:
    """Retry because of an error, as Celery's documentation shows it."""
    try:
        fail(error)
    except Exception as exc:
        raise self.retry(exc=exc, countdown=1) from exc


def fail(how: str) -> None:
    """Raise an error of that kind."""
    raise {"plain": ValueError("no"), "odd": Unpicklable(7, "odd")}[how]


@task("spent", bind=True, max_retries=2)
def spent(self: Any, *, tells: bool) -> None:
    """Retries of its own: two."""
    if tells:
        raise self.retry(exc=Declined("no"))
    raise self.retry()


@task("auto", autoretry_for=(Declined,), retry_kwargs={"max_retries": 2})
def auto() -> None:
    """Celery retries it by itself."""
    raise Declined("no")


@task("backoff", autoretry_for=(Declined,), retry_backoff=4, retry_jitter=False)
def backoff() -> None:
    """The same, with a growing delay."""
    raise Declined("no")


@task("patient", bind=True, default_retry_delay=30)
def patient(self: Any) -> None:
    """A retry delay of its own."""
    raise self.retry()


@task("boom")
def boom(message: str = "no") -> None:
    """Raise."""
    raise Declined(message)


@task("calls_other")
def calls_other() -> None:
    """Call another task as a function; that one wants to be retried."""
    again(exc=Declined("inner"))


@task("raises")
def raises(what: str) -> None:
    """Raise one of Celery's own."""
    raise {
        "ignore": Ignore("enough"),
        "reject": Reject("bad"),
        "requeue": Reject(Declined("later"), requeue=True),
        "exit": SystemExit(3),
    }[what]


@task("replaced", bind=True)
def replaced(self: Any, how: str) -> Any:
    """Hand over to something else."""
    raise self.replace(replacement(how))


@task("replaced_calling", bind=True, base=Calling)
def replaced_calling(self: Any, how: str) -> Any:
    """The same, with a base class that calls ``super().__call__``."""
    return self.replace(replacement(how))


def replacement(how: str) -> Any:
    """What takes over."""
    if how == "chain":
        return chain(add.s(1, 2), add.s(10))
    if how == "group":
        return group(add.s(1, 2), add.s(3, 4))
    return add.s(1, 2) if how == "task" else boom.s("replaced")


@task("returns_retry", bind=True)
def returns_retry(self: Any) -> Any:
    """Ask for another attempt without raising."""
    return self.retry(throw=False, countdown=5)


@task("delays")
def delays() -> None:
    """Send another task."""
    add.delay(1, 2)


@pytest.fixture
def ledger() -> Ledger:
    """A runner on this file's app."""
    return Ledger(app)


@pytest.fixture
def published() -> Iterator[list[Published]]:
    """What was published meanwhile."""
    with caught() as messages:
        yield messages


class TestRequest:
    """``self.request`` is filled as Celery fills it."""

    def test_a_bound_task_sees_its_step(self, ledger: Ledger) -> None:
        """Its id is the invocation id, its retries the attempts before; root and parent are the run."""
        # given
        signature = show.s(1, a=2).set(queue="vip", priority=3, headers={"tenant": "t1"})
        # when
        seen = ledger.run(signature, attempt=3).value
        # then
        assert (seen["id"], seen["retries"]) == (STEP_ID, 2)
        assert (seen["args"], seen["kwargs"]) == ([1], {"a": 2})
        assert (seen["root"], seen["parent"], seen["directly"]) == ("run-1", "run-1", False)
        assert (seen["headers"], seen["tenant"]) == ({"tenant": "t1"}, "t1")
        assert seen["delivery"] == {"exchange": "", "routing_key": "vip", "priority": 3, "redelivered": False}
        assert seen["current"] == "shop.show"

    def test_a_header_cannot_take_the_place_of_a_field(self, ledger: Ledger) -> None:
        """Only under ``headers``."""
        seen = ledger.run(show.s().set(headers={"id": "x", "retries": 9})).value
        assert (seen["id"], seen["retries"], seen["headers"]) == (STEP_ID, 0, {"id": "x", "retries": 9})

    def test_user_code_reads_that_it_is_not_eager(self, ledger: Ledger) -> None:
        """Django's fixup asks the same and closes its connections."""
        assert ledger.run(show.s()).value["eager"] is False

    def test_the_step_is_current_while_it_works(self, ledger: Ledger) -> None:
        """Design 1: run, step, attempt and the idempotency key; outside a step the question is an error."""
        assert ledger.run(show.s(), attempt=2).value["step"] == CurrentStep(
            run_id=RunId("run-1"),
            step=StepName("step"),
            attempt=2,
            invocation_id=STEP_ID,
            workflow="shop.order",
            owner="u1",
        )
        with pytest.raises(PikkuFlowError, match="outside a step"):
            current_step()

    def test_limits_are_the_signatures_or_the_tasks(self, ledger: Ledger) -> None:
        """As ``request.timelimit``."""
        assert ledger.run(show.s().set(time_limit=9, soft_time_limit=8)).value["limits"] == [9, 8]

    def test_a_task_sent_from_a_step_has_it_as_parent(self, ledger: Ledger, published: list[Published]) -> None:
        """root_id is the run, parent_id the step."""
        ledger.run(delays.s())
        assert (published[0].headers["root_id"], published[0].headers["parent_id"]) == ("run-1", STEP_ID)

    @pytest.mark.parametrize("signature", [add.s(1), boom.s(), again.s(), raises.s("ignore")])
    def test_frames_are_put_back(self, ledger: Ledger, signature: Any) -> None:
        """Whatever happened: no current task and no request stay behind."""
        ledger.run(signature)
        assert app.current_task is None
        assert signature.type.request.id is None

    def test_frames_are_put_back_when_the_process_is_told_to_exit(self, ledger: Ledger) -> None:
        """SystemExit passes through without an outcome (a cold shutdown, a hard limit)."""
        with pytest.raises(SystemExit):
            ledger.run(raises.s("exit"))
        assert (ledger.events, app.current_task, raises.request.id) == ([], None, None)
        with pytest.raises(PikkuFlowError):
            current_step()


class TestRetry:
    """D21: ``self.retry`` and ``autoretry_for`` become durable retries; nothing is published."""

    @pytest.mark.parametrize("asking", [again, again_calling], ids=["plain base", "base that calls super"])
    def test_retry_publishes_nothing(self, ledger: Ledger, published: list[Published], asking: Any) -> None:
        """With a plain request the user's task would run a second time outside the workflow (recipes.md 1)."""
        attempted = ledger.run(asking.s(countdown=7))
        assert (attempted.end, attempted.delay_seconds, attempted.override) == (AttemptEnd.RAISED, 7, None)
        assert published == []

    def test_a_delay_may_be_a_time(self, ledger: Ledger) -> None:
        """``eta``, aware or naive in the app's zone."""
        for eta in (datetime.now(UTC) + timedelta(seconds=60), datetime.now(UTC).replace(tzinfo=None)):
            delay = ledger.run(again.s(eta=eta)).delay_seconds
            assert delay is not None
            assert delay <= 60

    def test_celerys_builtin_three_minutes_are_nobodys_wish(self, ledger: Ledger) -> None:
        """D29: then the step's own delay holds; a ``default_retry_delay`` of the task's own is a wish."""
        assert ledger.run(again.s()).delay_seconds is None
        assert ledger.run(patient.s()).delay_seconds == 30

    def test_automatic_retries_ask_for_what_they_would_ask_celery(self, ledger: Ledger) -> None:
        """``retry_backoff`` grows with the attempt; without it the step's delay holds."""
        assert ledger.run(auto.s()).delay_seconds is None
        assert [ledger.run(backoff.s(), attempt=attempt).delay_seconds for attempt in (1, 2, 3)] == [4, 8, 16]

    def test_the_error_is_the_tasks_own(self, ledger: Ledger) -> None:
        """Not the Retry around it, and not what Celery puts in place of an exception that does not pickle."""
        assert repr(ledger.run(wrapped.s("plain")).error) == "ValueError('no')"
        assert type(ledger.run(wrapped.s("odd")).error) is Unpicklable
        assert isinstance(ledger.run(auto.s()).error, Declined)

    @pytest.mark.parametrize("asking", [again, again_calling], ids=["plain base", "base that calls super"])
    def test_other_arguments_hold_for_the_next_attempt(self, ledger: Ledger, asking: Any) -> None:
        """``retry(args=, kwargs=)``."""
        attempted = ledger.run(asking.s(1, args=(2,), kwargs={"countdown": 1}))
        assert attempted.override == {"args": [2], "kwargs": {"countdown": 1}}

    def test_another_queue_holds_for_the_next_attempt(self, ledger: Ledger) -> None:
        """``retry(queue=…)`` is routed as the task would be; what belonged to the old address goes."""
        attempted = ledger.run(again.s(queue="slow", priority=2).set(exchange="x", routing_key="y", compression="zlib"))
        assert attempted.override == {
            "options": {
                "queue": "slow",
                "exchange": None,
                "exchange_type": None,
                "routing_key": None,
                "priority": 2,
                "compression": "zlib",
            }
        }

    def test_the_next_attempts_limits_and_headers(self, ledger: Ledger) -> None:
        """``retry(time_limit=, headers=)``; the address stays."""
        options = (ledger.run(again.s(time_limit=5, headers={"h": 1}).set(queue="vip")).override or {})["options"]
        assert (options["queue"], options["time_limit"], options["headers"]) == ("vip", 5, {"h": 1})

    def test_a_retry_that_is_impossible_ends_the_step(self, ledger: Ledger) -> None:
        """Celery rejects such a task as well."""
        ledger.app = strict = Celery("strict", broker="memory://", set_as_current=False)
        strict.conf.update(task_create_missing_queues=False, task_queues={"celery": {}})
        strict.task(name="shop.again", bind=True, shared=False)(again.__wrapped__.__func__)
        attempted = ledger.run(strict.tasks["shop.again"].s(queue="nowhere"))
        assert attempted.end is AttemptEnd.GAVE_UP
        assert isinstance(attempted.error, SettingError)

    def test_a_returned_retry_is_a_retry(self, ledger: Ledger, published: list[Published]) -> None:
        """``return self.retry(throw=False)``."""
        attempted = ledger.run(returns_retry.s())
        assert (attempted.end, attempted.delay_seconds, published) == (AttemptEnd.RAISED, 5, [])

    def test_a_limit_given_to_one_retry_does_not_stay_on_the_task(self, ledger: Ledger) -> None:
        """``retry(max_retries=)`` marks the task object, which all runs share."""
        ledger.run(again.s(max_retries=50))
        assert "override_max_retries" not in vars(again._get_current_object())


class TestGivingUp:
    """The task's own ``max_retries`` and ``no_retry_on`` are final whatever attempts remain."""

    def test_a_task_whose_own_retries_are_spent_gave_up(self, ledger: Ledger) -> None:
        """By ``max_retries`` of the task: two retries are three attempts."""
        ends = [ledger.run(spent.s(tells=True), attempt=attempt).end for attempt in (1, 2, 3)]
        assert ends == [AttemptEnd.RAISED, AttemptEnd.RAISED, AttemptEnd.GAVE_UP]
        assert isinstance(ledger.attempted[-1].error, Declined)

    def test_it_may_have_nothing_to_tell(self, ledger: Ledger) -> None:
        """Then Celery's own error says it."""
        attempted = ledger.run(spent.s(tells=False), attempt=3)
        assert attempted.end is AttemptEnd.GAVE_UP
        assert isinstance(attempted.error, MaxRetriesExceededError)

    def test_automatic_retries_are_spent_too(self, ledger: Ledger) -> None:
        """``retry_kwargs={"max_retries": 2}``."""
        assert ledger.run(auto.s(), attempt=2).end is AttemptEnd.RAISED
        assert ledger.run(auto.s(), attempt=3).end is AttemptEnd.GAVE_UP

    def test_a_retry_of_another_task_inside_says_nothing(self, ledger: Ledger) -> None:
        """A different bound task, called as a function, raises its ``exc`` from ``retry()`` (recipes.md 1)."""
        attempted = ledger.run(calls_other.s())
        assert (attempted.end, str(attempted.error)) == (AttemptEnd.RAISED, "inner")

    @pytest.mark.parametrize("signature", [boom.s(), backoff.s()], ids=["raised", "retried"])
    def test_an_error_that_is_final_is_final(self, ledger: Ledger, signature: Any) -> None:
        """``no_retry_on`` by type in the pass, by name in a step worker, which sees only the row; subclasses count."""
        options = step_options({"no_retry_on": (Exception,)})
        work = ledger.work(signature, options=options)
        assert work.options["no_retry_on"] == [qualified_name(Exception)]
        assert ledger.run(signature, options=options).end is AttemptEnd.GAVE_UP
        assert ledger.run(signature, no_retry_on=(Declined,)).end is AttemptEnd.GAVE_UP
        assert ledger.run(signature, no_retry_on=(KeyError,)).end is AttemptEnd.RAISED

    def test_ignore_and_reject_end_a_step_without_a_result(self, ledger: Ledger) -> None:
        """Design 1: ``StepIgnored``; ``Reject(requeue=True)`` is a counted retry."""
        assert [ledger.run(raises.s(what)).end for what in ("ignore", "reject", "requeue")] == [
            AttemptEnd.IGNORED,
            AttemptEnd.IGNORED,
            AttemptEnd.RAISED,
        ]
        assert isinstance(ledger.attempted[-1].error, Declined)


class TestReplace:
    """``self.replace`` runs inside the attempt: its value is the step's, nothing is published."""

    @pytest.mark.parametrize("replacing", [replaced, replaced_calling], ids=["plain base", "base that calls super"])
    @pytest.mark.parametrize(("how", "value"), [("task", 3), ("chain", 13), ("group", [3, 7])])
    def test_the_replacements_value_is_the_steps(
        self, ledger: Ledger, published: list[Published], replacing: Any, how: str, value: Any
    ) -> None:
        """A task, a chain, a group."""
        app.set_current()
        assert ledger.run(replacing.s(how)).value == value
        assert published == []

    def test_its_failure_is_the_attempts(self, ledger: Ledger) -> None:
        """A counted one."""
        attempted = ledger.run(replaced.s("failing"))
        assert (attempted.end, str(attempted.error)) == (AttemptEnd.RAISED, "replaced")


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


class Line(BaseModel):
    """What is ordered."""

    sku: str
    count: int
    day: date | None = None


@task("order_line", pydantic=True)
def order_line(line: Line, other: Line | None = None, times: int = 1) -> Line:
    """More of it."""
    return Line(sku=line.sku, count=line.count * times, day=line.day)


@task("strict_line", pydantic=True, pydantic_strict=True, bind=True)
def strict_line(self: Any, line: Line) -> int:
    """Takes no text for a number."""
    return line.count


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
        """Well under half a millisecond, signals and log lines included."""
        runner, work = ledger.runner, ledger.work(add.s(1, 2))
        begun = time.process_time()
        for _ in range(500):
            runner.run(work, lambda _attempted: True)
        assert (time.process_time() - begun) / 500 < 0.0005

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
