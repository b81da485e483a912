"""Where a process runs, in a text that another process on the same machine can ask: does it still live (design 3.9)?

A dead worker's node lease would lapse by itself. Who starts on the same machine need not wait for that: the system knows.
"""

from __future__ import annotations

import os
import time
from hashlib import sha256
from pathlib import Path
from typing import Final

__all__ = ["age_seconds", "has_ended", "identity_of"]

_IMPORTED_AT: Final = time.monotonic()
_ENDED: Final = frozenset("ZX")


def identity_of(pid: int) -> str | None:
    """``<machine>.<pid>.<start>`` of a process of this machine; None where the system does not tell, or there is no such process."""
    machine, started = _machine(), _started(pid)
    return None if machine is None or started is None else f"{machine}.{pid}.{started[1]}"


def has_ended(identity: str) -> bool:
    """Whether that process certainly works no more. False when it lives, ran elsewhere, or nobody can tell."""
    machine, _, process = identity.partition(".")
    pid, _, start = process.partition(".")
    if not pid.isdecimal() or machine != _machine():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    now = _started(int(pid))
    return now is not None and (now[0] in _ENDED or now[1] != start)


def age_seconds() -> float:
    """How long this process has lived; where the system does not tell, since it first asked for this module."""
    since_import = time.monotonic() - _IMPORTED_AT
    started = _started(os.getpid())
    if started is None:
        return since_import
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    return max(since_import, since_boot - int(started[1]) / os.sysconf("SC_CLK_TCK"))


def _machine() -> str | None:
    """This boot of this machine, and the name space in which process ids count: a container has its own."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return None
    return sha256(f"{boot} {space}".encode()).hexdigest()[:16]


def _started(pid: int) -> tuple[str, str] | None:
    """The state of a process, and the tick of its start, after which its id may be another's."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = line.rpartition(")")[2].split()
    return fields[0], fields[19]
