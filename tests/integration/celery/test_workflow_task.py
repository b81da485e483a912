"""A workflow as something to start and as an ordinary Celery task, over the memory world."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery, chain, group
from celery.exceptions import Ignore

from pikkuflow import (
    Call,
    DirectCallError,
    PayloadError,
    PikkuFlow,
    ResultTimeout,
    RunExists,
    RunFailed,
    RunNotFound,
    Workflow,
)
from pikkuflow.adapters.celery.starting import delay_of
from pikkuflow.domain.ids import RunId
from pikkuflow.testing import MemoryWorld

Memory = Callable[[PikkuFlow], MemoryWorld]


class Shop:
    """An app with one task and a few workflows."""

    def __init__(self, memory: Memory, **conf: Any) -> None:
        self.app = Celery("shop", broker="memory://", set_as_current=False)
        self.app.conf.update(conf)
        self.pikku = pikku = PikkuFlow(self.app)

        @self.app.task(name="shop.double", shared=False)
        def double(number: int) -> int:
            return number * 2

        @pikku.workflow(name="shop.order")
        def order(wf: Workflow, number: int, *, more: int = 0) -> int:
            return int(wf.do(double.s(number))) + more

        @pikku.workflow(name="shop.sleepy")
        def sleepy(wf: Workflow) -> str:
            wf.sleep("nap", "2h")
            return "rested"

        @pikku.workflow(name="shop.failing")
        def failing(wf: Workflow) -> None:
            raise ValueError("out of tea")

        self.double, self.order, self.sleepy, self.failing = double, order, sleepy, failing
        self.world = memory(pikku)


@pytest.fixture
def shop(pikkuflow_memory: Memory) -> Shop:
    """The shop in memory."""
    return Shop(pikkuflow_memory)


@pytest.fixture
def eager_shop(pikkuflow_memory: Memory) -> Shop:
    """The shop as its own test suite has it."""
    return Shop(pikkuflow_memory, task_always_eager=True, result_backend="cache+memory://")


class TestStart:
    """``start``: durable once it returns."""

    def test_a_start_stores_the_run_and_executes_nothing_here(self, shop: Shop) -> None:
        """T1.4: the run is there, a wake-up was sent, no step was worked."""
        run = shop.order.start(4)
        assert run.status().status == "running"
        assert run.status().steps == ()
        assert [wake.id for wake in shop.world.dispatcher.wakes] == [run.run_id]

    def test_a_run_gives_its_result(self, shop: Shop) -> None:
        """T1.18: start gives the id, status the output, result the value."""
        run = shop.order.start(4, more=1)
        assert run.result() == 9
        assert run.status().output == 9
        assert shop.pikku.runs.get(run.id) == run

    def test_the_same_id_with_the_same_input_is_the_same_run(self, shop: Shop) -> None:
        """A start may be repeated after a lost answer."""
        first = shop.order.start(4, run_id="order-4", owner="u1")
        second = shop.order.using(run_id="order-4", owner="u1").start(4)
        assert first == second
        assert len(shop.pikku.runs.list()) == 1
        assert second.head().owner == "u1"

    @pytest.mark.parametrize("again", [lambda shop: shop.order, lambda shop: shop.sleepy])
    def test_the_same_id_with_another_input_is_refused(self, shop: Shop, again: Callable[[Shop], Any]) -> None:
        """Another input or another workflow: the first run is left as it is."""
        shop.order.start(4, run_id="order-4")
        arguments = (5,) if again(shop).name == "shop.order" else ()
        with pytest.raises(RunExists, match="order-4") as caught:
            again(shop).start(*arguments, run_id="order-4")
        assert caught.value.status == 409
        assert shop.pikku.runs.get("order-4").result() == 8

    @pytest.mark.parametrize("start", ["start", "delay", "run_inline"])
    def test_arguments_that_do_not_fit_are_refused_before_anything_is_stored(self, shop: Shop, start: str) -> None:
        """``wf`` is not among them (recipes 10)."""
        with pytest.raises(TypeError):
            getattr(shop.order, start)(1, 2, 3)
        assert len(shop.pikku.runs.list()) == 0

    def test_an_argument_that_cannot_be_stored_is_refused(self, shop: Shop) -> None:
        """The error names the workflow's input; nothing is half written."""
        with pytest.raises(PayloadError, match=r"input of workflow 'shop\.order'"):
            shop.order.start({1, 2})  # type: ignore[call-overload]
        assert len(shop.pikku.runs.list()) == 0

    def test_many_runs_start_with_one_insert_in_order(self, shop: Shop) -> None:
        """Design 2."""
        runs = shop.order.start_many([Call((number,), run_id=f"o{number}") for number in range(5)])
        assert [run.id for run in runs] == [f"o{number}" for number in range(5)]
        assert [run.result() for run in runs] == [0, 2, 4, 6, 8]

    def test_a_workflow_is_not_called(self, shop: Shop) -> None:
        """Design 1: the error names both ways."""
        with pytest.raises(DirectCallError, match=r"order\.start.*order\.run_inline"):
            shop.order(None, 4)

    def test_the_run_of_a_broken_broker_is_swept(self, shop: Shop) -> None:
        """D21: the row is there; the start succeeds, a sweep sends."""
        shop.world.dispatcher.is_down = shop.world.hints.is_down = True
        run = shop.order.start(4)
        shop.world.dispatcher.is_down = shop.world.hints.is_down = False
        shop.world.advance("15s")
        assert run.status().status == "running"
        shop.world.sweep()
        assert run.result() == 8


