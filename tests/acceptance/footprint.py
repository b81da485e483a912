"""Commands run as a stranger runs them, and what they leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import psutil

_MARK = "TEST_FOOTPRINT"


def marked(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment that every process started with it carries on, however it detaches itself."""
    plain = {
        name: text for name, text in os.environ.items() if name.startswith(("PATH", "HOME", "LANG", "PIP_", "SSL_"))
    }
    more = {"PYTHONUNBUFFERED": "1", "NO_COLOR": "1", "COLUMNS": "200"}
    return {**plain, **more, **(environ or {}), _MARK: uuid4().hex}


def left_behind(environ: Mapping[str, str]) -> list[str]:
    """The command lines of living processes that were started, directly or not, with a marked environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(_MARK) == environ[_MARK] and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid}: {' '.join(process.cmdline())}")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def run(
    *argv: str | Path, cwd: Path, environ: Mapping[str, str], seconds: float = 60.0, exits: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; an AssertionError with all it said unless it exits as it must."""
    ran = subprocess.run(
        [str(part) for part in argv],
        cwd=cwd,
        env=dict(environ),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert ran.returncode == exits, f"{argv} exited with {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    return ran


def celery(app: str, *argv: str) -> Sequence[str]:
    """``python -m celery -A app …`` of this interpreter."""
    return [sys.executable, "-m", "celery", "-A", app, *argv]
