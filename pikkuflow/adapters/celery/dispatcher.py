"""Hands pikkuflow's messages to the broker: ids only, JSON, early to fail (design 7).

Messages are built and published below ``send_task``: their options are a route already, which no ``task_routes`` entry may touch again.
They never carry ``expires`` (a worker drops an expired message without a word) and never an ETA (design 4).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import groupby
from typing import Any, Final, TypeVar

from celery import Celery
from kombu.utils.uuid import uuid

from pikkuflow.adapters.celery.message_options import LIMITS, PUBLISHED, as_json, from_json_options
from pikkuflow.adapters.celery.names import ORCHESTRATE_TASK, STEP_TASK
from pikkuflow.adapters.celery.producers import Producers
from pikkuflow.adapters.celery.redis_queues import Letter, RedisQueues
from pikkuflow.adapters.celery.routing import Routing
from pikkuflow.domain.act import RunRef, StepMessage
from pikkuflow.domain.definition import Registry
from pikkuflow.errors import DispatchError
from pikkuflow.settings import Settings

__all__ = ["CeleryDispatcher"]

_T = TypeVar("_T")

_RUNS_A_MESSAGE: Final = 100
"""Runs that one wake-up message names: whoever takes it reads the refs of those that it hands on in one statement."""


class CeleryDispatcher:
    """Implements ``ports.Dispatcher`` on a Celery app. Connections are the app's own pool's, and new ones after a fork."""

    def __init__(self, app: Celery, settings: Settings, registry: Registry, routing: Routing | None = None) -> None:
        self._app = app
        self._settings = settings
        self._routing = routing or Routing(app, settings, registry)
        self._producers = Producers(app)
        self._queues = RedisQueues(app)
        self._pass_routes: dict[str, str] = {}

    def wake(self, runs: Sequence[RunRef], *, at_most: int | None = None) -> None:
        """Ask for a pass over each run; see ``ports.Dispatcher``. Runs whose workflows share a route share messages."""
        grouped: dict[str, dict[str, None]] = {}
        for run in runs:
            grouped.setdefault(self._pass_route(run.workflow), {})[run.id] = None
        self._publish(
            Letter(task=ORCHESTRATE_TASK, route=route, args=(ids,))
            for route, members in grouped.items()
            for ids in _pieces(list(members), min(at_most or _RUNS_A_MESSAGE, _RUNS_A_MESSAGE))
        )

    def send_steps(self, messages: Sequence[StepMessage], *, chunk: int = 1) -> None:
        """Send step messages; see ``ports.Dispatcher``. Members of one message share run, task and route."""
        if chunk <= 1:
            self._publish(_letter([message]) for message in messages)
            return

        def alike(message: StepMessage) -> tuple[str, str, str]:
            return message.run_id, message.task, message.options

        self._publish(
            _letter(piece) for _, members in groupby(messages, key=alike) for piece in _pieces(list(members), chunk)
        )

    def _pass_route(self, workflow: str) -> str:
        """Where passes go, and their own limit: the configuration's, and the time that they may work steps in place (design 2)."""
        route = self._pass_routes.get(workflow)
        if route is None:
            options = dict(self._routing.of_workflow(workflow).options)
            limit = self._app.conf.task_time_limit
            if limit is not None:
                options["time_limit"] = limit + self._settings.pass_seconds
            route = self._pass_routes[workflow] = as_json(options, what=f"workflow {workflow!r}")
        return route

    def _publish(self, letters: Iterable[Letter]) -> None:
        """Publish all with one producer, pipelined where the broker can.

        Raises ``DispatchError``. Some may have left then, which is harmless: a claim and an opening decide.
        """
        pending = list(letters)
        if not pending or self._queues.push(pending):
            return
        try:
            self._producers.call(lambda producer: self._send_all(producer, pending))
        except Exception as error:
            raise DispatchError(
                f"The broker did not take {len(pending)} message(s): {str(error).rstrip('.')}.",
                hint="Nothing is lost: a sweep sends again what is recorded.",
            ) from error

    def _send_all(self, producer: Any, letters: Sequence[Letter]) -> None:
        if len(letters) == 1:
            self._send(producer, letters[0])
        else:
            with producer.batch():
                for letter in letters:
                    self._send(producer, letter)
        for letter in letters:
            if not self._queues.knows(letter):
                self._queues.learn(producer, letter, partial(self._send, letter=letter))

    def _send(self, producer: Any, letter: Letter) -> None:
        amqp: Any = self._app.amqp
        options = from_json_options(json.loads(letter.route))
        limits = {key: options.get(key) for key in LIMITS}
        envelope = amqp.as_task_v2(
            uuid(),
            letter.task,
            letter.args,
            {},
            shadow=letter.shadow,
            root_id=letter.root_id,
            parent_id=letter.root_id,
            create_sent_event=self._app.conf.task_send_sent_event,
            ignore_result=True,
            **limits,
        )
        published = {key: options[key] for key in PUBLISHED if key in options}
        amqp.send_task_message(producer, letter.task, envelope, serializer="json", retry=False, **published)


def _letter(members: Sequence[StepMessage]) -> Letter:
    first = members[0]
    return Letter(
        task=STEP_TASK,
        route=_route_of(first.options),
        args=(first.run_id, [[member.name, member.attempt] for member in members], first.task),
        shadow=first.task,
        root_id=first.run_id,
    )


@lru_cache(maxsize=1_000)
def _route_of(options: str) -> str:
    """What a row's options say about its message. The rest, such as a trace's headers, is another text in every row."""
    read = json.loads(options)
    return json.dumps({key: read[key] for key in (*PUBLISHED, *LIMITS) if key in read}, sort_keys=True)


def _pieces(whole: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    for start in range(0, len(whole), size):
        yield whole[start : start + size]
