"""An ordinary Celery project that never heard of pikkuflow, and one file added to it (issue A, "Existing tasks unchanged")."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import on_valkey
from tests.acceptance.deployment import Deployment
from tests.servers.postgres import PostgresServer
from tests.servers.valkey import ValkeyServer

PROJECT = Path(__file__).parent / "plain_project"


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the shop keeps."""
    return tmp_path_factory.mktemp("plainshop") / "journal"


@pytest.fixture(scope="module")
def shop(
    tmp_path_factory: pytest.TempPathFactory,
    journal: Path,
    valkey_server: ValkeyServer,
    postgres_server: PostgresServer,
) -> Iterator[Deployment]:
    """Two workers, as the shop has them: one for the shop, one with the printers."""
    settings = {"PLAINSHOP_JOURNAL": str(journal)}
    for deployment in on_valkey(tmp_path_factory.mktemp("shop"), valkey_server, postgres_server, settings):
        for queue in ("shop", "printers"):
            deployment.processes.worker("plainshop.workflows", name=queue, queues=[queue], cwd=PROJECT)
        yield deployment


@pytest.fixture(scope="module")
def ended(shop: Deployment) -> Any:
    """An order that has run."""
    with shop.environ(), pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PROJECT))
        workflows = importlib.import_module("plainshop.workflows")
        run = workflows.order.start(7, run_id="order-7")
        run.result(timeout=40)
        yield run
        workflows.pikku.runtime.store.close()
        workflows.app.close()


@pytest.fixture(scope="module")
def lines(ended: Any, journal: Path) -> list[dict[str, Any]]:
    """The journal of that order."""
    return [json.loads(line) for line in journal.read_text().splitlines()]


def _of(lines: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["event"] == event]


def test_the_order_completes_with_the_right_result(ended: Any) -> None:
    """One added file gave the shop a durable workflow."""
    assert ended.result(timeout=0) == {
        "paid": "payment-7-999",
        "labels": ["label-tea", "label-cup"],
        "size": "about a metre",
        "note": "order 7 goes to 1 Harbour Street",
    }


def test_a_bound_task_is_retried_under_the_same_request_id(lines: list[dict[str, Any]]) -> None:
    """``self.retry`` became a durable retry: ``self.request.retries`` counts, ``self.request.id`` stays (T3.3)."""
    charges = _of(lines, "charge")
    assert [line["retries"] for line in charges] == [0, 1]
    assert len({line["id"] for line in charges}) == 1


def test_autoretry_for_is_honoured(lines: list[dict[str, Any]]) -> None:
    """Two broken lines, three tries."""
    assert [line["retries"] for line in _of(lines, "check_address")] == [0, 1, 2]


def test_a_routed_task_is_worked_by_the_worker_of_its_queue(shop: Deployment, lines: list[dict[str, Any]]) -> None:
    """Labels are printed on the printers' worker, everything else in the shop's."""
    on_printers = {child.pid for child in shop.processes.programs[1].children()}
    in_shop = {child.pid for child in shop.processes.programs[0].children()}
    assert {line["pid"] for line in _of(lines, "printed")} <= on_printers
    assert {line["pid"] for line in lines if line["event"] != "printed"} <= in_shop
    assert sorted(line["sku"] for line in _of(lines, "printed")) == ["cup", "tea"]


def test_a_soft_time_limit_of_the_tasks_own_is_kept(lines: list[dict[str, Any]]) -> None:
    """``measure`` was told after a second, and went on from there."""
    assert len(_of(lines, "soft_limit")) == 1


def test_hooks_of_a_base_class_are_called_as_celery_does(lines: list[dict[str, Any]]) -> None:
    """Every start is told, success once, failure never; calls went through ``super().__call__`` and published nothing."""
    told = [(line["event"], line["task"].rpartition(".")[2]) for line in lines if "task" in line]
    assert told.count(("before_start", "reserve")) == 1
    assert told.count(("before_start", "charge")) == 2
    assert told.count(("on_success", "reserve")) == 1
    assert told.count(("on_success", "charge")) == 1
    assert not _of(lines, "on_failure")


def test_a_step_is_known_by_its_tasks_name_in_the_workers_log(shop: Deployment, ended: Any) -> None:
    """``shadow``: operators find their own tasks' names."""
    assert "Task plainshop.tasks.print_label[" in shop.processes.programs[1].log()


def test_the_projects_own_tests_still_pass() -> None:
    """As they were, with the workflow's file beside them."""
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null"),
            *("--rootdir", ".", "tests"),
            *("-p", "no:celery", "-p", "no:docker_tools"),  # ours, for tests/nodes; the shop never installed them
        ],
        cwd=PROJECT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ".", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "6 passed" in ran.stdout
