"""A step's message goes where the user's own message would go, and a pass to its workflow's queue (design 7, recipes.md 4)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery
from kombu import Exchange, Queue

from pikkuflow.adapters.celery.dispatcher import CeleryDispatcher
from pikkuflow.adapters.celery.routing import Routing
from pikkuflow.adapters.celery.step_runner import CeleryStepRunner
from pikkuflow.adapters.celery.translate import SignatureTranslator
from pikkuflow.domain.act import RunRef, StepMessage
from pikkuflow.domain.definition import Registry, WorkflowDefinition
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.errors import PayloadError, SettingError, WorkflowDefinitionError
from pikkuflow.ports import Route
from pikkuflow.replay.options import PLAIN
from pikkuflow.settings import Settings
from tests.integration.celery.published import Published, caught

FEEDS = Queue("feeds", Exchange("feeds", type="topic"), routing_key="feed.#")


def app_with(**conf: Any) -> Celery:
    """An app with a few tasks; the configuration is the case."""
    app = Celery("shop", broker="memory://", set_as_current=False)
    app.conf.update(**conf)

    @app.task(name="shop.charge", shared=False)
    def charge(order_id: int, *, region: str = "eu") -> str:
        return f"{order_id}{region}"

    @app.task(name="shop.limited", time_limit=90, soft_time_limit=80, shared=False)
    def limited(order_id: int) -> int:
        return order_id

    @app.task(name="shop.fleeting", expires=30, shared=False)
    def fleeting() -> None: ...

    return app


def routed(app: Celery, signature: Any, *, settings: Settings | None = None, registry: Registry | None = None) -> Route:
    """The route of a signature as a step of workflow ``shop.order``."""
    known = registry or Registry()
    call = SignatureTranslator(app, known)(signature, None, PLAIN)
    return CeleryStepRunner(app, settings or Settings(), known).route(call, "shop.order")


def sent(app: Celery, signature: Any) -> Published:
    """The step's message, sent from what a row keeps: its options as text."""
    route = routed(app, signature)
    message = StepMessage(
        run_id=RunId("run"),
        name=StepName("step"),
        attempt=1,
        task=signature["task"],
        queue=route.queue,
        options=route.options,
    )
    with caught() as messages:
        CeleryDispatcher(app, Settings(), Registry()).send_steps([message])
    return messages[0]


def by_region(name: str, args: Any, kwargs: Mapping[str, Any], options: Any, task: Any = None, **_: Any) -> Any:
    """A route that reads the user's arguments."""
    return {"queue": f"region-{kwargs.get('region', 'eu')}"} if name == "shop.charge" else None


def charge(**options: Any) -> Callable[[Celery], Any]:
    """The signature of a charge with these options."""
    return lambda app: app.tasks["shop.charge"].s(1, region="us").set(**options)


