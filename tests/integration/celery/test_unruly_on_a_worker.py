"""A real worker with workflows that end their passes badly, and what its log says meanwhile."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from pikkuflow.adapters.sql import migrations
from pikkuflow.domain.status import RunStatus
from tests.servers.processes import CeleryProcesses, Program, wait_until
from tests.servers.valkey import ValkeyServer

pytestmark = pytest.mark.slow

_APP = "tests.integration.celery.unruly_app"


@pytest.fixture
def unruly(
    sqlite_url: str, valkey_server: ValkeyServer, celery_processes: CeleryProcesses, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Any, Program]]:
    """The client's module, and a worker with beat beside it."""
    valkey_server.flush()
    migrations.upgrade(sqlite_url)
    env = {"CELERY_BROKER_URL": valkey_server.broker_url, "PIKKUFLOW_DATABASE_URL": sqlite_url}
    celery_processes.env.update(env)
    for key, value in env.items():
        monkeypatch.setenv(key, value)
    module = importlib.import_module(_APP)
    worker = celery_processes.worker(_APP, concurrency=2)
    celery_processes.beat(_APP)
    yield module, worker
    module.pikku.runtime.store.close()
    module.app.close()
    sys.modules.pop(_APP, None)


def test_broken_passes_disturb_nobody_and_the_log_stays_readable(unruly: tuple[Any, Program]) -> None:
    """One worker for all of it: no hot loop, PASS_LOST for a body that leaves its process, other runs go on; quiet sweeps."""
    module, worker = unruly
    broken, leaving = module.broken.start(), module.leaves.start()
    wait_until(lambda: leaving.head().status is RunStatus.SUSPENDED, seconds=40, what="a suspended run")
    assert leaving.head().code == "PASS_LOST"

    assert module.sound.start(21).result(timeout=30) == 42

    wait_until(lambda: "tried again in 4 s" in worker.log(), seconds=30, what=worker.log)
    waits = re.findall(r"ZeroDivisionError.*tried again in (\d+) s.*", worker.log())
    assert waits[:3] == ["1", "2", "4"]
    assert broken.head().status is RunStatus.RUNNING

    wait_until(lambda: len(module.pikku.runtime.store.sweep_ages()) == 3, what="sweeps of every kind")
    assert "pikkuflow.sweep[" not in worker.log()
    assert len(re.findall(r"unruly\.add\[.*\] succeeded", worker.log())) == 1
