"""The recommended configuration is one that Celery accepts, on each broker it speaks of."""

from __future__ import annotations

import importlib
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery
from celery.app.defaults import SETTING_KEYS

from pikkuflow.settings import Settings
from tests.servers.processes import CeleryProcesses, wait_until


@pytest.fixture(params=["redis://localhost/0", "amqp://localhost//", "memory://"])
def config(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """The module, as a process with that broker would load it."""
    monkeypatch.setenv("CELERY_BROKER_URL", request.param)
    module = importlib.import_module("celeryconfig")
    yield importlib.reload(module)
    monkeypatch.undo()
    importlib.reload(module)


def test_every_setting_is_one_that_celery_or_pikkuflow_knows(config: types.ModuleType) -> None:
    """A misspelt setting would be ignored in silence."""
    names = {name for name in vars(config) if name.islower() and not name.startswith("_")} - {"annotations", "os"}
    ours = {name for name in names if name.startswith("pikkuflow_")}
    assert names - ours <= SETTING_KEYS
    app = Celery("config", set_as_current=False)
    app.config_from_object(config)
    assert Settings.from_mapping({name: app.conf[name] for name in ours}, {}).database_url.startswith("sqlite:")


def test_pikkuflows_messages_are_left_to_be_acknowledged_early(config: types.ModuleType) -> None:
    """Design 7: the claim decides, so no late acknowledgement for the whole app."""
    app = Celery("config", set_as_current=False)
    app.config_from_object(config)
    assert not app.conf.task_acks_late
    assert not app.conf.task_reject_on_worker_lost


@pytest.mark.celery
@pytest.mark.slow
@pytest.mark.parametrize("broker", ["valkey_broker", "rabbitmq"])
def test_worker_and_beat_run_under_it(
    broker: str, celery_processes: CeleryProcesses, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """A task travels from beat through the broker to a worker."""
    celery_processes.env = {
        "CELERY_BROKER_URL": request.getfixturevalue(f"{broker}_url"),
        "SMALL_FOLDER": str(tmp_path),
        "SMALL_CONFIG": "celeryconfig",
    }
    worker = celery_processes.worker("tests.servers.small_app", concurrency=1)
    celery_processes.beat("tests.servers.small_app")
    wait_until((tmp_path / "beaten").exists)
    worker.stop()
    assert "Traceback" not in worker.log()
