"""A RabbitMQ node as a process of the test session, from Debian's package: own node name, ports, cookie, data and epmd.

Virtual hosts, queues and connections are looked at and changed through the management plugin's HTTP interface: `rabbitmqctl`
starts an Erlang machine a call.
"""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import tempfile
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.servers.processes import Program, free_port, hand_over, unprivileged

_SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_names = count(1)
_OK = range(200, 300)


def find_server() -> Path | None:
    """The start script, not Debian's wrapper around it (that one insists on root); None when not installed."""
    return _SCRIPT.resolve() if _SCRIPT.exists() and shutil.which("epmd") else None


@dataclass(slots=True, kw_only=True)
class RabbitServer:
    """One node, `guest` with password `guest`, on the loopback interface."""

    folder: Path = field(init=False)
    port: int = field(init=False)
    http_port: int = field(init=False)
    program: Program = field(init=False)
    epmd: Program = field(init=False)

    def __post_init__(self) -> None:
        """Choose folder and ports; RuntimeError when RabbitMQ is not installed."""
        script = find_server()
        if script is None:
            raise RuntimeError("the Debian package rabbitmq-server is not installed")
        self.folder = Path(tempfile.mkdtemp(prefix="pf-rq-", dir="/tmp"))
        hand_over(self.folder)
        self.port, self.http_port = free_port(), free_port()
        epmd_port = free_port()
        env = {"ERL_EPMD_PORT": str(epmd_port), "ERL_EPMD_ADDRESS": "127.0.0.1", "HOME": str(self.folder)}
        # Started here and not by Erlang, which would leave it behind as a daemon.
        self.epmd = Program(
            name="epmd",
            argv=["epmd", "-port", str(epmd_port), "-address", "127.0.0.1"],
            log_path=self.folder / "epmd.log",
            env=env,
            cwd=self.folder,
            account=unprivileged(),
        )
        self.program = Program(
            name="rabbitmq",
            argv=[script],
            log_path=self.folder / "log",
            env={**env, **self._node(epmd_port)},
            cwd=self.folder,
            account=unprivileged(),
        )

    def _node(self, epmd_port: int) -> dict[str, str]:
        self._write("enabled_plugins", "[rabbitmq_management].\n")
        self._write(
            "rabbitmq.conf",
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\n"
            f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {self.http_port}\n"
            "log.console = true\nlog.file = false\nvm_memory_high_watermark.absolute = 1GB\ndisk_free_limit.absolute = 50MB\n",
        )
        return {
            "RABBITMQ_NODENAME": f"pf{epmd_port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            # The script then becomes the Erlang machine instead of waiting for it, so signals reach the node.
            "RABBITMQ_ALLOW_INPUT": "1",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-noinput +S 2:2 +sbwt none",
        }

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o644)

    def start(self) -> None:
        """Start it and wait until it answers, some seconds."""
        if not self.epmd.is_running:
            self.epmd.start()
        self.program.start()
        self.program.wait_until(self.answers, seconds=90)

    def stop(self) -> None:
        """End node and epmd, and remove the folder; by force, as nobody asks for its data again."""
        if self.program.is_running:
            self.program.kill_all()
        self.epmd.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        """``kill -9`` for the node and the helpers it started; ``start`` brings it back with what was on disk."""
        self.program.kill_all()

    def restart(self) -> None:
        """Stop it in good order and start it on the same data."""
        self.program.stop(seconds=30)
        self.start()

    def url(self, vhost: str = "/") -> str:
        """The broker URL of a virtual host."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/{quote(vhost, safe='')}"

    def create_vhost(self) -> str:
        """A fresh, empty virtual host's name, with every permission for ``guest``."""
        name = f"t{next(_names)}"
        self.http("PUT", f"/api/vhosts/{name}")
        self.http("PUT", f"/api/permissions/{name}/guest", {"configure": ".*", "write": ".*", "read": ".*"})
        return name

    def delete_vhost(self, name: str) -> None:
        """Remove a virtual host with its queues and connections."""
        self.http("DELETE", f"/api/vhosts/{name}")

    def close_connections(self) -> int:
        """Cut every client's connection from the server's side; how many there were."""
        connections = self.http("GET", "/api/connections")
        for connection in connections:
            self.http("DELETE", f"/api/connections/{quote(connection['name'], safe='')}")
        return len(connections)

    def http(self, method: str, path: str, body: object = None) -> Any:
        """One call of the management interface; the decoded answer, None for an empty one. RuntimeError for an error status."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=20)
        headers = {
            "Authorization": "Basic " + base64.b64encode(b"guest:guest").decode(),
            "Content-Type": "application/json",
        }
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status not in _OK:
            raise RuntimeError(f"{method} {path}: {answer.status} {text.decode(errors='replace')}")
        return json.loads(text) if text else None

    def answers(self) -> bool:
        """Whether the node has started wholly, its virtual host included."""
        try:
            return bool(self.http("GET", "/api/aliveness-test/%2F")["status"] == "ok")
        except (OSError, RuntimeError, http.client.HTTPException, ValueError):
            return False
