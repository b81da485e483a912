"""An existing task runs unchanged as a step (design 1, recipes.md 1; issue A, Build 3)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import MaxRetriesExceededError

from pikkuflow.adapters.celery.names import qualified_name
from pikkuflow.domain.ids import RunId, StepName, invocation_id
from pikkuflow.engine.current_step import CurrentStep, current_step
from pikkuflow.errors import PikkuFlowError, SettingError
from pikkuflow.ports import AttemptEnd
from pikkuflow.replay.options import step_options
from tests.integration.celery.published import Published, caught
from tests.integration.celery.step_ledger import Ledger
from tests.integration.celery.step_tasks import (
    Declined,
    Unpicklable,
    add,
    again,
    again_calling,
    app,
    auto,
    backoff,
    boom,
    calls_other,
    delays,
    patient,
    raises,
    replaced,
    replaced_calling,
    returns_retry,
    show,
    spent,
    wrapped,
)

STEP_ID = invocation_id(RunId("run-1"), StepName("step"))


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

    @pytest.mark.parametrize("asked", [{"countdown": 1e18}, {"time_limit": "x"}, {"priority": "high"}])
    def test_a_retry_that_no_message_can_carry_ends_the_step(self, ledger: Ledger, asked: dict[str, Any]) -> None:
        """A delay past every calendar would keep its run trying for ever, and a limit that is no number takes a worker down."""
        assert ledger.run(again.s(**asked)).end is AttemptEnd.GAVE_UP

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
