"""Messages reach the broker, few and pipelined; a broker that is away is known quickly (design 2, 7; D21)."""

from __future__ import annotations

import base64
import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from celery import Celery, signals
from kombu import Exchange, Queue, pools
from redis import Redis
from redis.connection import AbstractConnection

from pikkuflow.adapters.celery.dispatcher import CeleryDispatcher
from pikkuflow.domain.act import RunRef, StepMessage
from pikkuflow.domain.definition import Registry, WorkflowDefinition
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.errors import DispatchError
from pikkuflow.settings import Settings
from tests.servers.processes import free_port, wait_until
from tests.servers.rabbitmq import RabbitServer
from tests.servers.valkey import ValkeyServer


def dispatcher_on(broker: str, registry: Registry | None = None, **conf: Any) -> CeleryDispatcher:
    """A dispatcher of a fresh app."""
    app = Celery("shop", broker=broker, set_as_current=False)
    app.conf.update(**conf)
    return CeleryDispatcher(app, Settings(), registry or Registry())


def runs(count: int, workflow: str = "shop.order") -> list[RunRef]:
    """So many runs."""
    return [RunRef(id=RunId(f"{workflow}-{number}"), workflow=workflow) for number in range(count)]


def steps(count: int, *, run: str = "run", **options: Any) -> list[StepMessage]:
    """Members of a map."""
    text = json.dumps({"queue": "work", **options})
    return [
        StepMessage(
            run_id=RunId(run),
            name=StepName(f"m[{number}]"),
            attempt=1,
            task="shop.charge",
            queue="work",
            options=text,
        )
        for number in range(count)
    ]


def waiting(url: str, queue: str) -> list[dict[str, Any]]:
    """The messages of a Redis queue, oldest first, with the decoded arguments as ``args``."""
    with Redis.from_url(url, decode_responses=True) as client:
        found = [json.loads(str(raw)) for raw in client.lrange(queue, 0, -1)][::-1]
    for message in found:
        message["args"] = json.loads(base64.b64decode(message["body"]))[0]
    return found


@pytest.fixture
def broker(valkey_server: ValkeyServer) -> Iterator[tuple[str, str]]:
    """An empty broker: its URL for Celery and for a Redis client."""
    valkey_server.flush()
    yield valkey_server.broker_url, valkey_server.url(0)
    valkey_server.flush()


