"""The servers that all share: PostgreSQL with default durability, Valkey without persistence, and a slow way to the database."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.servers.postgres import PostgresServer
from tests.servers.processes import Program, free_port
from tests.servers.valkey import ValkeyServer

DELAY_MS: Final = 1.0
_HERE: Final = Path(__file__).resolve().parent


@dataclass(slots=True, kw_only=True)
class TcpPostgres(PostgresServer):
    """PostgreSQL on a TCP port, as deployments have it; fsync, synchronous_commit and shared_buffers at their defaults."""

    fsync: bool = True
    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        """Add the port."""
        self.options += ("listen_addresses=127.0.0.1", f"port={self.port}", "shared_buffers=128MB")
        PostgresServer.__post_init__(self)

    def dsn(self, database: str = "postgres") -> str:
        """How psycopg reaches a database."""
        return f"host=127.0.0.1 port={self.port} user=postgres dbname={database}"

    @property
    def server_url(self) -> str:
        """The URL without a database."""
        return f"postgresql://postgres@127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """Where the servers are. ``far_database`` is the same PostgreSQL with about 1.4 ms more of round trip."""

    database: str
    far_database: str
    broker: str
    pids: tuple[int, ...]
    """Their processes, for what they use of the machine."""


@contextmanager
def running_servers() -> Iterator[Servers]:
    """Start both servers and the slow way to the database; all of them are gone afterwards."""
    postgres, valkey = TcpPostgres(), ValkeyServer(remembers=False)
    port = free_port()
    proxy = Program(
        name="delay",
        argv=[sys.executable, _HERE / "peers" / "delay_proxy.py", str(port), str(postgres.port), "--ms", str(DELAY_MS)],
        log_path=postgres.folder.with_suffix(".delay.log"),
    )
    try:
        for one in (postgres, valkey, proxy):
            one.start()
        yield Servers(
            database=postgres.server_url,
            far_database=f"postgresql://postgres@127.0.0.1:{port}",
            broker=valkey.tcp_url(1),
            pids=(postgres.program.pid, valkey.program.pid),
        )
    finally:
        for one in (proxy, valkey, postgres):
            one.stop()
        proxy.log_path.unlink(missing_ok=True)
