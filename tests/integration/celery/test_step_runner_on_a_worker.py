"""Steps on real workers, in an app whose global settings are all set (issue A: "changes nothing for the engine")."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery
from redis import Redis

from pikkuflow.domain.ids import RunId, StepName, invocation_id
from tests.servers.processes import CeleryProcesses
from tests.servers.valkey import ValkeyServer

Work = Callable[..., dict[str, Any]]


@pytest.fixture(params=["prefork", "threads", "solo"])
def work(
    request: pytest.FixtureRequest, valkey_server: ValkeyServer, celery_processes: CeleryProcesses
) -> Iterator[Work]:
    """Works a step on a worker of that pool and gives what came of it."""
    valkey_server.flush()
    backend = valkey_server.tcp_url(2)
    celery_processes.env.update(CELERY_BROKER_URL=valkey_server.broker_url, RUNNER_BACKEND=backend)
    celery_processes.worker("tests.integration.celery.runner_app", pool=request.param, queues=["all"])
    with Celery("caller", broker=valkey_server.broker_url, backend=backend, set_as_current=False) as app:

        def send(task: str, *args: Any, **options: Any) -> dict[str, Any]:
            attempt = options.pop("attempt", 1)
            message = app.send_task("runner.work", (task, args), {"attempt": attempt}, queue="all", **options)
            result: dict[str, Any] = message.get(timeout=30)
            message.forget()
            return result

        yield send


def test_existing_tasks_run_as_steps_on_every_pool(
    work: Work, valkey_server: ValkeyServer, request: pytest.FixtureRequest
) -> None:
    """One worker for all of it: starting one takes longer than the promises."""
    values_hooks_and_replacements(work)
    with Redis.from_url(valkey_server.url(0), decode_responses=True) as broker:
        retries_that_publish_nothing(work, broker)
        the_steps_own_request(work, broker)
    if request.node.callspec.params["work"] == "prefork":
        soft_limits(work)


def values_hooks_and_replacements(work: Work) -> None:
    """The hooks of the app's own task class are heard; a replacement runs inside, though Celery forbids waiting for results in tasks."""
    added = work("runner.add", 1, 2)
    assert (added["end"], added["value"], added["heard"]) == ("succeeded", 3, ["success runner.add"])
    assert added["left"] == "runner.work"
    assert [work("runner.replaced", how)["value"] for how in ("task", "chain", "group")] == [3, 13, [3, 7]]


def retries_that_publish_nothing(work: Work, broker: Redis) -> None:
    """A retry is asked for and not sent; the app's annotation says how often."""
    again = work("runner.again")
    assert (again["end"], again["delay"]) == ("raised", 5)
    assert work("runner.again", attempt=2)["end"] == "gave_up"
    assert (broker.llen("all"), broker.zcard("unacked_index")) == (0, 0)


def the_steps_own_request(work: Work, broker: Redis) -> None:
    """Not the engine task's; what the step sends is its child."""
    value = work("runner.seen")["value"]
    assert value["id"] == invocation_id(RunId("run-1"), StepName("step"))
    assert value["hostname"].startswith("w1@")
    assert (value["current"], value["worker_task"], value["step"]) == ("runner.seen", "runner.seen", "step")
    assert value["delivery"] == {"exchange": "", "routing_key": "all", "priority": 4, "redelivered": False}
    sent = next(broker.scan_iter("elsewhere*"))
    assert f'"parent_id": "{value["id"]}"' in str(broker.lindex(sent, 0))


def soft_limits(work: Work) -> None:
    """On prefork, where Celery's limits act: an attempt that failed."""
    ended = work("runner.slow", soft_time_limit=1)
    assert (ended["end"], ended["soft"], ended["heard"]) == ("raised", True, ["failure runner.slow"])