KINDS: dict[str, tuple[dict[str, Any], Callable[[Celery], Any]]] = {
    "no route": ({}, charge()),
    "glob": ({"task_routes": {"shop.*": {"queue": "shop"}}}, charge()),
    "star with a priority": ({"task_routes": {"*": {"queue": "all", "priority": 9}}}, charge()),
    "callable by argument": ({"task_routes": by_region}, charge()),
    "list of routes": ({"task_routes": [{"other.*": "other"}, {"shop.charge": {"queue": "cash"}}]}, charge()),
    "set queue": ({"task_routes": {"shop.*": {"queue": "shop"}}}, charge(queue="vip", priority=3)),
    "queue object declared": ({"task_queues": [Queue("celery"), FEEDS]}, charge(queue=FEEDS)),
    "queue object unknown": ({}, charge(queue=Queue("own", Exchange("own-x", type="topic"), routing_key="own.key"))),
    "bare exchange": ({}, charge(exchange="news", routing_key="news.a")),
    "exchange object": ({}, charge(exchange=Exchange("wide", type="topic"), routing_key="wide.a")),
    "topic route with key": (
        {"task_queues": [FEEDS], "task_routes": {"shop.*": {"queue": "feeds", "routing_key": "feed.shop"}}},
        charge(),
    ),
    "priority, compression, delivery mode": ({}, charge(priority=7, compression="zlib", delivery_mode=1)),
    "defaults of the app": (
        {"task_default_queue": "main", "task_default_priority": 4, "task_compression": "gzip", "task_time_limit": 60},
        charge(),
    ),
    "limits of the task": ({"task_time_limit": 60}, lambda app: app.tasks["shop.limited"].s(1)),
    "limits of the signature": ({"task_time_limit": 60}, charge(time_limit=5, soft_time_limit=4)),
    "unknown task": ({"task_routes": {"far.*": {"queue": "far"}}}, lambda app: app.signature("far.away", args=(1,))),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_message_is_addressed_as_the_users_own_message(kind: str) -> None:
    """Equal in exchange, routing key, priority, compression, delivery mode, time limits and declared queues."""
    # given
    conf, build = KINDS[kind]
    app = app_with(**conf)
    # when
    step = sent(app, build(app))
    with caught() as messages:
        build(app).apply_async()
    # then
    assert step.address == messages[0].address


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_message_names_its_task_and_carries_ids_only(kind: str) -> None:
    """Design 7: the shadow is the user's task; arguments are the run, steps with attempts, and the task's name; no expiry, no ETA."""
    conf, build = KINDS[kind]
    app = app_with(**conf, task_serializer="yaml")
    signature = build(app)
    message = sent(app, signature)
    assert (message.task, message.shadow) == ("pikkuflow.step", signature["task"])
    assert message.args == ("run", [["step", 1]], signature["task"])
    assert message.serializer == "json"
    assert (message.headers["expires"], message.headers["eta"]) == (None, None)


def test_routed_options_are_json_that_says_the_same_after_a_round_trip() -> None:
    """Queue and exchange objects of a signature survive in a row."""
    app = app_with()
    signature = charge(queue=Queue("own", Exchange("own-x", type="topic"), routing_key="own.key"), priority=2)(app)
    options = json.loads(routed(app, signature).options)
    assert options["queue"]["exchange_type"] == "topic"
    assert options["priority"] == 2


def test_tables_are_asked_once_and_callables_every_time() -> None:
    """A route from a table is remembered by name and options; a callable reads arguments, which differ."""
    asked: list[str] = []

    def by_order(name: str, args: Any, _kwargs: Any, _options: Any, **_: Any) -> Any:
        asked.append(name)
        return {"queue": f"q{args[0]}"}

    calling, table = (
        Routing(app_with(task_routes=by_order), Settings(), Registry()),
        app_with(task_routes={"shop.*": "a"}),
    )
    assert [calling.of_task("shop.charge", (number,), {}, {}).queue for number in (1, 2, 1)] == ["q1", "q2", "q1"]
    assert len(asked) == 3
    routing = Routing(table, Settings(), Registry())
    first = routing.of_task("shop.charge", (1,), {}, {})
    assert routing.of_task("shop.charge", (2,), {}, {"countdown": 5}) is first
    assert routing.of_task("shop.charge", (2,), {}, {"queue": "b"}).queue == "b"
    assert routing.of_task("shop.limited", (2,), {}, {}).has_own_limit


class TestLeaving:
    """Design 2: a step may run in the pass unless there is a reason to leave."""

    def test_a_step_of_the_workflows_own_queue_stays(self) -> None:
        """The same destination, whatever else is said about the message."""
        assert routed(app_with(), charge(priority=3)(app_with())).leaves is None

    def test_a_step_routed_elsewhere_leaves(self) -> None:
        """By a route or by ``.set(queue=…)``."""
        app = app_with(task_routes={"shop.charge": {"queue": "cash"}})
        assert routed(app, charge()(app)).leaves == "queue"
        assert routed(app, charge(queue="vip")(app)).leaves == "queue"

    def test_a_step_follows_its_workflow_to_another_queue(self) -> None:
        """One star route for both leaves no reason to leave."""
        app = app_with(task_routes={"*": {"queue": "all"}})
        assert routed(app, charge()(app)).leaves is None

    def test_a_topic_queue_reached_by_another_key_is_elsewhere(self) -> None:
        """The destination is compared, not the queue's name."""
        routes = {"shop.*": {"queue": "feeds", "routing_key": "feed.shop"}, "shop.order": {"queue": "feeds"}}
        app = app_with(task_queues=[FEEDS], task_routes=[{"shop.order": {"queue": "feeds"}}, routes])
        assert routed(app, charge()(app)).leaves == "queue"

    def test_a_limit_of_its_own_leaves_and_the_configurations_does_not(self) -> None:
        """``task.time_limit`` is never None when ``task_time_limit`` is set (recipes.md 4)."""
        app = app_with(task_time_limit=60, task_soft_time_limit=50)
        assert routed(app, charge()(app)).leaves is None
        assert routed(app, app.tasks["shop.limited"].s(1)).leaves == "limit"
        assert routed(app, charge(soft_time_limit=10)(app)).leaves == "limit"
        assert routed(app, charge(time_limit=60)(app)).leaves is None

    def test_a_task_known_by_name_only_leaves(self) -> None:
        """Only a worker that knows it can run it."""
        app = app_with()
        route = routed(app, app.signature("far.away", args=(1,), options={"queue": "far"}))
        assert (route.leaves, route.queue) == ("unknown", "far")


class TestWorkflowQueue:
    """Design 1: ``queue=``, else the route of the workflow's own task name, else the setting, else the app's default."""

    @staticmethod
    def order(queue: str | None) -> Registry:
        """A registry with one workflow."""
        registry = Registry()
        registry.add(WorkflowDefinition(name="shop.order", body=lambda wf: wf, version="1", queue=queue))
        return registry

    @pytest.mark.parametrize(
        ("queue", "conf", "setting", "expected"),
        [
            ("own", {"task_routes": {"shop.order": "routed"}}, "set", "own"),
            (None, {"task_routes": {"shop.order": "routed"}}, "set", "routed"),
            (None, {"task_routes": {"shop.order": {"priority": 5}}}, "set", "set"),
            (None, {"task_default_queue": "main"}, "set", "set"),
            (None, {"task_default_queue": "main"}, None, "main"),
        ],
    )
    def test_the_first_that_says_something_decides(
        self, queue: str | None, conf: dict[str, Any], setting: str | None, expected: str
    ) -> None:
        """In that order."""
        routing = Routing(app_with(**conf), Settings(queue=setting), self.order(queue))
        assert routing.of_workflow("shop.order").queue == expected

    def test_a_route_that_reads_arguments_which_a_pass_has_not_is_left_out(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """One warning, and the default queue."""

        def picky(_name: str, args: Any, _kwargs: Any, _options: Any, **_: Any) -> Any:
            return {"queue": f"q{args[0]}"}

        routing = Routing(app_with(task_routes=picky), Settings(), self.order(None))
        assert routing.of_workflow("shop.order").queue == "celery"
        assert routing.of_workflow("shop.order").queue == "celery"
        assert len([record for record in caplog.records if "needs its arguments" in record.message]) == 1

    def test_a_pass_has_the_configured_limit_and_its_own_time(self) -> None:
        """Design 2: the configuration's limit plus ``pikkuflow_pass_seconds``, without a soft one."""
        app = app_with(task_time_limit=60, task_soft_time_limit=50)
        with caught() as messages:
            CeleryDispatcher(app, Settings(pass_seconds=30.0), Registry()).wake(
                [RunRef(id=RunId("r"), workflow="shop.order")]
            )
        assert messages[0].timelimit == (90.0, None)


class TestColumns:
    """Design 1: countdown, eta and expires of a signature become columns; link, link_error and task_id are refused."""

    def test_a_countdown_is_a_delay(self) -> None:
        """In seconds."""
        assert routed(app_with(), charge(countdown=90)(app_with())).delay_seconds == 90

    def test_an_eta_is_a_delay(self) -> None:
        """Aware, naive in the app's time zone, or text as it is after JSON."""
        app = app_with()
        eta = app.now().replace(microsecond=0) + timedelta(seconds=60)
        for value in (eta, eta.isoformat()):
            delay = routed(app, charge(eta=value)(app)).delay_seconds
            assert delay is not None
            assert 55 < delay <= 60

    def test_expires_is_a_column_also_when_the_task_has_it(self) -> None:
        """From the signature, else from the task."""
        app = app_with()
        assert routed(app, charge(expires=10)(app)).expires_seconds == 10
        assert routed(app, app.tasks["shop.fleeting"].s()).expires_seconds == 30
        assert routed(app, charge()(app)).expires_seconds is None

    @pytest.mark.parametrize(
        "options", [{"countdown": "soon"}, {"eta": object()}, {"expires": float("nan")}, {"countdown": True}]
    )
    def test_what_is_no_time_is_refused(self, options: dict[str, Any]) -> None:
        """Before a row is written, naming the option and the step."""
        with pytest.raises(WorkflowDefinitionError, match=rf"{next(iter(options))}=.*shop.charge"):
            routed(app_with(), charge(**options)(app_with()))

    def test_a_header_that_is_no_json_is_refused(self) -> None:
        """A row could not keep it."""
        with pytest.raises(PayloadError, match=r"shop\.charge"):
            routed(app_with(), charge(headers={"lock": object()})(app_with()))

    def test_headers_are_kept_with_the_row(self) -> None:
        """They are the request's at each attempt."""
        assert json.loads(routed(app_with(), charge(headers={"tenant": "a"})(app_with())).options)["headers"] == {
            "tenant": "a"
        }

    def test_a_queue_that_may_not_be_created_is_named(self) -> None:
        """``task_create_missing_queues = False``."""
        app = app_with(task_create_missing_queues=False, task_queues=[Queue("celery")])
        with pytest.raises(SettingError, match=r"shop\.charge.*vip"):
            routed(app, charge(queue="vip")(app))

    def test_the_lease_is_the_queues_own(self) -> None:
        """T6.14, D27: ``pikkuflow_step_lease_seconds_by_queue``, else the one for all; a broker's visibility timeout plays no part."""
        settings = Settings(step_lease_seconds=60.0, step_lease_seconds_by_queue={"gpu": 600.0})
        app = app_with()
        assert routed(app, charge(queue="gpu")(app), settings=settings).lease_seconds == 600
        assert routed(app, charge()(app), settings=settings).lease_seconds == 60
