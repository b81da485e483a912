"""Whether a process that held something still lives, as another process of the same machine can tell."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from pikkuflow.adapters.celery.process_identity import has_ended, identity_of


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that sleeps, and is gone after the test."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def identity_of_living(pid: int) -> str:
    """Its identity, which every Linux gives."""
    identity = identity_of(pid)
    assert identity is not None
    return identity


def test_a_process_that_lives_has_not_ended(process: subprocess.Popen[bytes]) -> None:
    """Whether it is ours or another's."""
    assert not has_ended(identity_of_living(process.pid))
    assert not has_ended(identity_of_living(os.getpid()))
    assert not has_ended(identity_of_living(1))


def test_a_killed_process_has_ended_before_its_parent_looks(process: subprocess.Popen[bytes]) -> None:
    """Its supervisor may be busy starting the next one."""
    identity = identity_of_living(process.pid)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert has_ended(identity)
    process.wait()
    assert has_ended(identity)
    assert identity_of(process.pid) is None


def test_a_process_id_that_is_anothers_by_now_has_ended(process: subprocess.Popen[bytes]) -> None:
    """The moment of its start tells the two apart."""
    machine, pid, start = identity_of_living(process.pid).split(".")
    assert has_ended(f"{machine}.{pid}.{int(start) - 1}")


@pytest.mark.parametrize("identity", ["", "elsewhere.1.1", "elsewhere.999999999.1", "x", "x.y.z", "x.-1.1"])
def test_of_a_process_elsewhere_nobody_can_tell(identity: str) -> None:
    """Another machine or container, an older version, anything else: its lease has to lapse."""
    assert not has_ended(identity)


def test_what_is_no_process_id_is_nobodys() -> None:
    """A text that was made by nobody ends nothing."""
    machine = identity_of_living(os.getpid()).partition(".")[0]
    assert not has_ended(f"{machine}.-1.1")
    assert not has_ended(f"{machine}.{10**30}.1")
    assert not has_ended(f"{machine}.")
    assert not has_ended(machine)


def test_the_age_of_a_process_counts_from_its_start() -> None:
    """Not from the import of this package: what came in between came after it began (docs/decisions/startup-pass.md)."""
    code = "import time; time.sleep(0.5); from pikkuflow.adapters.celery.process_identity import age_seconds; print(age_seconds())"
    began = time.monotonic()
    age = float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)

    assert 0.48 <= age <= time.monotonic() - began + 0.02
