"""The extension on real workers: refusals at start, canvas, limits, leases, a beat that is not there."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from celery import chain, chord, group

from pikkuflow import RunFailed
from pikkuflow.adapters.sql import migrations
from tests.servers.processes import CeleryProcesses, Program, wait_until
from tests.servers.valkey import ValkeyServer

pytestmark = pytest.mark.slow

APP = "tests.integration.celery.extension_app"


@dataclass(slots=True, kw_only=True)
class Site:
    """The app's module as this process sees it, and its processes."""

    processes: CeleryProcesses
    env: dict[str, str]
    patch: pytest.MonkeyPatch
    client: Any = None

    def load(self, **conf: Any) -> Any:
        """Import the app in this process with more configuration; workers get the same."""
        self.env["EXTENSION_APP_CONF"] = json.dumps(conf)
        self.processes.env.update(self.env)
        for key, value in self.env.items():
            self.patch.setenv(key, value)
        sys.modules.pop(APP, None)
        self.client = importlib.import_module(APP)
        return self.client

    def worker(self, **options: Any) -> Program:
        """A worker, once it consumes."""
        return self.processes.worker(APP, **options)

    def journal(self) -> list[str]:
        """What the tasks noted."""
        path = Path(self.env["EXTENSION_JOURNAL"])
        return path.read_text().splitlines() if path.exists() else []

    def wait_for(self, line: str, *, count: int = 1, seconds: float = 30.0) -> None:
        """Wait for a line of the journal."""
        wait_until(
            lambda: self.journal().count(line) >= count, seconds=seconds, what=lambda: f"{line}: {self.journal()}"
        )


@pytest.fixture
def site(
    tmp_path: Path,
    sqlite_url: str,
    valkey_server: ValkeyServer,
    celery_processes: CeleryProcesses,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Site]:
    """A migrated database, an emptied broker, nothing running."""
    valkey_server.flush()
    migrations.upgrade(sqlite_url)
    env = {
        "CELERY_BROKER_URL": valkey_server.broker_url,
        "PIKKUFLOW_DATABASE_URL": sqlite_url,
        "EXTENSION_JOURNAL": str(tmp_path / "journal"),
    }
    site = Site(processes=celery_processes, env=env, patch=monkeypatch)
    yield site
    if site.client is not None:
        site.client.pikku.runtime.store.close()
        site.client.app.close()
    sys.modules.pop(APP, None)


def refused(site: Site, *options: str, env: dict[str, str] | None = None) -> str:
    """Start a worker that must refuse; what it said."""
    site.processes.env.update(site.env)
    worker = site.processes.celery(APP, "worker", "-c", "1", *options, name="refused", env=env)
    worker.start()
    assert worker.wait(seconds=40) == 1, worker.log()
    return worker.log()


class TestRefusals:
    """What would only fail later stops a worker at once, with one line that says what to do."""

    def test_an_unknown_setting(self, site: Site) -> None:
        """Bad input of issue A: the nearest one is named."""
        said = refused(site, env={"PIKKUFLOW_SWEEP_INTERVALL": "3"})
        assert "PIKKUFLOW_SWEEP_INTERVAL?" in said
        assert "Traceback" not in said

    def test_a_database_without_our_schema(self, site: Site, tmp_path: Path) -> None:
        """Issue A 5: the command to run."""
        said = refused(site, env={"PIKKUFLOW_DATABASE_URL": f"sqlite:///{tmp_path / 'empty.db'}"})
        assert "db upgrade" in said
        assert "Traceback" not in said

    def test_a_broker_that_nobody_named(self, site: Site) -> None:
        """D26: Celery would ask a RabbitMQ on localhost for ever."""
        said = refused(site, env={"CELERY_BROKER_URL": ""})
        assert "NO_BROKER" in said
        assert "broker_url" in said
        assert "amqp://guest" not in said
        assert "Traceback" not in said


class TestCanvas:
    """A workflow at any place of a canvas hands its outcome on (recipes 2)."""

    @pytest.fixture
    def shop(self, site: Site, valkey_server: ValkeyServer) -> Any:
        """The app with a result backend, and a worker."""
        module = site.load(result_backend=valkey_server.tcp_url(2), broker_transport_options={"socket_timeout": 30})
        site.worker(pool="threads", concurrency=4)
        return module

    def test_results_chains_groups_and_chords(self, shop: Any, site: Site) -> None:
        """``AsyncResult(run_id).get()``; head, middle and end of a chain; group; chord header; callbacks; ``send_task``.

        A failure: ``get`` raises, the rest of a chain fails, errbacks are called.
        """
        double, add, total = shop.double, shop.add, shop.total
        started = {
            "delay": (double.delay(1), 2),
            "start": (shop.app.AsyncResult(double.start(2).id), 4),
            "send_task": (shop.app.send_task("ext.double", (3,)), 6),
            "chain": (chain(double.s(1), add.s(1), double.s(), double.s())(), 12),
            "group": (group(double.s(1), add.s(1, 1), double.s(2))(), [2, 2, 4]),
            "chord": (chord([double.s(1), add.s(1, 1), double.s(2)], total.s())(), 8),
            "chord of chains": (chord([chain(add.s(1, 1), double.s()), double.s(3)], total.s())(), 10),
        }
        double.apply_async((5,), link=[shop.noted.s(), shop.noted.s()])
        assert {name: result.get(timeout=60) for name, (result, _) in started.items()} == {
            name: expected for name, (_, expected) in started.items()
        }
        site.wait_for("callback 10", count=2)

        result = shop.refuse.delay(7)
        with pytest.raises(RunFailed, match="not 7"):
            result.get(timeout=60)
        chained = chain(shop.refuse.s(8), shop.add.s(1))()
        with pytest.raises(RunFailed, match="not 8"):
            chained.get(timeout=60)
        linked = shop.refuse.apply_async((9,), link_error=shop.failed.s())
        site.wait_for(f"errback {linked.id}")


