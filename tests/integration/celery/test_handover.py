"""Handing outcomes on while servers are away: an outage is told apart from an outcome that is bad by itself (design 7)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from celery import Celery

from pikkuflow.adapters.celery.handover import CeleryDeliverer
from pikkuflow.domain.run import Run
from tests.servers.processes import free_port
from tests.unit.engine.bench import Bench

_QUICKLY = {"retry_policy": {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}}


@pytest.fixture
def settled() -> Run:
    """A run that completed."""
    bench = Bench()

    def quick(wf: Any) -> int:
        return 1

    bench.workflow(quick)
    bench.start("quick")
    bench.work()
    return bench.run()


def _deliverer(**conf: Any) -> CeleryDeliverer:
    app = Celery("shop", set_as_current=False)
    app.conf.update(**conf)
    return CeleryDeliverer(app, Bench().rt.codec)


def test_a_result_backend_that_is_away_is_an_outage(settled: Run) -> None:
    """Design 7: a sweep stops there, the next outcome would fare no better."""
    away = _deliverer(
        result_backend=f"redis://127.0.0.1:{free_port()}/0",
        result_backend_transport_options=_QUICKLY,
        redis_socket_connect_timeout=1,
    )

    with pytest.raises(ConnectionError):
        away.deliver(settled)


def test_a_broker_that_is_away_is_an_outage_for_callbacks(settled: Run) -> None:
    """Design 7: the rest of a chain is a message."""
    away = _deliverer(
        broker_url=f"redis://127.0.0.1:{free_port()}/0",
        broker_transport_options={"socket_connect_timeout": 1},
        task_publish_retry=False,
    )
    waits = replace(
        settled, handover=json.dumps({"chain": [{"task": "shop.next", "args": [], "kwargs": {}, "options": {}}]})
    )

    with pytest.raises(ConnectionError):
        away.deliver(waits)


def test_a_result_that_the_backend_cannot_store_is_no_outage(settled: Run) -> None:
    """Design 7: it is put off, and the others go on."""
    narrow = _deliverer(result_backend="cache+memory://", result_serializer="shouted")

    with pytest.raises(Exception, match="shouted") as told:
        narrow.deliver(settled)
    assert not isinstance(told.value, ConnectionError)
