"""The main job from outside: a project with a workflow, a real worker, a real beat, Valkey, and PostgreSQL or SQLite."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pikkuflow import PikkuFlow
from pikkuflow.adapters.sql import migrations
from tests.servers.processes import CeleryProcesses, Program

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

APP = "tests.acceptance.order_app"
QUEUES = ("celery", "slow")


@dataclass(slots=True, kw_only=True)
class Shop:
    """The application with its processes, as this test sees it."""

    module: Any
    processes: CeleryProcesses
    ledger_path: Path

    @property
    def pikku(self) -> PikkuFlow:
        """Its extension, in this process a caller."""
        found: PikkuFlow = self.module.pikku
        return found

    def worker(self, **options: Any) -> Program:
        """A worker of both queues."""
        return self.processes.worker(APP, queues=options.pop("queues", QUEUES), **options)

    def ledger(self, event: str = "done") -> list[dict[str, Any]]:
        """What the tasks noted."""
        if not self.ledger_path.exists():
            return []
        lines = [json.loads(line) for line in self.ledger_path.read_text().splitlines()]
        return [line for line in lines if line["event"] == event]


@pytest.fixture
def shop(
    database: str,
    fresh_database: Callable[[str], str],
    valkey_broker_url: str,
    celery_processes: CeleryProcesses,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Shop]:
    """The shop on a fresh database; processes are up to the test."""
    database_url = fresh_database(database)
    ledger_path = tmp_path / "ledger.jsonl"
    env = {
        "CELERY_BROKER_URL": valkey_broker_url,
        "PIKKUFLOW_DATABASE_URL": database_url,
        "ORDER_LEDGER": str(ledger_path),
    }
    for key, value in env.items():
        monkeypatch.setenv(key, value)
    celery_processes.env.update(env)
    migrations.upgrade(database_url)
    sys.modules.pop("celeryconfig", None)
    sys.modules.pop(APP, None)
    module = importlib.import_module(APP)
    try:
        yield Shop(module=module, processes=celery_processes, ledger_path=ledger_path)
    finally:
        module.pikku.runtime.store.close()
        module.app.close()
        sys.modules.pop(APP, None)


def once_each(lines: list[dict[str, Any]]) -> bool:
    """Every effect came once."""
    keys = [line["key"] for line in lines]
    return len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("database", "pool"), [("postgres", "prefork"), ("sqlite", "prefork"), ("postgres", "threads"), ("sqlite", "solo")]
)
def test_a_workflow_of_existing_tasks_runs_on_a_real_worker(shop: Shop, pool: str) -> None:
    """The main job: in place, retried by the task itself, in parallel, asleep, on another queue, as a child run. V1."""
    shop.worker(pool=pool)
    shop.processes.beat(APP)
    run = shop.module.order.start(42, run_id="order-42", owner="u1")
    result = run.result(timeout=60)
    assert result["paid"] == "paid 4200"
    assert [each["sku"] for each in result["labels"]] == ["tea-42", "cup", "spoon"]
    assert result["invoice"] == "invoice-42"
    assert result["shipped"] == "parcel-42"
    assert once_each(shop.ledger())
    status = run.status()
    assert status.head.owner == "u1"
    charged = next(step for step in status.steps if step.name == "order.charge")
    assert (charged.status, charged.attempts) == ("succeeded", 3)