class TestMessages:
    """What is in the queue afterwards."""

    def test_a_wake_up_names_its_runs_and_nothing_else(self, broker: tuple[str, str]) -> None:
        """Design 7: ids only, JSON."""
        dispatcher_on(broker[0], task_serializer="pickle", accept_content=["pickle", "json"]).wake(runs(2))
        (message,) = waiting(broker[1], "celery")
        assert message["headers"]["task"] == "pikkuflow.orchestrate"
        assert message["args"] == [["shop.order-0", "shop.order-1"]]
        assert message["content-type"] == "application/json"
        assert message["headers"]["ignore_result"] is True

    def test_many_runs_share_few_messages_each_in_its_workflows_queue(self, broker: tuple[str, str]) -> None:
        """Grouped by queue, at most a hundred in one message, none twice."""
        registry = Registry()
        registry.add(WorkflowDefinition(name="shop.slow", body=lambda wf: wf, version="1", queue="slow"))
        dispatcher_on(broker[0], registry).wake([*runs(150), *runs(3, "shop.slow"), *runs(150)])
        assert [len(message["args"][0]) for message in waiting(broker[1], "celery")] == [100, 50]
        assert [len(message["args"][0]) for message in waiting(broker[1], "slow")] == [3]

    def test_a_step_travels_with_its_attempt_and_task(self, broker: tuple[str, str]) -> None:
        """``pikkuflow.step(run_id, [[step_name, attempt], …], task_name)``, shown under the user's name."""
        dispatcher_on(broker[0]).send_steps(steps(1))
        (message,) = waiting(broker[1], "work")
        assert message["args"] == ["run", [["m[0]", 1]], "shop.charge"]
        assert message["headers"]["shadow"] == "shop.charge"
        assert (message["headers"]["root_id"], message["headers"]["parent_id"]) == ("run", "run")

    def test_members_travel_together_when_told(self, broker: tuple[str, str]) -> None:
        """``chunk``: only members of one run, task and route."""
        dispatcher_on(broker[0]).send_steps([*steps(25), *steps(3, run="other"), *steps(2, priority=3)], chunk=10)
        assert [len(message["args"][1]) for message in waiting(broker[1], "work")] == [10, 10, 5, 3]
        assert [len(message["args"][1]) for message in waiting(broker[1], "work\x06\x163")] == [2]

    def test_a_fan_out_is_pipelined(self, broker: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        """Design 2: 500 members cost a handful of packets, not 500 round trips."""
        packets: list[int] = []
        original: Any = AbstractConnection.send_packed_command

        def count(connection: Any, command: Any, *args: Any, **kwargs: Any) -> Any:
            packets.append(1)
            return original(connection, command, *args, **kwargs)

        dispatcher = dispatcher_on(broker[0])
        dispatcher.send_steps(steps(1))
        monkeypatch.setattr(AbstractConnection, "send_packed_command", count)
        dispatcher.send_steps(steps(500))
        assert len(packets) < 30
        assert len(waiting(broker[1], "work")) == 501

    def test_publishing_signals_are_sent(self, broker: tuple[str, str]) -> None:
        """OpenTelemetry's and Sentry's integrations hang on them."""
        heard: list[str] = []

        def receive(sender: str, headers: Any, **_: Any) -> None:
            heard.append(f"{sender} {headers['shadow']}")

        signals.before_task_publish.connect(receive)
        try:
            dispatcher_on(broker[0]).send_steps(steps(1))
        finally:
            signals.before_task_publish.disconnect(receive)
        assert heard == ["pikkuflow.step shop.charge"]

    def test_nothing_to_send_needs_no_broker(self) -> None:
        """An empty list."""
        dispatcher = dispatcher_on("redis://127.0.0.1:1/0")
        dispatcher.wake([])
        dispatcher.send_steps([])


class TestOutages:
    """D21: a ``DispatchError``, soon; the rows are there and a sweep sends."""

    @pytest.mark.parametrize(
        ("scheme", "failover"), [("redis", False), ("amqp", False), ("redis", True), ("amqp", True)]
    )
    def test_a_broker_that_is_away_is_known_in_about_a_second(self, scheme: str, failover: bool) -> None:  # noqa: FBT001
        """For one message and for a batch."""
        hosts = [f"{scheme}://127.0.0.1:{free_port()}//" for _ in range(2 if failover else 1)]
        dispatcher = dispatcher_on(";".join(hosts))
        for count in (1, 50):
            begun = time.monotonic()
            with pytest.raises(DispatchError, match="did not take") as caught:
                dispatcher.send_steps(steps(count))
            assert time.monotonic() - begun < 3
            assert caught.value.hint

    def test_a_frozen_broker_is_not_waited_for(self, own_valkey: ValkeyServer) -> None:
        """It accepts connections and does not answer."""
        dispatcher = dispatcher_on(own_valkey.broker_url)
        dispatcher.wake(runs(1))
        own_valkey.program.send(signal.SIGSTOP)
        try:
            begun = time.monotonic()
            with pytest.raises(DispatchError):
                dispatcher.wake(runs(1))
            assert time.monotonic() - begun < 20
        finally:
            own_valkey.program.send(signal.SIGCONT)

    @pytest.mark.parametrize("count", [1, 50])
    def test_a_restarted_broker_is_found_again(self, own_valkey: ValkeyServer, count: int) -> None:
        """The kept connection is dead; the message is sent on a fresh one, without an error."""
        dispatcher = dispatcher_on(own_valkey.broker_url)
        dispatcher.send_steps(steps(2))
        own_valkey.restart(forget=True)
        dispatcher.send_steps(steps(count))
        assert len(waiting(own_valkey.url(0), "work")) >= count

    def test_a_second_host_takes_over(self, own_valkey: ValkeyServer) -> None:
        """A failover list of brokers."""
        dispatcher = dispatcher_on(f"redis://127.0.0.1:{free_port()}/0;{own_valkey.tcp_broker_url}")
        dispatcher.wake(runs(1))
        assert len(waiting(own_valkey.url(0), "celery")) == 1

    def test_a_queue_that_cannot_be_declared_is_a_dispatch_error_too(self, rabbitmq_url: str) -> None:
        """Another declaration of it exists: the row stays, the operator reads why."""
        dispatcher_on(rabbitmq_url).send_steps(steps(1))
        queue = Queue("work", Exchange("work"), routing_key="work", queue_arguments={"x-max-length": 5})
        pools.reset()  # another process
        other = dispatcher_on(rabbitmq_url, task_queues=[queue])
        with pytest.raises(DispatchError, match=r"PRECONDITION_FAILED"):
            other.send_steps(steps(1))
        # The kept producer is not spoiled by it.
        other.wake(runs(1))


class TestProcesses:
    """Connections are not shared between processes, and threads do not disturb each other."""

    def test_a_forked_process_has_connections_of_its_own(self, broker: tuple[str, str]) -> None:
        """A bare ``os.fork``, as web servers do it."""
        dispatcher = dispatcher_on(broker[0])
        dispatcher.send_steps(steps(10))
        child = os.fork()
        if child == 0:
            try:
                for _ in range(20):
                    dispatcher.send_steps(steps(10))
            finally:
                os._exit(0)
        for _ in range(20):
            dispatcher.send_steps(steps(10))
        os.waitpid(child, 0)
        assert len(waiting(broker[1], "work")) == 410

    def test_threads_publish_at_the_same_time(self, broker: tuple[str, str]) -> None:
        """Each with a producer of its own."""
        dispatcher = dispatcher_on(broker[0])
        with ThreadPoolExecutor(16) as threads:
            list(threads.map(lambda _: dispatcher.send_steps(steps(25)), range(32)))
        assert len(waiting(broker[1], "work")) == 800


class TestRabbitMQ:
    """The same on RabbitMQ, which has no batches."""

    @pytest.mark.parametrize("count", [1, 30])
    def test_a_connection_that_the_server_closed_meanwhile_loses_nothing(
        self, rabbitmq_url: str, rabbitmq_server: RabbitServer, count: int
    ) -> None:
        """As it closes those that were idle for long."""
        dispatcher = dispatcher_on(rabbitmq_url)
        dispatcher.send_steps(steps(1))
        wait_until(rabbitmq_server.close_connections, what="the connection to be listed")
        dispatcher.send_steps(steps(count))
        app = Celery("reader", broker=rabbitmq_url, set_as_current=False)
        with app.connection_for_read() as connection:
            channel: Any = connection.default_channel
            assert channel.queue_declare("work", passive=True).message_count >= 1 + count

    def test_steps_and_wake_ups_arrive(self, rabbitmq_url: str) -> None:
        """In the queues that are declared on the way."""
        dispatcher = dispatcher_on(rabbitmq_url)
        dispatcher.send_steps(steps(30, priority=5))
        dispatcher.wake(runs(3))
        app = Celery("reader", broker=rabbitmq_url, set_as_current=False)
        with app.connection_for_read() as connection:
            channel: Any = connection.default_channel
            assert channel.queue_declare("work", passive=True).message_count == 30
            message = app.amqp.queues["celery"].bind(channel).get()
            assert message is not None
            assert message.payload[0] == [[run.id for run in runs(3)]]