class TestResult:
    """Waiting for the end (spec 10.3)."""

    def test_a_failed_run_raises_its_own_error(self, shop: Shop) -> None:
        """T16.16: 422 with the run's message."""
        run = shop.failing.start()
        with pytest.raises(RunFailed, match="out of tea") as caught:
            run.result()
        assert (caught.value.status, caught.value.run_id) == (422, run.id)

    def test_a_run_that_has_not_ended_times_out_and_goes_on(self, shop: Shop) -> None:
        """T16.17: never past the ceiling."""
        run = shop.sleepy.start()
        shop.world.work()
        begun = shop.world.clock.monotonic()
        with pytest.raises(ResultTimeout):
            run.result(timeout=0)
        assert shop.world.clock.monotonic() == begun
        assert run.result() == "rested"

    def test_a_run_that_vanished_is_not_waited_for(self, shop: Shop) -> None:
        """T16.17, T1.18: not found, with the id."""
        with pytest.raises(RunNotFound, match="nobody"):
            shop.pikku.runs.get("nobody")
        run = shop.order.start(1)
        run.result()
        shop.world.store.delete_run(RunId(run.id))
        with pytest.raises(RunNotFound, match=run.id):
            run.result()

    def test_watching_tells_each_change_once_and_ends(self, shop: Shop) -> None:
        """T16.1, T16.6: an update, and done."""
        run = shop.order.start(4)
        frames = list(run.watch())
        assert [frame["type"] for frame in frames][-1] == "done"
        assert frames[-2]["output"] == 8
        assert [frame["type"] for frame in run.watch()] == ["update", "done"]

    def test_watching_an_unknown_run_ends_at_once(self, shop: Shop) -> None:
        """T16.2."""
        run = shop.order.start(4)
        shop.order.run_inline(5, run_id="gone")
        shop.world.store.delete_run(RunId("gone"))
        gone = type(run)("gone", lambda: shop.world.runtime)
        assert list(gone.watch()) == []

    def test_an_end_user_sees_no_output(self, shop: Shop) -> None:
        """T16.8."""
        run = shop.order.start(4)
        assert all("output" not in frame and "error" not in frame for frame in run.watch(details=False))


class TestListing:
    """``pikku.runs.list``."""

    def test_pages_follow_each_other(self, shop: Shop) -> None:
        """Keyset paging: newest first, each run once."""
        for number in range(5):
            shop.order.start(number, run_id=f"o{number}")
            shop.world.clock.advance(1)
        first = shop.pikku.runs.list(limit=2)
        second = shop.pikku.runs.list(limit=2, after=first.next_page)
        third = shop.pikku.runs.list(limit=2, after=second.next_page)
        assert [head.id for page in (first, second, third) for head in page] == ["o4", "o3", "o2", "o1", "o0"]
        assert third.next_page is None

    def test_filters_choose(self, shop: Shop) -> None:
        """Workflow, status, owner and time."""
        shop.order.start(1, run_id="mine", owner="me").result()
        since = shop.world.clock.now() + timedelta(seconds=1)
        shop.world.clock.advance(2)
        shop.sleepy.start(run_id="other", owner="you")
        runs = shop.pikku.runs
        assert [head.id for head in runs.list(workflow="shop.order")] == ["mine"]
        assert [head.id for head in runs.list(status="running")] == ["other"]
        assert [head.id for head in runs.list(owner="me")] == ["mine"]
        assert [head.id for head in runs.list(since=since)] == ["other"]
        with pytest.raises(ValueError, match="done"):
            runs.list(status="done")


