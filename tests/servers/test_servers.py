"""The fixtures keep what they promise: a server starts, answers, comes back with or without its memory, and is gone at the end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pymysql
import pytest
from kombu import Connection
from redis import Redis
from sqlalchemy import make_url

from tests.servers import legs
from tests.servers.mariadb import MariaServer
from tests.servers.postgres import PostgresServer
from tests.servers.processes import ROOT, CeleryProcesses, NotReadyError, Program, wait_until
from tests.servers.rabbitmq import RabbitServer
from tests.servers.valkey import ValkeyServer


def _gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


class TestPostgres:
    """The PostgreSQL server."""

    def test_each_test_gets_an_empty_database(self, postgres_server: PostgresServer) -> None:
        """A table made in one database is not in the next."""
        names = [postgres_server.create_database() for _ in range(2)]
        with psycopg.connect(postgres_server.dsn(names[0]), autocommit=True) as connection:
            connection.execute("CREATE TABLE here (x int)")
        with psycopg.connect(postgres_server.dsn(names[1]), autocommit=True) as connection:
            row = connection.execute("SELECT to_regclass('here')").fetchone()
        assert row == (None,)
        for name in names:
            postgres_server.drop_database(name)

    def test_a_template_is_built_once_and_copied(self, postgres_server: PostgresServer) -> None:
        """Migrated tables are made once a session."""
        built: list[str] = []

        def build(url: str) -> None:
            built.append(url)
            name = make_url(url).database or ""
            with psycopg.connect(postgres_server.dsn(name), autocommit=True) as connection:
                connection.execute("CREATE TABLE kept (x int)")

        for _ in range(2):
            name = postgres_server.create_database(template=postgres_server.template("servers-test", build))
            with psycopg.connect(postgres_server.dsn(name), autocommit=True) as connection:
                connection.execute("INSERT INTO kept VALUES (1)")
                assert connection.execute("SELECT count(*) FROM kept").fetchone() == (1,)
            postgres_server.drop_database(name)
        assert len(built) == 1

    @pytest.mark.slow
    def test_a_crashed_server_keeps_what_was_committed(self, durable_postgres_server: PostgresServer) -> None:
        """With fsync on, SIGKILL loses nothing."""
        server = durable_postgres_server
        name = server.create_database()
        with psycopg.connect(server.dsn(name), autocommit=True) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS x")
            assert connection.execute("SHOW fsync").fetchone() == ("on",)
        server.restart(crash=True)
        with psycopg.connect(server.dsn(name), autocommit=True) as connection:
            assert connection.execute("SELECT x FROM kept").fetchone() == (1,)
        server.drop_database(name)


class TestValkey:
    """The Valkey server."""

    def test_it_answers_over_socket_and_port(self, valkey_url: str, valkey_server: ValkeyServer) -> None:
        """Both ways lead to the same data, which is empty at the start of a test."""
        with Redis.from_url(valkey_url) as by_socket, Redis.from_url(valkey_server.tcp_url()) as by_port:
            assert by_socket.dbsize() == 0
            by_socket.set("x", "1")
            assert by_port.get("x") == b"1"

    def test_it_comes_back_with_its_memory(self, own_valkey: ValkeyServer) -> None:
        """A killed server still has what it answered for."""
        with Redis.from_url(own_valkey.url()) as client:
            client.set("x", "1")
        own_valkey.kill()
        assert not own_valkey.answers()
        own_valkey.start()
        with Redis.from_url(own_valkey.url()) as client:
            assert client.get("x") == b"1"

    def test_it_comes_back_without_its_memory(self, own_valkey: ValkeyServer) -> None:
        """A server that forgets is what a cache without persistence is."""
        with Redis.from_url(own_valkey.url()) as client:
            client.set("x", "1")
        own_valkey.restart(forget=True)
        with Redis.from_url(own_valkey.url()) as client:
            assert client.get("x") is None

    def test_it_is_gone_when_stopped(self) -> None:
        """Neither process nor folder is left."""
        server = ValkeyServer()
        server.start()
        pid = server.program.pid
        server.stop()
        assert _gone(pid)
        assert not server.folder.exists()

    @pytest.mark.skipif(sys.platform != "linux", reason="the death signal is Linux'")
    def test_it_dies_with_a_killed_parent(self, valkey_server: ValkeyServer) -> None:
        """A pytest that is killed leaves no server behind."""
        assert valkey_server.answers()
        script = (
            "import time\nfrom tests.servers.valkey import ValkeyServer\n"
            "server = ValkeyServer()\nserver.start()\nprint(server.program.pid, server.folder, flush=True)\ntime.sleep(60)\n"
        )
        with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            pid, folder = parent.stdout.readline().split()
            assert psutil.pid_exists(int(pid))
            parent.kill()
        wait_until(lambda: _gone(int(pid)), seconds=10)
        shutil.rmtree(folder)


@pytest.mark.slow
class TestRabbit:
    """The RabbitMQ node."""

    def test_each_test_gets_an_empty_virtual_host(self, rabbitmq_url: str) -> None:
        """A message sent there comes back from there."""
        with Connection(rabbitmq_url) as connection, connection.SimpleQueue("q") as queue:
            assert queue.qsize() == 0
            queue.put({"x": 1})
            message = queue.get(timeout=10)
            assert message.payload == {"x": 1}
            message.ack()

    def test_the_servers_side_can_cut_connections(self, rabbitmq_server: RabbitServer, rabbitmq_url: str) -> None:
        """An outage that only clients see."""
        with Connection(rabbitmq_url) as connection:
            connection.ensure_connection(max_retries=3)
            wait_until(rabbitmq_server.close_connections, seconds=20)

    def test_a_killed_node_comes_back(self, rabbitmq_server: RabbitServer) -> None:
        """With its virtual hosts, as they are on disk."""
        name = rabbitmq_server.create_vhost()
        rabbitmq_server.kill()
        assert not rabbitmq_server.answers()
        rabbitmq_server.start()
        assert name in {host["name"] for host in rabbitmq_server.http("GET", "/api/vhosts")}
        rabbitmq_server.delete_vhost(name)


@pytest.mark.slow
class TestMaria:
    """The MariaDB server."""

    def test_a_crashed_server_comes_back(self, mariadb_server: MariaServer, mysql_url: str) -> None:
        """With what was committed and had a second to reach the disk."""
        name = make_url(mysql_url).database
        socket = str(mariadb_server.folder / "s")
        with pymysql.connect(unix_socket=socket, user="root", database=name, autocommit=True) as connection:
            connection.cursor().execute("CREATE TABLE kept (x int)")
        mariadb_server.restart(crash=True)
        with (
            pymysql.connect(unix_socket=socket, user="root", database=name, autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SHOW TABLES")
            assert cursor.fetchall() == (("kept",),)


@pytest.mark.slow
class TestCeleryProcesses:
    """Workers and beat as processes."""

    def test_worker_and_beat_run_and_are_gone_afterwards(
        self, celery_processes: CeleryProcesses, valkey_broker_url: str, tmp_path: Path
    ) -> None:
        """Beat's task is worked by the worker; afterwards no process of the two is left."""
        celery_processes.env = {"CELERY_BROKER_URL": valkey_broker_url, "SMALL_FOLDER": str(tmp_path)}
        worker = celery_processes.worker("tests.servers.small_app", concurrency=1)
        beat = celery_processes.beat("tests.servers.small_app")
        wait_until((tmp_path / "beaten").exists)
        pids = [worker.pid, beat.pid, *(child.pid for child in worker.children())]
        celery_processes.stop_all()
        assert all(map(_gone, pids))

    def test_a_killed_worker_leaves_children_until_it_is_stopped(
        self, celery_processes: CeleryProcesses, valkey_broker_url: str, tmp_path: Path
    ) -> None:
        """``kill`` is a crash of the main process only; ``stop`` ends what it left."""
        celery_processes.env = {"CELERY_BROKER_URL": valkey_broker_url, "SMALL_FOLDER": str(tmp_path)}
        worker = celery_processes.worker("tests.servers.small_app", concurrency=1)
        sender = celery_processes.celery(
            "tests.servers.small_app", "call", "small.hang", "--args=['began']", name="call"
        )
        sender.argv = [*sender.argv[:-1], '--args=["began"]']
        sender.start()
        wait_until((tmp_path / "began").exists)
        child = int((tmp_path / "began").read_text().splitlines()[0])
        worker.kill()
        assert not _gone(child)
        worker.stop()
        wait_until(lambda: _gone(child), seconds=5)


