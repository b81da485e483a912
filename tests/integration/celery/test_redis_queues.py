"""What is pushed on Redis without Celery's publisher is what Celery would have pushed, and only where nobody could tell (design 7)."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery, signals
from redis import Redis

from pikkuflow.adapters.celery.dispatcher import CeleryDispatcher
from pikkuflow.domain.act import RunRef, StepMessage
from pikkuflow.domain.definition import Registry
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.settings import Settings
from tests.servers.valkey import ValkeyServer

pytestmark = pytest.mark.redis

_OWN = {"id", "root_id", "correlation_id", "delivery_tag"}


def dispatcher_on(broker: str, **conf: Any) -> CeleryDispatcher:
    """A dispatcher of a fresh app."""
    app = Celery("shop", broker=broker, set_as_current=False)
    app.conf.update(**conf)
    return CeleryDispatcher(app, Settings(), Registry())


def wake(dispatcher: CeleryDispatcher, run_id: str) -> None:
    """Ask for a pass."""
    dispatcher.wake([RunRef(id=RunId(run_id), workflow="shop.order")])


def send(dispatcher: CeleryDispatcher, name: str, **options: Any) -> None:
    """Send a step's message."""
    message = StepMessage(
        run_id=RunId("run-0"),
        name=StepName(name),
        attempt=1,
        task="shop.charge",
        queue="work",
        options=json.dumps({"queue": "work", **options}),
    )
    dispatcher.send_steps([message])


def pushed(server: ValkeyServer, key: str) -> list[dict[str, Any]]:
    """The messages of a queue, oldest first, their bodies decoded."""
    with Redis.from_url(server.url(0)) as client:
        texts: Any = client.lrange(key, 0, -1)
    messages = [json.loads(text) for text in reversed(texts)]
    return [{**message, "body": json.loads(base64.b64decode(message["body"]))} for message in messages]


def without_ids(message: dict[str, Any], *names: str) -> str:
    """The message with what must differ left out, and step or run names made equal."""

    def kept(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: kept(member) for key, member in value.items() if key not in _OWN}
        return value

    text = json.dumps(kept(message), sort_keys=True)
    for name in names:
        text = text.replace(name, "*")
    return text


@pytest.mark.parametrize(
    "conf", [{}, {"broker_transport_options": {"global_keyprefix": "shop:"}}], ids=["plain", "prefix"]
)
def test_a_quick_wake_up_is_the_message_that_celery_sends(valkey_server: ValkeyServer, conf: dict[str, Any]) -> None:
    """Design 7: still valid Celery messages. The first goes through Celery, the second is pushed; they differ in their ids only."""
    valkey_server.flush()
    dispatcher = dispatcher_on(valkey_server.broker_url, task_time_limit=60, **conf)
    wake(dispatcher, "run-1")
    wake(dispatcher, "run-2")
    prefix = conf.get("broker_transport_options", {}).get("global_keyprefix", "")
    first, second = pushed(valkey_server, f"{prefix}celery")
    assert without_ids(first, "run-1") == without_ids(second, "run-2")
    assert first["headers"]["id"] != second["headers"]["id"] == second["headers"]["root_id"]
    assert second["properties"]["correlation_id"] == second["headers"]["id"]


def test_a_quick_step_message_is_the_message_that_celery_sends(valkey_server: ValkeyServer) -> None:
    """Design 7: priority and limits of a step hold; its message is shown under its task's name and hangs on its run."""
    valkey_server.flush()
    dispatcher = dispatcher_on(valkey_server.broker_url)
    for name in ("step-1", "step-2"):
        send(dispatcher, name, priority=6, time_limit=30, headers={"traceparent": name})
    first, second = pushed(valkey_server, "work\x06\x166")
    assert without_ids(first, "step-1") == without_ids(second, "step-2")
    assert second["headers"]["shadow"] == "shop.charge"
    assert second["headers"]["root_id"] == second["headers"]["parent_id"] == "run-0"
    assert second["headers"]["timelimit"] == [30, None]


@pytest.fixture
def seen() -> Iterator[list[str]]:
    """Tasks of which ``before_task_publish`` was sent."""
    tasks: list[str] = []

    def note(sender: str, **_: Any) -> None:
        tasks.append(sender)

    signals.before_task_publish.connect(note)
    yield tasks
    signals.before_task_publish.disconnect(note)


def test_whoever_listens_to_publishing_sees_every_message(valkey_server: ValkeyServer, seen: list[str]) -> None:
    """Design 7: a tracing integration that adds headers in ``before_task_publish`` goes on doing so."""
    valkey_server.flush()
    dispatcher = dispatcher_on(valkey_server.broker_url)
    for number in range(3):
        wake(dispatcher, f"run-{number}")
    assert seen == ["pikkuflow.orchestrate"] * 3


def test_a_server_that_came_back_gets_every_message(own_valkey: ValkeyServer) -> None:
    """D21: what cannot be pushed goes through Celery's publisher, which connects anew."""
    dispatcher = dispatcher_on(own_valkey.broker_url)
    wake(dispatcher, "run-1")
    wake(dispatcher, "run-2")
    own_valkey.restart()
    for number in (3, 4, 5):
        wake(dispatcher, f"run-{number}")
    assert [message["body"][0][0] for message in pushed(own_valkey, "celery")][-3:] == [["run-3"], ["run-4"], ["run-5"]]
