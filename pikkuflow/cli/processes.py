"""Worker and beat as child processes of ``dev`` and ``demo``: started together, stopped together, none left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from pikkuflow.cli.embedded import die_with_parent
from pikkuflow.errors import PikkuFlowError

__all__ = ["CeleryChild"]

_WARM_SECONDS: Final = 45.0
_COLD_SECONDS: Final = 10.0


class CeleryChild:
    """One ``python -m celery …`` process.

    Args:
        name: what it is called in messages.
        arguments: what follows ``python -m celery``.
        environ: its whole environment.
        log: the file its output goes to; None leaves it on this terminal.
        own_session: its own process group, so that Ctrl-C does not reach it and ``kill`` takes its children along.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        environ: Mapping[str, str],
        log: Path | None = None,
        own_session: bool = False,
    ) -> None:
        self.name = name
        self.log = log
        self._own_session = own_session
        self._output: IO[bytes] | None = log.open("wb") if log else None
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter
            [sys.executable, "-m", "celery", *arguments],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT if log else None,
            start_new_session=own_session,
            preexec_fn=die_with_parent(signal.SIGTERM),  # noqa: PLW1509 - started before there are threads
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def wait_for_line(self, text: str, seconds: float) -> None:
        """Wait until its log shows that text.

        Raises:
            PikkuFlowError: it ended, or the time is over; the message has the log's last lines.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.exit_code is None:
            if text in self._words():
                return
            time.sleep(0.05)
        raise PikkuFlowError(
            f"The {self.name} did not get ready.",
            hint="Its last words:\n" + "\n".join(self._words().splitlines()[-15:]),
        )

    def kill(self) -> None:
        """SIGKILL, with its children: what a power cut does."""
        if self._own_session:
            os.killpg(self.pid, signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Warm shutdown; cold and then SIGKILL if it takes too long. Harmless when it has ended."""
        for asked, seconds in ((signal.SIGTERM, _WARM_SECONDS), (signal.SIGQUIT, _COLD_SECONDS)):
            if self.exit_code is not None:
                break
            self._process.send_signal(asked)
            self._wait(seconds)
        if self.exit_code is None:
            self.kill()
        if self._output is not None:
            self._output.close()

    def _wait(self, seconds: float) -> None:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return

    def _words(self) -> str:
        return self.log.read_text(errors="replace") if self.log else ""