class TestPrograms:
    """What all programs share."""

    def test_a_program_that_dies_early_is_reported_with_its_log(self, tmp_path: Path) -> None:
        """Waiting for it does not last until the deadline."""
        program = Program(
            name="brief",
            argv=[sys.executable, "-c", "print('out of luck'); raise SystemExit(3)"],
            log_path=tmp_path / "log",
        )
        program.start()
        with pytest.raises(NotReadyError, match=r"(?s)ended with 3.*out of luck"):
            program.wait_until(lambda: False)
        program.stop()

    def test_a_program_that_ignores_the_stop_signal_is_killed(self, tmp_path: Path) -> None:
        """Nothing outlives its test."""
        program = Program(
            name="deaf",
            argv=[
                sys.executable,
                "-c",
                "import signal, time; signal.signal(15, signal.SIG_IGN); print('on', flush=True); time.sleep(60)",
            ],
            log_path=tmp_path / "log",
        )
        program.start()
        program.wait_until(lambda: "on" in program.log())
        program.stop(seconds=0.2)
        assert program.process.returncode == -signal.SIGKILL

    def test_a_missing_required_server_fails_in_ci_and_skips_at_home(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A leg that should have run cannot be lost unseen."""
        monkeypatch.delitem(os.environ, "CI", raising=False)
        with pytest.raises(pytest.skip.Exception, match="leg not run: PostgreSQL"):
            legs.missing("PostgreSQL", "no wheel", required_in_ci=True)
        monkeypatch.setitem(os.environ, "CI", "true")
        with pytest.raises(pytest.fail.Exception, match="leg not run: PostgreSQL"):
            legs.missing("PostgreSQL", "no wheel", required_in_ci=True)
        with pytest.raises(pytest.skip.Exception):
            legs.missing("RabbitMQ", "no package", required_in_ci=False)

    def test_missing_legs_are_named_once_each(self) -> None:
        """The summary is short."""
        messages = ["Skipped: leg not run: RabbitMQ: no package"] * 3 + ["Skipped: other"]
        assert legs.named(messages) == ["RabbitMQ: no package"]
