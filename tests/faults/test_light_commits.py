"""What did not wait for the disk may be forgotten by a server that dies: nothing is lost, doubled or stuck for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import psycopg
import pytest

from pikkuflow.adapters.sql.postgres_passes import insert_steps
from pikkuflow.domain.act import Closing, PassOpening, PassRef
from pikkuflow.domain.history import History
from pikkuflow.domain.ids import Holder, PassId, RunId, StepName
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.domain.step import NewStep
from tests.contract.scene import Scene, new_step
from tests.contract.sql_stores import SqlBench
from tests.faults.forgetful import die_and_forget, freeze_log_writers
from tests.faults.site import LONG, Site, resume
from tests.servers.postgres import PostgresServer

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(600)]

R1, A = RunId("r1"), StepName("a")


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of this test's own, with fsync off: it is killed, the machine is not."""
    made = PostgresServer()
    try:
        made.start()
        yield made
    finally:
        resume(made.program)
        made.stop()


@pytest.fixture
def scene(server: PostgresServer) -> Iterator[Scene]:
    """A scene on it."""
    bench = SqlBench(server.url(server.create_database()))
    yield Scene(bench)
    bench.close()


def _insert(scene: Scene, ref: PassRef, *, name: str = "a") -> NewStep:
    step = new_step(name)
    assert scene.store.insert_steps(ref, [step], lightly=True) is not None
    return step


def _open(scene: Scene) -> PassRef:
    opening = PassOpening(
        run_id=R1, pass_id=PassId("p2"), holder=Holder("node:1"), lease_seconds=30.0, passes_lost_limit=10, lightly=True
    )
    assert isinstance(scene.store.open_pass(opening), History)
    return PassRef(run_id=R1, pass_id=PassId("p2"))


def test_rows_that_are_forgotten_are_news_to_the_closing_of_their_pass(server: PostgresServer, scene: Scene) -> None:
    """The process lives on and parks on a step that is not there any more: another pass inserts it again."""
    ref = scene.begin()
    freeze_log_writers(server)
    _insert(scene, ref)
    die_and_forget(server)
    assert scene.store.get_step(R1, A) is None
    closed = scene.store.close_pass(ref, Closing(status=RunStatus.RUNNING, sent=(A,), expected=(A,)))
    assert closed is not None
    assert closed.wake
    assert scene.claim("a").claimed == ()


def test_an_opening_that_is_forgotten_fences_its_pass_and_leaves_the_news(server: PostgresServer, scene: Scene) -> None:
    """The pass has worked nothing; its run is as it was before, news and all."""
    scene.dispatch("b")
    scene.claimed("b")
    freeze_log_writers(server)
    assert scene.succeed("b").wake
    ref = _open(scene)
    _insert(scene, ref)
    die_and_forget(server)
    run = scene.run()
    assert (run.pass_id, run.lost, run.passes_lost) == (None, False, 0)
    assert run.news > run.seen
    assert scene.step("b").status is StepStatus.SUCCEEDED
    assert scene.store.insert_steps(ref, [new_step("a")], lightly=True) is None
    assert scene.store.close_pass(ref, Closing(status=RunStatus.RUNNING, expected=(A,))) is None


def test_a_claim_keeps_the_opening_and_the_rows_before_it(server: PostgresServer, scene: Scene) -> None:
    """PostgreSQL brings its log to the disk in order: what waited for the disk has all that came before it there, too."""
    scene.insert()
    freeze_log_writers(server)
    ref = _open(scene)
    _insert(scene, ref)
    scene.claimed("a")
    die_and_forget(server)
    assert scene.run().pass_id == ref.pass_id
    assert scene.step("a").status is StepStatus.RUNNING


def test_what_is_written_lightly_sets_nothing_for_the_next_statement(server: PostgresServer, scene: Scene) -> None:
    """Neither on its connection, which a pooler may lend to others, nor in a transaction that goes on (it ends there at the latest)."""
    ref = scene.begin()
    database = scene.store.database  # type: ignore[attr-defined]
    asked = "SELECT current_setting('synchronous_commit') AS now, pg_backend_pid() AS pid"
    before = database.autocommit(lambda db: db.first(asked, {}))
    for name in ("a", "b"):
        _insert(scene, ref, name=name)
        assert database.autocommit(lambda db: db.first(asked, {})) == before
    assert before["now"] == "on"
    _open_and_end_transactions(database, ref)
    scene.park(ref)
    _open(scene)
    assert database.autocommit(lambda db: db.first(asked, {})) == before
    with psycopg.connect(server.dsn()) as other:
        assert other.execute("SHOW synchronous_commit").fetchone() == ("on",)


def _open_and_end_transactions(database: object, ref: PassRef) -> None:
    """As behind a pooler, or in a transaction that someone has begun."""
    asked = "SELECT current_setting('synchronous_commit') AS now"

    def act(db: object) -> list[str]:
        seen = []
        for number, end in enumerate(("COMMIT", "ROLLBACK")):
            db.first("BEGIN", {})  # type: ignore[attr-defined]
            insert_steps(db, ref, [new_step(f"t{number}")], joined=False, lightly=True)  # type: ignore[arg-type]
            db.first(end, {})  # type: ignore[attr-defined]
            seen.append(db.first(asked, {})["now"])  # type: ignore[attr-defined]
        return seen

    assert database.autocommit(act) == ["on", "on"]  # type: ignore[attr-defined]


@pytest.mark.faults
def test_dispatched_steps_outlive_a_server_that_forgets(site: Site) -> None:
    """Chains of dispatched steps, whose server is killed four times and each time forgets all that did not wait for the disk."""
    site.deployment.processes.env.update(PIKKUFLOW_DISPATCH="queue")
    freeze_log_writers(site.postgres)
    site.deployment.worker("faulty", name="w1", concurrency=3)
    site.deployment.worker("faulty", name="w2", concurrency=3)
    site.deployment.beat("faulty")
    storms = [site.faulty.storm.start(2, 0.02) for _ in range(4)]
    chains = [site.faulty.row.start(8, 0.02) for _ in range(20)]
    maps = [site.faulty.fan.start("faulty.work", [0.02] * 6) for _ in range(5)]
    for begun in (20, 60, 100, 140):
        site.deployment.wait_for_journal("begun", count=begun, seconds=LONG)
        die_and_forget(site.postgres)
    resume(site.postgres.program)
    assert [len(run.result(timeout=120)) for run in chains + maps] == [8] * 20 + [6] * 5
    for run in storms:
        run.result(timeout=120)
    worked = Counter((line["key"], line["attempt"]) for line in site.deployment.journal("begun"))
    assert len(worked) == 20 * 8 + 5 * 6 + 4 * 9
    assert set(worked.values()) == {1}
    assert {attempt for _, attempt in worked} == {1}
