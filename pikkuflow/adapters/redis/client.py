"""One Redis or Valkey client a process, and the scripts that it runs.

A client is made on first use in each process: a connection that two processes share would give one the other's answers. Answers come at
once or not at all: short timeouts, and one repetition at once, because the pooled connection of a restarted server is dead only once.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.retry import Retry

__all__ = ["DEFAULT_PREFIX", "RedisClient", "Script"]

DEFAULT_PREFIX: Final = "pikkuflow:"


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script of this package with the digest under which a server remembers it."""

    text: str
    digest: str

    @classmethod
    def load(cls, name: str) -> Script:
        """Read ``<name>.lua``; its header says what its keys and arguments are."""
        text = (files("pikkuflow.adapters.redis") / f"{name}.lua").read_text(encoding="utf-8")
        return cls(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


class RedisClient:
    """The client of this process.

    Args:
        url: a redis-py URL (``redis://``, ``rediss://``, ``unix://``).
        timeout_seconds: how long to wait for a connection, and for an answer.
    """

    __slots__ = ("_client", "_kept", "_pid", "_timeout_seconds", "_url")

    def __init__(self, url: str, *, timeout_seconds: float = 2.0) -> None:
        self._url = url
        self._timeout_seconds = timeout_seconds
        self._client: Redis | None = None
        self._kept: deque[Any] = deque()
        self._pid = 0

    def connect(self) -> Redis:
        """The client; it connects by itself when it is asked something."""
        client = self._client
        if client is None or self._pid != os.getpid():
            client = Redis.from_url(
                self._url,
                decode_responses=True,
                # The old protocol: one greeting fewer on each new connection, and servers of any age speak it.
                protocol=2,
                # Again once for a connection that the server closed meanwhile; not for a server that does not answer.
                retry=Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
                socket_connect_timeout=self._timeout_seconds,
                socket_timeout=self._timeout_seconds,
            )
            self._client, self._kept, self._pid = client, deque(), os.getpid()
        return client

    def run(self, script: Script, keys: tuple[str, ...], *arguments: str | int) -> Any:
        """Run a script: one round trip, two when the server has forgotten it.

        Raises:
            ConnectionError: the server does not answer, or refuses (it is loading, read-only, out of memory, wants a password).
        """
        count = len(keys)
        try:
            try:
                return self.ask("EVALSHA", script.digest, count, *keys, *arguments)
            except NoScriptError:
                return self.ask("EVAL", script.text, count, *keys, *arguments)
        except RedisError as error:
            raise ConnectionError(f"Redis or Valkey does not serve: {error}") from error

    def ask(self, *command: str | int) -> Any:
        """One command on a connection that stays out of the pool between commands: lending it costs more than a command does.

        Again once, on a fresh connection, when the server closed this one meanwhile. Raises ``RedisError``.
        """
        pool = self.connect().connection_pool
        kept = self._kept
        try:
            connection = kept.pop()
        except IndexError:
            connection = pool.get_connection()
        try:
            try:
                return _answer(connection, command)
            except RedisConnectionError:
                return _answer(connection, command)
        finally:
            kept.append(connection)

    def run_all(self, script: Script, calls: Sequence[tuple[tuple[str, ...], tuple[str | int, ...]]]) -> list[Any]:
        """Run a script that may be repeated, once for each pair of keys and arguments, in one round trip.

        Raises:
            ConnectionError: as ``run``.
        """
        client = self.connect()
        try:
            try:
                return _pipelined(client, script, calls)
            except NoScriptError:
                client.script_load(script.text)
                return _pipelined(client, script, calls)
        except RedisError as error:
            raise ConnectionError(f"Redis or Valkey does not serve: {error}") from error

    def close(self) -> None:
        """Give back the connections; the next question opens new ones."""
        client, self._client = self._client, None
        if client is not None and self._pid == os.getpid():
            while self._kept:
                self._kept.pop().disconnect()
            client.close()


def _answer(connection: Any, command: tuple[str | int, ...]) -> Any:
    try:
        connection.send_command(*command)
        return connection.read_response()
    except ResponseError:
        raise
    except BaseException:
        # It may still get the answer to this.
        connection.disconnect()
        raise


def _pipelined(
    client: Redis, script: Script, calls: Sequence[tuple[tuple[str, ...], tuple[str | int, ...]]]
) -> list[Any]:
    with client.pipeline(transaction=False) as pipeline:
        for keys, arguments in calls:
            pipeline.evalsha(script.digest, len(keys), *keys, *arguments)
        return pipeline.execute()
