"""Puts messages on Redis queues as kombu does, for a fifth of the price.

A wake-up or step message differs from the one before it in its ids and arguments only. So the first message of a kind goes through Celery's
publisher, which declares its queue, and once more into a recorder, which keeps what would have been pushed; the next ones are that, with
ids and arguments of their own, pushed with one command. Whatever is not plainly so goes through Celery: another transport, signals or
events on publishing, compression, queues that expire, a server that does not answer.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from celery import Celery, signals
from kombu.transport import redis as transport
from kombu.utils.uuid import uuid

__all__ = ["Letter", "RedisQueues"]

_PUSHED_AT_ONCE: Final = 200
"""Messages of one command: a server works nothing else meanwhile."""

_MOST_KINDS: Final = 1_000
"""Kinds that are kept: limits and priorities may be different in every message."""

_REPR_LENGTH: Final = 1024
"""What Celery keeps of the arguments for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One message. ``route`` tells where it goes and which limits it carries: equal routes of one task are alike but for the rest."""

    task: str
    route: str
    args: tuple[Any, ...]
    shadow: str | None = None
    root_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """What all letters of a task and route share, and where they go."""

    client: Any
    key: str
    message: Mapping[str, Any]
    embed: Any

    def text_of(self, letter: Letter) -> str:
        """What is pushed for a letter."""
        letter_id, shown = uuid(), repr(letter.args)
        body = json.dumps([letter.args, {}, self.embed], separators=(",", ":"))
        headers = {
            **self.message["headers"],
            "id": letter_id,
            "root_id": letter.root_id or letter_id,
            "parent_id": letter.root_id,
            "shadow": letter.shadow,
            "argsrepr": shown if len(shown) <= _REPR_LENGTH else f"{shown[: _REPR_LENGTH - 3]}...",
        }
        properties = {**self.message["properties"], "correlation_id": letter_id, "delivery_tag": uuid()}
        encoded = base64.b64encode(body.encode()).decode()
        return json.dumps({**self.message, "body": encoded, "headers": headers, "properties": properties})


class _Recorder:
    """A channel that keeps the message instead of pushing it."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self.message: dict[str, Any] | None = None
        self.queue = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def basic_publish(self, message: dict[str, Any], exchange: str, routing_key: str, **_: Any) -> None:
        """Keep it as it would be pushed, unless it goes through an exchange."""
        self._channel._inplace_augment_message(message, exchange, routing_key)  # noqa: SLF001 - what basic_publish does
        if not exchange:
            self.message, self.queue = message, routing_key


class RedisQueues:
    """The queues of an app's broker as far as they are plain, for one process at a time."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._pid = os.getpid()
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def push(self, letters: Sequence[Letter]) -> bool:
        """Push all, in their order. False: Celery has to publish them (some may have left, which is harmless)."""
        if self._pid != os.getpid():
            self._pid, self._kinds = os.getpid(), {}
        kinds = self._kinds
        if not kinds or not self._is_plain():
            return False
        found = [kinds.get((letter.task, letter.route)) for letter in letters]
        texts: dict[tuple[Any, str], list[str]] = {}
        for kind, letter in zip(found, letters, strict=True):
            if kind is None:
                return False
            texts.setdefault((kind.client, kind.key), []).append(kind.text_of(letter))
        try:
            for (client, key), pushed in texts.items():
                for start in range(0, len(pushed), _PUSHED_AT_ONCE):
                    client.lpush(key, *pushed[start : start + _PUSHED_AT_ONCE])
        except Exception:  # noqa: BLE001 - Celery's publisher tries next, with its patience, and tells what is wrong
            self._kinds = {}
            return False
        return True

    def knows(self, letter: Letter) -> bool:
        """Letters of this task and route were learnt."""
        return (letter.task, letter.route) in self._kinds

    def learn(self, producer: Any, letter: Letter, send: Any) -> None:
        """Keep what ``send(producer)`` pushes for a letter that has just been sent, so that its queue is declared."""
        channel: Any = producer.channel
        kind: Any = type(channel)
        if kind is not transport.Channel or not self._is_plain():
            return
        recorder = _Recorder(channel)
        producer.channel = recorder
        try:
            send(producer)
        finally:
            producer.channel = channel
        if recorder.message is None or recorder.message["content-type"] != "application/json":
            return
        if recorder.queue in channel._expires or "compression" in recorder.message["headers"]:  # noqa: SLF001 - no public name
            return
        if len(self._kinds) >= _MOST_KINDS:
            self._kinds = {}
        priority = channel._get_message_priority(recorder.message, reverse=False)  # noqa: SLF001 - what _put does
        self._kinds[letter.task, letter.route] = _Kind(
            client=channel._create_client(),  # noqa: SLF001 - the same, once instead of for each message
            key=channel._q_for_pri(recorder.queue, priority),  # noqa: SLF001 - the same
            message=recorder.message,
            embed=json.loads(base64.b64decode(recorder.message["body"]))[2],
        )

    def _is_plain(self) -> bool:
        """Nobody wants to see or change what is published."""
        listening = (signals.before_task_publish, signals.after_task_publish, signals.task_sent)
        return not self._app.conf.task_send_sent_event and not any(signal.receivers for signal in listening)
