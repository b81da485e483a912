"""What of Celery itself the design rests on, asked of real workers and a real broker through pytest-celery.

When one of these fails after an upgrade of Celery, the rule that its docstring names has to be decided anew.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from pikkuflow.adapters.sql import migrations
from tests.nodes.journal import Journal
from tests.servers.processes import CeleryProcesses, wait_until
from tests.servers.valkey import ValkeyServer

LONG = 40
"""Seconds until an answer must be there; machines that test are busy."""
OWN_QUEUE = {"PIKKUFLOW_QUEUE": "flows"}
"""A deployment whose passes have a queue of their own: there the extension adds a route as well."""


def _waiting(server: ValkeyServer) -> list[str]:
    """The tasks of the messages that wait for a worker."""
    with Redis.from_url(server.url(0)) as client:
        return [json.loads(message)["headers"]["task"] for message in client.lrange("celery", 0, -1)]


def _unacknowledged(server: ValkeyServer) -> list[str]:
    """The tasks of the messages that a worker fetched, and did not acknowledge."""
    with Redis.from_url(server.url(0)) as client:
        return [json.loads(held)[0]["headers"]["task"] for held in client.hvals("unacked")]


def test_the_nodes_are_processes_that_answer(celery_setup: Any) -> None:
    """Celery-notes 4: pytest-celery's readiness, names and process lists hold for processes of this host."""
    assert celery_setup.ready(ping=False, control=True, docker=True)
    assert len(celery_setup) == 3
    assert celery_setup.app.control.ping(timeout=5, limit=1) == [{celery_setup.worker.hostname(): {"ok": "pong"}}]
    processes = celery_setup.worker.get_running_processes_info(["pid", "ppid"])
    main = celery_setup.worker.container.program.pid
    assert [one["ppid"] for one in processes if one["pid"] != main] == [main]
    assert celery_setup.app.send_task("nodes.touch", (7,)).get(timeout=LONG) == 7


def test_an_early_message_dies_with_its_worker(
    celery_setup: Any, own_valkey: ValkeyServer, journal: Journal, gate: Path
) -> None:
    """Design 3.8, 3.9, 7, celery-notes 2.4: the broker has forgotten it for good, so only a sweep of the database brings work back."""
    celery_setup.app.send_task("nodes.early", (str(gate),))
    journal.wait_for("begun")
    wait_until(lambda: not _unacknowledged(own_valkey), what="the acknowledgement")
    celery_setup.worker.kill()
    assert (_waiting(own_valkey), _unacknowledged(own_valkey)) == ([], [])
    gate.touch()
    celery_setup.worker.container.start()
    assert celery_setup.app.send_task("nodes.touch", (1,)).get(timeout=LONG) == 1
    assert (len(journal.of("begun")), journal.of("done")) == (1, [])


def test_a_late_message_comes_back_after_its_workers_death(
    celery_setup: Any, own_valkey: ValkeyServer, journal: Journal, gate: Path
) -> None:
    """Design 7 (starts by message are late), celery-notes 2.2, 2.4: the broker keeps it, and redelivers it after the visibility timeout."""
    result = celery_setup.app.send_task("nodes.late", (str(gate),))
    journal.wait_for("begun")
    celery_setup.worker.kill()
    assert (_waiting(own_valkey), _unacknowledged(own_valkey)) == ([], ["nodes.late"])
    gate.touch()
    celery_setup.worker.container.start()
    assert result.get(timeout=LONG) == "held"
    assert [line["redelivered"] for line in journal.of("begun", id=result.id)] == [False, True]
    wait_until(lambda: not _unacknowledged(own_valkey), what="the acknowledgement")


def test_a_worker_without_unacknowledged_messages_outlives_its_broker(
    celery_setup: Any, own_valkey: ValkeyServer, journal: Journal, gate: Path
) -> None:
    """Design 4, 7 (early acks, no ETA), celery-notes 2.1: it works on while the broker is away, and takes the next message afterwards."""
    result = celery_setup.app.send_task("nodes.early", (str(gate),))
    journal.wait_for("begun")
    wait_until(lambda: not _unacknowledged(own_valkey), what="the acknowledgement")
    pid = celery_setup.worker.container.program.pid
    celery_setup.broker.restart()
    gate.touch()
    journal.wait_for("done", id=result.id)
    assert celery_setup.app.send_task("nodes.touch", (2,)).get(timeout=LONG) == 2
    assert (celery_setup.worker.container.status, celery_setup.worker.container.program.pid) == ("running", pid)
    assert len(journal.of("begun")) == 1


