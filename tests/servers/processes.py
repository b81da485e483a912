"""Programs that tests start as a user would: with log files, with a deadline for getting ready, and gone when the test is.

Each program leads a session of its own, so a signal for pytest does not reach it, and whatever it started can be found and
ended with it. On Linux the kernel ends it when pytest dies, also by SIGKILL; that follows the *thread* that started it, so
programs are started from the main thread.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil

ROOT = Path(__file__).resolve().parents[2]
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_UNPRIVILEGED_UID = 65534

T = TypeVar("T")


class NotReadyError(AssertionError):
    """A condition did not come true, or a program did not get ready, before its deadline."""


def wait_until(
    condition: Callable[[], T],
    *,
    seconds: float = 20.0,
    every: float = 0.05,
    what: str | Callable[[], str] = "the condition",
) -> T:
    """Ask ``condition`` again and again until it gives something true, and return that.

    Raises NotReadyError, naming ``what`` was waited for, after ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise NotReadyError(f"not within {seconds} s: {what if isinstance(what, str) else what()}")
        time.sleep(every)
    return found


def free_port() -> int:
    """A TCP port of this host that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def unprivileged() -> dict[str, object]:
    """Arguments for Popen that give up root; empty for who is not root. PostgreSQL and MariaDB refuse to run as root."""
    if os.geteuid() != 0:
        return {}
    return {"user": _UNPRIVILEGED_UID, "group": _UNPRIVILEGED_UID, "extra_groups": []}


def hand_over(folder: Path) -> None:
    """Give a folder to the account of ``unprivileged``."""
    if os.geteuid() == 0:
        os.chown(folder, _UNPRIVILEGED_UID, _UNPRIVILEGED_UID)


def _end_with_parent(number: signal.Signals) -> Callable[[], None] | None:
    if _LIBC is None:
        return None
    libc, parent = _LIBC, os.getpid()

    def in_child() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)

    return in_child


@dataclass(slots=True, kw_only=True)
class Program:
    """One program that can be started, asked, killed and started again.

    ``stop_signal`` ends it in good order; ``death_signal`` is what the kernel sends when the test process dies.
    """

    name: str
    argv: Sequence[str | Path]
    log_path: Path
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path = ROOT
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals = signal.SIGKILL
    account: Mapping[str, object] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, appending to its log; an error if it still runs."""
        if self.is_running:
            raise RuntimeError(f"{self.name} runs already, as process {self.pid}")
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(  # type: ignore[call-overload]
                [str(part) for part in self.argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.env},
                cwd=self.cwd,
                start_new_session=True,
                preexec_fn=_end_with_parent(self.death_signal),  # noqa: PLW1509 - only two system calls
                **self.account,
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process as last started; RuntimeError if it never was."""
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process

    @property
    def pid(self) -> int:
        """The process id as last started."""
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """Everything it said so far, over all its starts."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of its log."""
        return "\n".join(self.log().splitlines()[-lines:])

    def wait_until(self, ready: Callable[[], object], *, seconds: float = 30.0) -> None:
        """Wait until ``ready`` gives something true; NotReadyError with the log's end if it does not, or if it died."""

        def alive_and_ready() -> object:
            if not self.is_running:
                code = self.process.returncode
                raise NotReadyError(f"{self.name} ended with {code} before it was ready:\n{self.log_tail()}")
            return ready()

        wait_until(alive_and_ready, seconds=seconds, what=lambda: f"{self.name} ready:\n{self.log_tail()}")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the program alone, not to what it started."""
        self.process.send_signal(number)

    def children(self) -> list[psutil.Process]:
        """Its own children at this moment, such as the pool processes of a prefork worker."""
        try:
            return psutil.Process(self.pid).children()
        except psutil.NoSuchProcess:
            return []

    def wait(self, *, seconds: float = 30.0) -> int:
        """Wait for its end and return its exit code, as subprocess has it (minus the signal's number); NotReadyError if late."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise NotReadyError(f"{self.name} still runs after {seconds} s:\n{self.log_tail()}") from None

    def stop(self, *, seconds: float = 15.0) -> None:
        """End it in good order, by force after ``seconds``; then end all that it left behind. Harmless when it has ended."""
        if self._process is None:
            return
        if self.is_running:
            self.send(self.stop_signal)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self._end_session()
        self.process.wait()

    def kill(self) -> None:
        """``kill -9`` for the program alone: children live on, as after a crash, until ``stop``."""
        self.process.kill()
        self.process.wait()

    def kill_all(self) -> None:
        """``kill -9`` for the program and everything in its session, as when a machine dies."""
        self._end_session()
        self.process.kill()
        self.process.wait()

    def _end_session(self) -> None:
        for left in _members_of_session(self.pid):
            try:
                os.kill(left, signal.SIGKILL)
            except ProcessLookupError:
                continue


def _members_of_session(leader: int) -> list[int]:
    members = []
    for pid in psutil.pids():
        try:
            if pid != leader and os.getsid(pid) == leader:
                members.append(pid)
        except (ProcessLookupError, PermissionError):
            continue
    return members


@dataclass(slots=True, kw_only=True)
class CeleryProcesses:
    """Starts Celery processes for one test, and ends them all.

    ``env`` is what every process gets on top of pytest's own environment (broker and database URLs, say).
    """

    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    programs: list[Program] = field(default_factory=list)

    def worker(  # noqa: PLR0913 - each is an option of `celery worker`
        self,
        app: str,
        *,
        name: str = "w1",
        pool: str = "prefork",
        concurrency: int = 2,
        queues: Sequence[str] = (),
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
        seconds: float = 40.0,
    ) -> Program:
        """Start ``celery -A app worker`` and wait until it consumes. ``name`` is the node's name before the ``@``."""
        argv = ["-n", f"{name}@%h", "-P", pool, "-c", str(concurrency), "-l", "INFO", *options]
        if queues:
            argv += ["-Q", ",".join(queues)]
        worker = self.celery(app, "worker", *argv, name=f"worker-{name}", env=env, cwd=cwd)
        seen = len(worker.log())
        worker.start()
        worker.wait_until(lambda: " ready." in worker.log()[seen:], seconds=seconds)
        return worker

    def beat(
        self,
        app: str,
        *,
        name: str = "beat",
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
    ) -> Program:
        """Start ``celery -A app beat`` with its schedule in the test's folder, and wait until it has begun."""
        argv = ["-s", str(self.folder / f"{name}.schedule"), "-l", "INFO", "--pidfile=", *options]
        beat = self.celery(app, "beat", *argv, name=name, env=env, cwd=cwd)
        seen = len(beat.log())
        beat.start()
        beat.wait_until(lambda: "beat: Starting" in beat.log()[seen:])
        return beat

    def celery(
        self,
        app: str,
        *argv: str,
        name: str,
        env: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
    ) -> Program:
        """Any ``celery -A app …`` command, not yet started; ended with the test."""
        return self.program([sys.executable, "-m", "celery", "-A", app, *argv], name=name, env=env, cwd=cwd)

    def program(
        self,
        argv: Sequence[str | Path],
        *,
        name: str,
        env: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
    ) -> Program:
        """Any program, not yet started; ended with the test."""
        program = Program(
            name=name,
            argv=argv,
            log_path=self.folder / f"{name}.log",
            env={"PYTHONUNBUFFERED": "1", "NO_COLOR": "1", **self.env, **(env or {})},
            cwd=cwd,
        )
        self.programs.append(program)
        return program

    def stop_all(self) -> None:
        """End every program, the latest first."""
        for program in reversed(self.programs):
            program.stop()
