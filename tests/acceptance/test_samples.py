"""Some forty sample workflows end as they must, wherever they are worked (spec V1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.conftest import on_valkey
from tests.acceptance.deployment import Deployment, deployed, steps_of
from tests.servers.postgres import PostgresServer
from tests.servers.processes import wait_until
from tests.servers.rabbitmq import RabbitServer
from tests.servers.valkey import ValkeyServer

SECONDS = 30.0


@pytest.fixture(scope="module")
def valkey_prefork(
    tmp_path_factory: pytest.TempPathFactory, valkey_server: ValkeyServer, postgres_server: PostgresServer
) -> Iterator[Deployment]:
    """Valkey, PostgreSQL, a prefork worker."""
    for deployment in on_valkey(tmp_path_factory.mktemp("prefork"), valkey_server, postgres_server):
        deployment.worker("samples", pool="prefork")
        yield deployment


@pytest.fixture(scope="module")
def valkey_threads(
    tmp_path_factory: pytest.TempPathFactory, valkey_server: ValkeyServer, postgres_server: PostgresServer
) -> Iterator[Deployment]:
    """Valkey, PostgreSQL, a worker of threads."""
    for deployment in on_valkey(tmp_path_factory.mktemp("threads"), valkey_server, postgres_server):
        deployment.worker("samples", pool="threads", concurrency=4)
        yield deployment


@pytest.fixture(scope="module")
def rabbitmq_sql_leases(
    tmp_path_factory: pytest.TempPathFactory, rabbitmq_server: RabbitServer, postgres_server: PostgresServer
) -> Iterator[Deployment]:
    """RabbitMQ and no Redis: leases are rows of PostgreSQL, and the sweeps of beat wake who slept."""
    vhost, database = rabbitmq_server.create_vhost(), postgres_server.create_database()
    deployment = deployed(
        tmp_path_factory.mktemp("rabbitmq"),
        broker_url=rabbitmq_server.url(vhost),
        database_url=postgres_server.url(database),
    )
    try:
        deployment.worker("samples", pool="prefork")
        deployment.beat("samples")
        yield deployment
    finally:
        deployment.close()
        rabbitmq_server.delete_vhost(vhost)
        postgres_server.drop_database(database)


@pytest.fixture(scope="module")
def inline_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The samples as a client of a SQLite file, without a broker that anyone listens to."""
    folder = tmp_path_factory.mktemp("inline")
    deployment = deployed(folder, broker_url="memory://", database_url=f"sqlite:///{folder / 'runs.db'}")
    yield deployment.load("samples")
    deployment.close()


def _rows(module: Any, run: Any) -> list[tuple[Any, ...]]:
    """What must be the same wherever a run is worked. Time, ids and numbers of its own (``__…``) differ between any two runs."""
    return [
        (row.name, row.kind, row.status, row.attempt, row.args, None if row.name.startswith("__") else row.result)
        for row in steps_of(module, run)
    ]


def _check(deployment: Deployment, inline: Any) -> None:
    samples = deployment.load("samples")
    runs = [(sample, sample.workflow.start(*sample.args)) for sample in samples.SAMPLES]
    open_: set[str] = set()

    def all_settled() -> bool:
        open_.clear()
        open_.update(sample.name for sample, run in runs if run.head().completed_at is None)
        return not open_

    wait_until(all_settled, seconds=SECONDS, every=0.2, what=lambda: f"the end of {sorted(open_)}")
    ends = {sample.name: run.status() for sample, run in runs}
    wrong = {
        sample.name: end.to_dict()
        for sample in samples.SAMPLES
        if not _is_as_it_must_be(sample, end := ends[sample.name])
    }
    assert wrong == {}
    for sample, run in runs:
        if sample.name not in {"document.review", "notify.quiet"}:
            here = inline.pikku.runs.get(sample.name)
            assert _rows(samples, run) == _rows(inline, here), sample.name


def _is_as_it_must_be(sample: Any, end: Any) -> bool:
    if sample.error is not None:
        return bool(end.status == "failed" and sample.error in end.error)
    return bool(end.status == "completed" and end.output == sample.output)


@pytest.fixture(scope="module")
def inline_runs(inline_sqlite: Any) -> Any:
    """Every sample, run inline once under its own name."""
    for sample in inline_sqlite.SAMPLES:
        sample.workflow.run_inline(*sample.args, run_id=sample.name)
    return inline_sqlite


def test_every_sample_ends_as_it_must_inline_on_sqlite(inline_runs: Any) -> None:
    """V1, inline: the expected status and output, in this process (D26)."""
    wrong = {
        sample.name: end.to_dict()
        for sample in inline_runs.SAMPLES
        if not _is_as_it_must_be(sample, end := inline_runs.pikku.runs.get(sample.name).status())
    }
    assert wrong == {}
    assert len(inline_runs.SAMPLES) >= 40


def test_every_sample_ends_as_it_must_on_valkey_with_prefork(valkey_prefork: Deployment, inline_runs: Any) -> None:
    """V1: within 30 s, and with the rows that the inline run has."""
    _check(valkey_prefork, inline_runs)


def test_every_sample_ends_as_it_must_on_valkey_with_threads(valkey_threads: Deployment, inline_runs: Any) -> None:
    """V1: within 30 s, and with the rows that the inline run has."""
    _check(valkey_threads, inline_runs)


def test_every_sample_ends_as_it_must_on_rabbitmq_with_sql_leases(
    rabbitmq_sql_leases: Deployment, inline_runs: Any
) -> None:
    """V1: within 30 s, and with the rows that the inline run has."""
    _check(rabbitmq_sql_leases, inline_runs)
