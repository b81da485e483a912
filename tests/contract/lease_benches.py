"""One bench a lease service: clients of it, and a way to move its time."""

from __future__ import annotations

import importlib
from typing import Any, Protocol

import pytest
from redis import Redis

from pikkuflow.adapters.memory import MemoryLeases, MovableClock
from pikkuflow.adapters.redis import RedisLeases
from pikkuflow.ports import Leases

__all__ = ["LEASE_SERVICES", "LeaseBench", "MemoryLeaseBench", "RedisLeaseBench", "SqlLeaseBench", "lease_bench_of"]

LEASE_SERVICES = ("memory", "sqlite", "postgres", "mysql", "valkey")


class LeaseBench(Protocol):
    """What the suite needs of a lease service under test."""

    leases: Leases

    def another(self) -> Leases:
        """A second client of the same service, as another process has."""
        ...

    def advance(self, seconds: float) -> None:
        """Let that much time pass for the service."""
        ...

    def close(self) -> None:
        """Give back what it took."""
        ...


class MemoryLeaseBench:
    """The memory service on a clock of its own."""

    def __init__(self) -> None:
        self.clock = MovableClock()
        self.leases: Leases = MemoryLeases(self.clock)

    def another(self) -> Leases:
        """The same object: memory is one process."""
        return self.leases

    def advance(self, seconds: float) -> None:
        """Move the clock."""
        self.clock.advance(seconds)

    def close(self) -> None:
        """Nothing to give back."""


class RedisLeaseBench:
    """A Redis or Valkey server, whose times to live can be shortened."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._server = Redis.from_url(url)
        self._clients: list[RedisLeases] = []
        self.leases: Leases = self.another()

    def another(self) -> Leases:
        """A client with connections of its own."""
        self._clients.append(RedisLeases(self._url))
        return self._clients[-1]

    def advance(self, seconds: float) -> None:
        """Shorten every time to live."""
        for key in self._server.keys("*"):
            left = self._server.pttl(key) - round(seconds * 1_000)
            if left > 0:
                self._server.pexpire(key, left)
            else:
                self._server.delete(key)

    def close(self) -> None:
        """Close every client."""
        for client in self._clients:
            client.close()
        self._server.close()


class SqlLeaseBench:
    """The lease table of a database, whose times can be shifted."""

    def __init__(self, bench: Any) -> None:
        self._bench = bench
        self._url = bench._engine.url.render_as_string(hide_password=False)
        self._clients: list[Any] = []
        self.leases: Leases = self.another()

    def another(self) -> Leases:
        """A client with connections of its own."""
        self._clients.append(importlib.import_module("pikkuflow.adapters.sql").SqlLeases(self._url))
        leases: Leases = self._clients[-1]
        return leases

    def advance(self, seconds: float) -> None:
        """Shift every stored time into the past."""
        self._bench.advance(seconds)

    def close(self) -> None:
        """Close every client."""
        for client in self._clients:
            client.close()


def lease_bench_of(service: str, request: pytest.FixtureRequest) -> LeaseBench:
    """The bench of that service, empty."""
    if service == "memory":
        return MemoryLeaseBench()
    if service == "valkey":
        return RedisLeaseBench(request.getfixturevalue("valkey_url"))
    store_bench = request.getfixturevalue(f"{service}_bench")
    store_bench.empty()
    return SqlLeaseBench(store_bench)
