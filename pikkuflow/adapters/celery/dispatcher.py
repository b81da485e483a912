"""Hands pikkuflow's messages to the broker: ids only, JSON, early to fail (design 7).

Messages are built and published below ``send_task``: their options are a route already, which no ``task_routes`` entry may touch again.
They never carry ``expires`` (a worker drops an expired message without a word) and never an ETA (design 4).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, TypeVar

from celery import Celery
from kombu import pools
from kombu.utils.uuid import uuid

from pikkuflow.adapters.celery.message_options import LIMITS, PUBLISHED, as_json, from_json_options
from pikkuflow.adapters.celery.names import ORCHESTRATE_TASK, STEP_TASK
from pikkuflow.adapters.celery.routing import Routing
from pikkuflow.domain.act import RunRef, StepMessage
from pikkuflow.domain.definition import Registry
from pikkuflow.errors import DispatchError
from pikkuflow.settings import Settings

__all__ = ["CeleryDispatcher"]

_T = TypeVar("_T")

_RUNS_A_MESSAGE: Final = 100
"""Runs that one wake-up message names: more would wait behind each other in one worker."""

_ACQUIRE_SECONDS: Final = 5.0
"""How long a thread waits for a producer that others use."""

_REDIS_PATIENCE: Final = {"socket_connect_timeout": 1.0, "socket_timeout": 3.0}
"""Seconds; where the configuration says nothing."""

_RETRY: Final = {"max_retries": 1, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.2}
"""One more try on a fresh connection: a pooled one may have died unnoticed. A broker that is away must be known in about a second (D21)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    task: str
    args: tuple[Any, ...]
    options: Mapping[str, Any]
    shadow: str | None = None
    root_id: str | None = None


class CeleryDispatcher:
    """Implements ``ports.Dispatcher`` on a Celery app. Connections are the app's own pool's, and new ones after a fork."""

    def __init__(self, app: Celery, settings: Settings, registry: Registry, routing: Routing | None = None) -> None:
        self._app = app
        self._settings = settings
        self._routing = routing or Routing(app, settings, registry)
        self._pid = os.getpid()
        self._connection: Any = None

    def wake(self, runs: Sequence[RunRef]) -> None:
        """Ask for a pass over each run; see ``ports.Dispatcher``. Runs whose workflows share a route share messages."""
        routes: dict[str, Mapping[str, Any]] = {}
        grouped: dict[str, dict[str, None]] = {}
        for run in runs:
            options = self._routing.of_workflow(run.workflow).options
            key = as_json(options, what=f"workflow {run.workflow!r}")
            routes[key] = options
            grouped.setdefault(key, {})[run.id] = None
        self._publish(
            _Message(task=ORCHESTRATE_TASK, args=(ids,), options={**routes[key], **self._pass_limits()})
            for key, members in grouped.items()
            for ids in _pieces(list(members), _RUNS_A_MESSAGE)
        )

    def send_steps(self, messages: Sequence[StepMessage], *, chunk: int = 1) -> None:
        """Send step messages; see ``ports.Dispatcher``. Members of one message share run, task and route."""
        if chunk <= 1:
            self._publish(_step_message([message]) for message in messages)
            return

        def alike(message: StepMessage) -> tuple[str, str, str]:
            return message.run_id, message.task, message.options

        self._publish(
            _step_message(piece)
            for _, members in groupby(messages, key=alike)
            for piece in _pieces(list(members), chunk)
        )

    def _pass_limits(self) -> dict[str, float]:
        """A pass's own limit: the configuration's, and the time that it may work steps in place (design 2)."""
        limit = self._app.conf.task_time_limit
        return {} if limit is None else {"time_limit": limit + self._settings.pass_seconds}

    def _publish(self, messages: Iterable[_Message]) -> None:
        """Publish all with one producer, pipelined where the broker can.

        Raises ``DispatchError``. Some may have left then, which is harmless: a claim and an opening decide.
        """
        pending = list(messages)
        if not pending:
            return
        try:
            with self._producers().acquire(block=True, timeout=_ACQUIRE_SECONDS) as producer:
                send = producer.connection.ensure(producer, self._send_all, **_RETRY)
                send(producer, pending)
        except Exception as error:
            raise DispatchError(
                f"The broker did not take {len(pending)} message(s): {error}.",
                hint="Nothing is lost: a sweep sends again what is recorded.",
            ) from error

    def _send_all(self, producer: Any, messages: Sequence[_Message]) -> None:
        if len(messages) == 1:
            self._send(producer, messages[0])
            return
        with producer.batch():
            for message in messages:
                self._send(producer, message)

    def _send(self, producer: Any, message: _Message) -> None:
        amqp: Any = self._app.amqp
        options = from_json_options(message.options)
        limits = {key: options.get(key) for key in LIMITS}
        envelope = amqp.as_task_v2(
            uuid(),
            message.task,
            message.args,
            {},
            shadow=message.shadow,
            root_id=message.root_id,
            parent_id=message.root_id,
            create_sent_event=self._app.conf.task_send_sent_event,
            ignore_result=True,
            **limits,
        )
        published = {key: options[key] for key in PUBLISHED if key in options}
        amqp.send_task_message(producer, message.task, envelope, serializer="json", retry=False, **published)

    def _producers(self) -> Any:
        """The pool of kept producers.

        Celery's and multiprocessing's children begin with empty pools; those of a bare ``os.fork`` (a web server) would share their
        parent's sockets, so they are emptied here.
        """
        pid = os.getpid()
        if pid != self._pid:
            self._pid = pid
            pools.connections.clear()
            pools.producers.clear()
            self._app._after_fork()  # type: ignore[attr-defined]  # noqa: SLF001 - what Celery's own hook calls
        if self._connection is None:
            self._connection = _impatient_connection(self._app)
        return pools.producers[self._connection]


def _impatient_connection(app: Celery) -> Any:
    """The app's broker, but with an end to waiting: kombu's Redis transport has no time limits unless the configuration sets them."""
    app.pool  # noqa: B018 - the property sets the limit of all pools from the configuration
    connection: Any = app.connection_for_write()
    if connection.transport.driver_type != "redis":
        return connection
    options = {**_REDIS_PATIENCE, **app.conf.broker_transport_options}
    return app.connection_for_write(transport_options=options)


def _step_message(members: Sequence[StepMessage]) -> _Message:
    first = members[0]
    return _Message(
        task=STEP_TASK,
        args=(first.run_id, [[member.name, member.attempt] for member in members], first.task),
        options=json.loads(first.options),
        shadow=first.task,
        root_id=first.run_id,
    )


def _pieces(whole: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    for start in range(0, len(whole), size):
        yield whole[start : start + size]