def test_a_warm_shutdown_ends_the_task_in_hand_and_gives_the_rest_back(
    celery_setup: Any, own_valkey: ValkeyServer, journal: Journal, gate: Path
) -> None:
    """Design 2 (warm shutdown), celery-notes 2.6: SIGTERM waits for the task, and what was only fetched waits in the broker again."""
    in_hand = celery_setup.app.send_task("nodes.early", (str(gate),))
    journal.wait_for("begun")
    fetched = celery_setup.app.send_task("nodes.touch", (3,))
    wait_until(lambda: _unacknowledged(own_valkey) == ["nodes.touch"], what="the second message to be fetched")
    celery_setup.worker.kill("SIGTERM")
    celery_setup.worker.wait_for_log("Warm shutdown", timeout=LONG)
    assert celery_setup.worker.container.status == "running"
    gate.touch()
    assert celery_setup.worker.container.program.wait() == 0
    assert len(journal.of("done", id=in_hand.id)) == 1
    assert (_waiting(own_valkey), _unacknowledged(own_valkey)) == (["nodes.touch"], [])
    celery_setup.worker.container.start()
    assert fetched.get(timeout=LONG) == 3


def test_the_users_own_tasks_are_as_they_were(
    celery_setup: Any,
    own_valkey: ValkeyServer,
    celery_processes: CeleryProcesses,
    deployment_env: dict[str, str],
    journal: Journal,
) -> None:
    """Design 7, celery-notes 1: ``PikkuFlow(app)`` in worker and beat changes no plain task, no message of one, and three settings."""
    plain = _described(celery_setup, celery_processes, journal, "plain")
    celery_setup.worker.kill()
    own_valkey.flush()  # what the first beat sent must not pass for the second's
    migrations.upgrade(deployment_env["PIKKUFLOW_DATABASE_URL"])
    worker = celery_processes.worker("tests.nodes.flows", name="flows", concurrency=1, queues=["celery"], env=OWN_QUEUE)
    flows = _described(celery_setup, celery_processes, journal, "flows")
    worker.kill_all()
    for before, after in zip(plain, flows, strict=True):
        assert {key: after[key] for key in ("task", "bases", "message")} == {
            key: before[key] for key in ("task", "bases", "message")
        }
        settings = after["settings"]
        changed = {name for name, value in before["settings"].items() if settings[name] != value}
        # A worker itself writes the modules of all tasks into `include`.
        assert changed == {"beat_schedule", "include", "task_routes"}
        assert all(name.startswith("pikkuflow_") for name in settings.keys() - before["settings"].keys())
        assert settings["task_routes"].startswith("[" + before["settings"]["task_routes"])
        assert after["beat"].items() >= before["beat"].items()
        assert set(after["tasks"]) >= set(before["tasks"])


def _described(setup: Any, processes: CeleryProcesses, journal: Journal, app: str) -> list[dict[str, Any]]:
    """What the application's worker says of a plain task's message from a client, and of one from its beat."""
    beat = processes.beat(f"tests.nodes.{app}", name=f"beat-{app}", env=OWN_QUEUE)
    setup.app.send_task("nodes.describe", ("client",))
    said = [journal.wait_for("described", sender=sender, app=app)[0] for sender in ("client", "beat")]
    beat.kill_all()
    return said


@pytest.mark.parametrize("worker_app", ["flows"])
def test_a_redelivered_start_message_is_the_same_run(
    celery_setup: Any, own_valkey: ValkeyServer, journal: Journal, gate: Path, tmp_path: Path
) -> None:
    """Design 7 (starts by message are late, and idempotent by task id): a worker dies between a run's commit and the acknowledgement."""
    result = celery_setup.app.send_task("nodes.order", (4,), task_id="order-4")
    journal.wait_for("start committed")
    celery_setup.worker.kill()
    assert "nodes.order" in _unacknowledged(own_valkey)
    gate.touch()
    celery_setup.worker.container.start()
    journal.wait_for("start committed", count=2, seconds=LONG)
    assert result.get(timeout=LONG) == 400
    assert [line["redelivered"] for line in journal.of("start delivered", id="order-4")] == [False, True]
    assert len(journal.of("charged")) == 1
    with closing(sqlite3.connect(tmp_path / "runs.db")) as database:
        assert database.execute("SELECT id, status FROM pikkuflow_run").fetchall() == [("order-4", "completed")]