class TestLimits:
    """Time limits on prefork (celery-notes 2.5)."""

    def test_a_hard_limit_is_a_failed_attempt(self, site: Site) -> None:
        """The main process writes it: two attempts, then the step fails and says why."""
        module = site.load()
        site.worker(concurrency=2)
        run = module.limited.start(30)
        with pytest.raises(RunFailed, match="time limit"):
            run.result(timeout=60)
        assert [line for line in site.journal() if line.startswith("begun")] == ["begun limited 1", "begun limited 2"]

    @pytest.mark.parametrize(("pool", "ends"), [("prefork", "limit"), ("prefork", "exit"), ("threads", "exit")])
    def test_a_chunk_that_ends_early_costs_only_the_member_at_work(self, site: Site, pool: str, ends: str) -> None:
        """A hard limit, or SystemExit: every other member is worked once, at its first attempt, without waiting for a lease."""
        module = site.load()
        site.worker(pool=pool, concurrency=2)
        run = module.hurdles.start(ends)
        assert run.result(timeout=30) == [0, 1, 2, 3]
        begun = sorted(line.rsplit("[", 1)[1] for line in site.journal() if line.startswith("begun"))
        assert begun == ["0] 1", "1] 1", "1] 2", "2] 1", "3] 1"]


class TestLeases:
    """What works is renewed for (design 7)."""

    @pytest.mark.parametrize("pool", ["prefork", "threads"])
    def test_a_step_longer_than_its_lease_is_not_taken(self, site: Site, pool: str) -> None:
        """T6.11, D32: in place and dispatched, both far longer than the leases, which are shorter than the floor; each is worked once."""
        module = site.load(pikkuflow_run_lease_seconds=2.0, pikkuflow_step_lease_seconds=1.5)
        worker = site.worker(pool=pool, concurrency=2)
        site.processes.beat(APP)
        runs = [module.lingering.start(6.0), module.lingering_queued.start(6.0)]
        for run in runs:
            run.result(timeout=60)
            assert [step.attempts for step in run.status().steps] == [1]
        assert worker.log().count("has a lease of 1.5 s, renewed every 0.5 s") == 1
        assert len([line for line in site.journal() if line.startswith("begun")]) == 2


class TestGuard:
    """The opt-in consumer for users' own late-acknowledged tasks (celery-notes 2.1)."""

    def test_a_worker_survives_a_restart_of_redis_with_a_late_task_in_hand(
        self, site: Site, own_valkey: ValkeyServer
    ) -> None:
        """On Celery 5.7.0 it would end; here it goes on, and so does what was started meanwhile."""
        site.env["CELERY_BROKER_URL"] = own_valkey.tcp_broker_url
        module = site.load(worker_consumer="pikkuflow.adapters.celery.guard:Consumer")
        worker = site.worker(pool="prefork", concurrency=2)
        module.late.delay(4)
        site.wait_for("begun late")
        own_valkey.kill()
        time.sleep(1)
        own_valkey.start()
        run = module.double.start(4)
        assert run.result(timeout=60) == 8
        site.wait_for("done late")
        assert worker.is_running


class TestWithoutBeat:
    """Nobody sweeps but the worker."""

    def test_without_beat_a_worker_sweeps(self, site: Site) -> None:
        """Design 3.8: when no sweep ran for three intervals, the worker's own thread runs it."""
        module = site.load()
        site.worker(pool="solo")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module.pikku.runtime.dispatcher, "wake", lambda _runs, **_: None)
            run = module.double.start(4)
        assert run.result(timeout=40) == 8

    def test_a_worker_looks_at_its_start_for_what_was_lost(self, site: Site, valkey_server: ValkeyServer) -> None:
        """The startup pass: thresholds of zero, whatever the sweep interval."""
        module = site.load(pikkuflow_sweep_interval=600.0)
        run = module.double.start(4)
        valkey_server.flush()
        site.worker(pool="solo")
        assert run.result(timeout=20) == 8
