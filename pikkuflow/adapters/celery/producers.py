"""Kept producers with an end to their patience: a broker that is away must be known in about a second (D21).

The app's own pool waits as long as its user likes. A publish here happens after a commit, in a web request or in the middle of a pass, and
what cannot be sent now is sent by a sweep; so connecting is tried twice, quickly.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from celery import Celery
from kombu import pools
from kombu.exceptions import BatchPublishError  # type: ignore[attr-defined]

__all__ = ["Producers"]

_ACQUIRE_SECONDS: Final = 5.0
"""How long a thread waits for a producer that others use."""

_CONNECT_SECONDS: Final = 2.0
"""How long one attempt to connect may take, unless the configuration says something of its own."""

_REDIS_PATIENCE: Final = {"socket_connect_timeout": _CONNECT_SECONDS, "socket_timeout": 3.0}
"""kombu's Redis transport has no time limits unless the configuration sets them."""

_CELERYS_CONNECT_SECONDS: Final = 4.0
"""The default of ``broker_connection_timeout``."""

_INTERVALS: Final = {"interval_start": 0, "interval_step": 0.2, "interval_max": 0.2}


class Producers:
    """The producers of one process for one app."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._pid = os.getpid()
        self._connection: Any = None

    def call(self, publish: Callable[[Any], None]) -> None:
        """Call ``publish(producer)`` with a connected producer, and once more on a fresh connection when the kept one turns out to be dead.

        So whatever ``publish`` sends may be sent twice. Raises what the transport raises.
        """
        with self._connected() as producer:
            again = producer.connection.ensure(
                producer, publish, max_retries=1, retry_errors=(BatchPublishError,), **_INTERVALS
            )
            again(producer)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        with self._pool().acquire(block=True, timeout=_ACQUIRE_SECONDS) as producer:
            connection = producer.connection
            # Every host of a failover list has its turn.
            connection.ensure_connection(max_retries=max(1, len(connection.alt or ()) - 1), **_INTERVALS)
            yield producer

    def _pool(self) -> Any:
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
    app.pool  # noqa: B018 - the property sets the limit of all pools from the configuration
    seconds = app.conf.broker_connection_timeout
    limits: dict[str, Any] = {"connect_timeout": _CONNECT_SECONDS if seconds == _CELERYS_CONNECT_SECONDS else seconds}
    connection: Any = app.connection_for_write(**limits)
    if connection.transport.driver_type != "redis":
        return connection
    options = {**_REDIS_PATIENCE, **app.conf.broker_transport_options}
    return app.connection_for_write(**limits, transport_options=options)
