"""Hands pikkuflow's messages to the broker: ids only, JSON, early to fail (design 7).

Messages are built and published below ``send_task``: their options are a route already, which no ``task_routes`` entry may touch again.
They never carry ``expires`` (a worker drops an expired message without a word) and never an ETA (design 4).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, TypeVar

from celery import Celery
from kombu.utils.uuid import uuid

from pikkuflow.adapters.celery.message_options import LIMITS, PUBLISHED, as_json, from_json_options
from pikkuflow.adapters.celery.names import ORCHESTRATE_TASK, STEP_TASK
from pikkuflow.adapters.celery.producers import Producers
from pikkuflow.adapters.celery.routing import Routing
from pikkuflow.domain.act import RunRef, StepMessage
from pikkuflow.domain.definition import Registry
from pikkuflow.errors import DispatchError
from pikkuflow.settings import Settings

__all__ = ["CeleryDispatcher"]

_T = TypeVar("_T")

_RUNS_A_MESSAGE: Final = 100
"""Runs that one wake-up message names: more would wait behind each other in one worker."""


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
        self._producers = Producers(app)

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
            self._producers.call(lambda producer: self._send_all(producer, pending))
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
