"""Hints in Redis or Valkey: due times in a sorted set, announcements by publishing (design 4).

An outage costs speed and nothing else: the first failure is logged, then there is silence until the server has answered again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from redis.client import PubSub
from redis.exceptions import RedisError

from pikkuflow.adapters.redis.client import DEFAULT_PREFIX, RedisClient, Script
from pikkuflow.domain.act import DueRun
from pikkuflow.domain.ids import RunId

__all__ = ["RedisHints", "RedisWatch"]

_LEAVE: Final = Script.load("leave")
_POP_DUE: Final = Script.load("pop_due")

_log = logging.getLogger(__name__)

_MOST_AT_ONCE: Final = 1_000
"""Hints that one script takes: it hands them to ZREM as arguments, of which Lua allows some thousands."""

_LOOK_AGAIN_SECONDS: Final = 0.5
"""How long a watch without a server waits before its caller looks at the store again."""


class _Outage:
    """Says once that the server is away, and once that it is back.

    After a question that took long to fail nothing is asked for as long again: a hundred hints for a frozen server cost one timeout.
    """

    __slots__ = ("_is_away", "_silent_until")

    def __init__(self) -> None:
        self._is_away = False
        self._silent_until = 0.0

    @property
    def is_silent(self) -> bool:
        """Nothing is to be asked now."""
        return time.monotonic() < self._silent_until

    def began(self, error: Exception, asked_at: float | None = None) -> None:
        now = time.monotonic()
        if asked_at is not None:
            self._silent_until = now + (now - asked_at)
        if not self._is_away:
            _log.warning("hints are off, so sleeps and results may be seconds late until the server is back: %s", error)
        self._is_away = True

    def ended(self) -> None:
        if self._is_away:
            _log.info("hints are back")
        self._is_away = False


class RedisHints:
    """Best-effort speed on a Redis or Valkey server (``Hints`` port). No method raises on an outage.

    Args:
        url: a redis-py URL.
        prefix: in front of every key and channel, for deployments that share a server.
        timeout_seconds: how long to wait for a connection or an answer before the server counts as away.
    """

    __slots__ = ("_client", "_outage", "_prefix")

    def __init__(self, url: str, *, prefix: str = DEFAULT_PREFIX, timeout_seconds: float = 2.0) -> None:
        self._client = RedisClient(url, timeout_seconds=timeout_seconds)
        self._prefix = prefix
        self._outage = _Outage()

    def leave(self, run_id: RunId, in_seconds: float) -> None:
        """Ask that the run be woken in that time; the earlier of two hints stays."""
        self._leave([DueRun(run_id=run_id, in_seconds=in_seconds)])

    def leave_again(self, due: Sequence[DueRun]) -> None:
        """Leave hints that may have been lost, pipelined."""
        if due:
            self._leave(due)

    def _leave(self, due: Sequence[DueRun]) -> None:
        if self._outage.is_silent:
            return
        calls = [(one.run_id, max(0, round(one.in_seconds * 1_000))) for one in due]
        asked_at = time.monotonic()
        try:
            if len(calls) == 1:
                self._client.run(_LEAVE, (self._due_key,), *calls[0])
            else:
                self._client.run_all(_LEAVE, [((self._due_key,), call) for call in calls])
        except ConnectionError as error:
            self._outage.began(error, asked_at)
        else:
            self._outage.ended()

    def pop_due(self, limit: int) -> tuple[RunId, ...]:
        """Take the runs whose time has come, by the server's clock; each is given to one caller."""
        if self._outage.is_silent:
            return ()
        asked_at = time.monotonic()
        try:
            due = self._client.run(_POP_DUE, (self._due_key,), min(limit, _MOST_AT_ONCE))
        except ConnectionError as error:
            self._outage.began(error, asked_at)
            return ()
        self._outage.ended()
        return tuple(RunId(run_id) for run_id in due)

    def announce(self, run_id: RunId) -> None:
        """Tell whoever watches the run that it has moved."""
        if self._outage.is_silent:
            return
        asked_at = time.monotonic()
        try:
            self._client.ask("PUBLISH", self._channel(run_id), "")
        except RedisError as error:
            self._outage.began(error, asked_at)
        else:
            self._outage.ended()

    @contextmanager
    def watching(self, run_id: RunId) -> Iterator[RedisWatch]:
        """Listen to the run on a connection of its own, from entering until leaving."""
        listening = PubSub(self._client.connect().connection_pool)
        watch = RedisWatch(listening, self._channel(run_id), self._outage)
        try:
            watch.listen()
            yield watch
        finally:
            listening.close()

    def wait(self, run_id: RunId, seconds: float) -> bool:
        """One ``watching`` with one ``wait``."""
        with self.watching(run_id) as watch:
            return watch.wait(seconds)

    def close(self) -> None:
        """Give back the connections; hints stay and the service can be used again."""
        self._client.close()

    @property
    def _due_key(self) -> str:
        return f"{self._prefix}due"

    def _channel(self, run_id: RunId) -> str:
        return f"{self._prefix}moved:{run_id}"


class RedisWatch:
    """An open ear for one run (``Watch`` port); for one thread."""

    __slots__ = ("_channel", "_is_listening", "_listening", "_outage")

    def __init__(self, listening: PubSub, channel: str, outage: _Outage) -> None:
        self._listening = listening
        self._channel = channel
        self._outage = outage
        self._is_listening = False

    def listen(self) -> None:
        """Subscribe and wait for the server's word that it did: only then is nothing missed any more."""
        try:
            self._listening.subscribe(self._channel)
            self._is_listening = self._listening.get_message(timeout=_LOOK_AGAIN_SECONDS) is not None
        except RedisError as error:
            self._outage.began(error)

    def wait(self, seconds: float) -> bool:
        """Wait at most that long for an announcement; without a server 0.5 s at most, and False."""
        if not self._is_listening:
            time.sleep(max(0.0, min(seconds, _LOOK_AGAIN_SECONDS)))
            self.listen()
            return False
        try:
            return self._listening.get_message(timeout=max(0.0, seconds)) is not None
        except RedisError as error:
            self._outage.began(error)
            self._is_listening = False
            return False