class TestInline:
    """The whole run in the calling process (D26)."""

    def test_an_inline_run_sends_nothing(self, shop: Shop) -> None:
        """T1.3, T2: the same rows, no message."""
        run = shop.order.run_inline(4)
        assert run.result(timeout=0) == 8
        assert [step.name for step in run.status().steps] == ["shop.double"]
        assert not shop.world.dispatcher.wakes

    def test_a_sleep_is_waited_for_here(self, shop: Shop) -> None:
        """By the clock port: two hours are moved, not waited for."""
        begun = shop.world.clock.monotonic()
        assert shop.sleepy.run_inline().result(timeout=0) == "rested"
        assert shop.world.clock.monotonic() - begun >= 7200

    def test_an_inline_run_that_fails_tells_its_id_first(self, shop: Shop) -> None:
        """T1.15: the id is known before anything can fail."""
        told: list[str] = []
        run = shop.failing.using(on_created=told.append).run_inline()
        assert told == [run.id]
        with pytest.raises(RunFailed, match="out of tea"):
            run.result()

    def test_eager_apps_run_everything_here(self, eager_shop: Shop) -> None:
        """``task_always_eager``: a user's own test suite goes on working."""
        assert eager_shop.order.start(4).result(timeout=0) == 8
        assert eager_shop.order.delay(4).get() == 8
        assert [run.result() for run in eager_shop.order.start_many([Call((1,)), Call((2,))])] == [2, 4]
        assert eager_shop.order.apply_async((4,), countdown=3600).get() == 8

    def test_an_eager_failure_is_an_ordinary_eager_result(self, eager_shop: Shop) -> None:
        """As for any task; ``task_eager_propagates`` raises it at the call."""
        result = eager_shop.failing.delay()
        assert result.state == "FAILURE"
        eager_shop.app.conf.task_eager_propagates = True
        with pytest.raises(RunFailed, match="out of tea"):
            eager_shop.failing.delay()

    def test_an_eager_chain_goes_through_a_workflow(self, eager_shop: Shop) -> None:
        """Canvas calls ``apply`` there."""
        assert chain(eager_shop.double.s(1), eager_shop.order.s(), eager_shop.double.s())().get() == 8
        assert group(eager_shop.order.s(1), eager_shop.order.s(2))().get() == [2, 4]


class TestAsTask:
    """``delay``, ``apply_async`` and the start by message."""

    def test_delay_gives_an_async_result_under_the_runs_id(self, shop: Shop) -> None:
        """Design 1."""
        result = shop.order.delay(4)
        assert shop.pikku.runs.get(result.id).result() == 8

    def test_a_countdown_is_a_due_time(self, shop: Shop) -> None:
        """Design 4: never a Celery ETA of ours."""
        result = shop.order.apply_async((4,), countdown=60, task_id="later")
        shop.world.work()
        shop.world.advance(59)
        run = shop.pikku.runs.get(result.id)
        assert run.status().steps == ()
        shop.world.advance(2)
        assert run.status().output == 8

    @pytest.mark.parametrize(
        ("countdown", "eta", "seconds"),
        [
            (None, None, None),
            (0, None, None),
            (5, None, 5.0),
            (None, datetime(2026, 1, 1, 12, 1, tzinfo=UTC), 60.0),
            (None, datetime(2026, 1, 1, 12, 1), 60.0),  # noqa: DTZ001 - in the app's own time zone, UTC
            (None, "2026-01-01T12:01:00+00:00", 60.0),
            (None, datetime(2025, 1, 1, tzinfo=UTC), None),
        ],
    )
    def test_delays_are_read_as_celery_reads_them(
        self, shop: Shop, countdown: Any, eta: Any, seconds: float | None
    ) -> None:
        """``countdown`` wins; what is past is now."""
        now = datetime(2026, 1, 1, 12, tzinfo=UTC)
        assert delay_of(shop.app, now, countdown, eta) == seconds

    def test_a_message_starts_a_run_under_its_own_id_once(self, shop: Shop) -> None:
        """Idempotent by task id: a redelivered message is the same run (design 7)."""
        for _ in range(2):
            with pytest.raises(Ignore):
                self._deliver(shop, "m1", (4,))
        assert shop.pikku.runs.get("m1").result() == 8
        assert len(shop.pikku.runs.list()) == 1
        assert shop.order.acks_late
        assert shop.order.reject_on_worker_lost

    def test_a_run_remembers_its_trail(self, shop: Shop) -> None:
        """The wire says how it was started, and by which message."""
        with pytest.raises(Ignore):
            self._deliver(shop, "m2", (4,), parent_id="p", root_id="r", headers={"traceparent": "00-a-b-01"})
        stored = shop.world.store.get_run(RunId("m2"))
        assert stored is not None
        assert json.loads(stored.wire) == {
            "type": "message",
            "parentId": "p",
            "rootId": "r",
            "traceparent": "00-a-b-01",
        }

    def test_canvas_is_kept_for_the_end(self, shop: Shop) -> None:
        """A run without canvas keeps nothing."""
        shop.order.apply_async((1,), task_id="plain")
        shop.order.apply_async((1,), task_id="linked", link=shop.double.s(), link_error=shop.double.s())
        plain, linked = (shop.world.store.get_run(RunId(name)) for name in ("plain", "linked"))
        assert plain is not None
        assert linked is not None
        assert plain.handover is None
        kept = json.loads(linked.handover or "")
        assert (kept["callbacks"][0]["task"], kept["errbacks"][0]["task"]) == ("shop.double", "shop.double")

    def _deliver(self, shop: Shop, task_id: str, args: tuple[Any, ...], **request: Any) -> None:
        task: Any = shop.order._get_current_object() if hasattr(shop.order, "_get_current_object") else shop.order
        task.push_request(id=task_id, called_directly=False, args=args, kwargs={}, **request)
        try:
            task(*args)
        finally:
            task.pop_request()


@pytest.fixture(autouse=True)
def apps_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No pool of a test's app is left."""
    made: list[Celery] = []
    init = Shop.__init__

    def remembering(self: Shop, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        made.append(self.app)

    monkeypatch.setattr(Shop, "__init__", remembering)
    yield
    for app in made:
        app.close()
