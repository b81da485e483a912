"""What pytest-celery asks of a Docker container, answered by a process of this host.

pytest-celery's nodes never look behind the few names used here (celery-notes.md 4), so its clusters and its setup work without Docker.
Starting, waiting, killing and cleaning up are those of ``tests.servers``.
"""

from __future__ import annotations

import signal as signals
import socket
from typing import Any

import psutil
from celery import __version__ as celery_version
from pytest_celery import CeleryTestWorker

from tests.servers.processes import Program
from tests.servers.valkey import ValkeyServer


class ProcessContainer:
    """A program in the place of a container."""

    def __init__(self, program: Program, celeryconfig: dict[str, Any]) -> None:
        self.program = program
        self.celeryconfig = celeryconfig

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return self.program.name

    @property
    def id(self) -> str:
        """The same: a process needs no other name than the test's."""
        return self.name

    @property
    def status(self) -> str:
        """Docker's word for it: ``running`` or ``exited``."""
        return "running" if self.program.is_running else "exited"

    def is_ready(self) -> bool:
        """Whether the program, as last started, does its work."""
        raise NotImplementedError

    def logs(self) -> str:
        """Everything it said, over all its starts."""
        return self.program.log()

    def ready(self, *, timeout: float = 40.0) -> bool:
        """Wait until it is ready; NotReadyError with its log if it ended, or is not within ``timeout`` seconds."""
        self.program.wait_until(self.is_ready, seconds=timeout)
        return True

    def kill(self, signal: str | int = "SIGKILL") -> None:
        """Send a signal. SIGKILL takes its children as well, and is waited for: a container dies as a whole."""
        number = signals.Signals[signal] if isinstance(signal, str) else signals.Signals(signal)
        if number is signals.SIGKILL:
            self.program.kill_all()
        else:
            self.program.send(number)

    def reload(self) -> None:
        """Do nothing: a process is asked afresh each time."""

    def start(self, *, timeout: float = 40.0) -> None:
        """Start it after its end, and wait ``timeout`` seconds at most until it is ready."""
        self.program.start()
        self.ready(timeout=timeout)

    def restart(self, *, timeout: float = 40.0) -> None:
        """End it in good order if it runs, and start it."""
        self.teardown()
        self.start(timeout=timeout)

    def teardown(self) -> None:
        """End it and what it started; harmless when it has ended."""
        self.program.stop()


class ServerContainer(ProcessContainer):
    """A database of a Valkey server, as a broker or as a result backend."""

    def __init__(self, server: ValkeyServer, *, database: int) -> None:
        url = server.broker_url.replace("virtual_host=0", f"virtual_host={database}")
        super().__init__(server.program, {"url": url, "host_url": url, "vhost": str(database)})
        self.server = server

    def is_ready(self) -> bool:
        """Whether it answers."""
        return self.server.answers()


class WorkerContainer(ProcessContainer):
    """A ``celery worker`` that consumes the default queue and logs at INFO."""

    def __init__(self, program: Program, *, node_name: str) -> None:
        super().__init__(program, {})
        self._node_name = node_name
        self._said_before = 0

    def is_ready(self) -> bool:
        """Whether it consumes."""
        return " ready." in self.logs()[self._said_before :]

    def start(self, *, timeout: float = 40.0) -> None:
        """Start it, for the first time or again, and wait until it consumes."""
        self._said_before = len(self.logs())
        super().start(timeout=timeout)

    def version(self) -> str:
        """Celery's version: the tests' own."""
        return str(celery_version)

    def log_level(self) -> str:
        """What it logs at."""
        return "INFO"

    def worker_name(self) -> str:
        """The node's name before the ``@``."""
        return self._node_name

    def worker_queue(self) -> str:
        """The queue that it consumes."""
        return "celery"


class ProcessWorker(CeleryTestWorker):  # type: ignore[misc] # pytest-celery has no types
    """A worker node whose processes are this host's."""

    container: WorkerContainer

    def hostname(self) -> str:
        """The node's full name, as Celery has it."""
        return f"{self.worker_name}@{socket.gethostname()}"

    def get_running_processes_info(
        self, columns: list[str] | None = None, filters: dict[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """The main process and its pool: psutil's attributes named in ``columns``, of those that are as ``filters`` says."""
        main = psutil.Process(self.container.program.pid)
        found = [one.as_dict(columns) for one in (main, *main.children(recursive=True))]
        return [one for one in found if all(one.get(key) == value for key, value in (filters or {}).items())]
