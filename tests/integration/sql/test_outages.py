"""A database that goes away: acts wait for it, an answer that was lost is asked for again, and nothing happens twice (design 3.4)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psutil
import pytest
from sqlalchemy import select

from pikkuflow.adapters.sql import DueColumnHints, SqlLeases, SqlRunStore
from pikkuflow.adapters.sql.database import Transaction
from pikkuflow.adapters.sql.engines import IDLE_IN_TRANSACTION_SECONDS
from pikkuflow.domain.act import ClaimRequest, Closing, PassOpening, PassRef, StepOutcome, StepWrite
from pikkuflow.domain.history import History
from pikkuflow.domain.ids import ClaimId, Holder, PassId, RunId, StepName
from pikkuflow.domain.run import ParentStep
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus
from pikkuflow.domain.step import Place
from pikkuflow.errors import SettingError, StoreUnavailable
from tests.contract.scene import BOOM, Scene, new_run, new_step
from tests.contract.sql_stores import SqlBench
from tests.integration.sql.lossy_proxy import LossyProxy
from tests.servers.postgres import PostgresServer
from tests.servers.processes import wait_until

_RUN = RunId("r1")
_REF = PassRef(run_id=_RUN, pass_id=PassId("p1"))


class Stage:
    """A scene that sees the database directly, and a store that sees it through the proxy."""

    def __init__(self, server: PostgresServer, database: str) -> None:
        self.bench = SqlBench(server.url(database))
        self.scene = Scene(self.bench)
        self.proxy = LossyProxy(server)
        self.store = SqlRunStore(self.proxy.url(database), pool_size=1, patience_seconds=20.0)

    def losing(self, act: Callable[[], Any], *, to: bytes) -> Any:
        """The answer to an act, of which the first answer to a question with these bytes was lost."""
        # A connection is there already, so that only the act is asked.
        self.store.get_run(_RUN)
        self.proxy.lose_answer(to)
        answer = act()
        assert self.proxy.lost == 1
        return answer


@pytest.fixture
def stage(postgres_server: PostgresServer) -> Iterator[Stage]:
    """A store behind a proxy."""
    name = postgres_server.create_database()
    stage = Stage(postgres_server, name)
    yield stage
    stage.store.close()
    stage.bench.close()
    stage.proxy.close()
    postgres_server.drop_database(name)


def _write(status: StepStatus, **more: Any) -> StepWrite:
    step = new_step("a", place=Place.in_pass("p1"), queue=None)
    return StepWrite(**{"step": step, "attempt": 1, "status": status, **more})


def _claim() -> ClaimRequest:
    steps = ((StepName("a"), 1),)
    return ClaimRequest(run_id=_RUN, steps=steps, task="shop.pack", claim_id=ClaimId("c1"), holder=Holder("node:2"))


def _outcome(status: StepStatus, **more: Any) -> StepOutcome:
    return StepOutcome(name=StepName("a"), attempt=1, claim_id=ClaimId("c1"), status=status, **more)


# --- an answer is lost --------------------------------------------------------------------------------------------------


def test_a_start_whose_answer_was_lost_is_this_callers(stage: Stage) -> None:
    """D24: the run is there by our own author, so we created it and we wake it."""
    (inserted,) = stage.losing(lambda: stage.store.insert_runs([new_run()]), to=b"INSERT INTO pikkuflow_run")
    assert inserted.created
    (again,) = stage.store.insert_runs([new_run()])
    assert not again.created


def test_an_opening_whose_answer_was_lost_opens(stage: Stage) -> None:
    """D24: the same pass id is the same opening; the run is not marked lost."""
    stage.scene.insert()
    opening = PassOpening(
        run_id=_RUN, pass_id=PassId("p1"), holder=Holder("n:1"), lease_seconds=30.0, passes_lost_limit=10
    )
    history = stage.losing(lambda: stage.store.open_pass(opening), to=b"UPDATE pikkuflow_run")
    assert isinstance(history, History)
    assert not history.run.lost


@pytest.mark.parametrize("status", [StepStatus.RUNNING, StepStatus.SUCCEEDED, StepStatus.FAILED, StepStatus.PENDING])
def test_a_row_whose_answer_was_lost_is_written_once(stage: Stage, status: StepStatus) -> None:
    """D24, T7: the pass finds its own row and goes on."""
    stage.scene.begin()
    news = stage.losing(lambda: stage.store.record(_REF, _write(status)), to=b"INSERT INTO pikkuflow_step")
    assert news is not None
    assert news.written
    assert stage.scene.step().status is status


def test_outcomes_whose_answer_was_lost_are_written_once(stage: Stage) -> None:
    """Issue C, Build 3, D24: the whole batch is asked for again and finds its own rows."""
    stage.scene.begin()
    steps = [new_step(name, seq=seq, place=Place.in_pass("p1"), queue=None) for seq, name in enumerate("abc")]
    writes = [(_REF, StepWrite(step=step, attempt=1, status=StepStatus.SUCCEEDED, result="1")) for step in steps]
    answers = stage.losing(lambda: stage.store.record_all(writes), to=b"INSERT INTO pikkuflow_step")
    assert all(answer.written for answer in answers)
    assert [step.name for step in stage.scene.store.list_steps(_RUN)] == ["a", "b", "c"]


def test_an_end_with_outcomes_whose_answer_was_lost_is_one_end(stage: Stage) -> None:
    """Issue C, Build 3, D24: it is asked for again, finds that its author ended the run, and writes nothing more."""
    stage.scene.begin()
    closing = Closing(status=RunStatus.COMPLETED, output="7", outcomes=(_write(StepStatus.SUCCEEDED, result="1"),))
    closed = stage.losing(lambda: stage.store.close_pass(_REF, closing), to=b"INSERT INTO pikkuflow_step")
    assert closed.status is RunStatus.COMPLETED
    assert stage.scene.run().output == "7"
    assert stage.scene.step().status is StepStatus.SUCCEEDED


def test_a_retry_whose_answer_was_lost_keeps_one_attempt(stage: Stage) -> None:
    """D24, I9: the attempt that ended is kept once."""
    stage.scene.begin()
    stage.scene.write(_REF, StepStatus.RUNNING)
    write = _write(StepStatus.PENDING, attempt=2, expects=1, delay_seconds=5.0)
    news = stage.losing(lambda: stage.store.record(_REF, write), to=b"COMMIT")
    assert news is not None
    assert news.written
    assert [attempt.attempt for attempt in stage.scene.store.list_attempts(_RUN)] == [1]


def test_a_fan_whose_answer_was_lost_has_its_members_once(stage: Stage) -> None:
    """D24: the counter is not raised again."""
    stage.scene.begin()
    steps = [new_step(f"m[{i}]", seq=i, fan_id="m") for i in range(2)]
    news = stage.losing(lambda: stage.store.insert_steps(_REF, steps, joined=True), to=b"INSERT INTO pikkuflow_step")
    assert news is not None
    assert news.written
    stage.scene.park(_REF, sent=("m[0]", "m[1]"))
    wakes = []
    for step in steps:
        stage.scene.claimed(step.name, claim=f"c-{step.name}")
        wakes.append(stage.scene.succeed(step.name, claim=f"c-{step.name}").wake)
    assert wakes == [False, True]


def test_a_child_whose_answer_was_lost_is_started_once(stage: Stage) -> None:
    """D1, D24: idempotent by step."""
    stage.scene.begin()
    child = new_run("child", parent=ParentStep(run_id=_RUN, step=StepName("kid")))
    step = new_step("kid", kind=StepKind.CHILD, place=Place.child("child"), queue=None)
    news = stage.losing(lambda: stage.store.start_child(_REF, step, child), to=b"COMMIT")
    assert news is not None
    assert news.written
    assert stage.scene.step("kid").child_run_id == "child"


@pytest.mark.parametrize("status", [None, RunStatus.RUNNING, RunStatus.SUSPENDED, RunStatus.COMPLETED])
def test_a_closing_whose_answer_was_lost_answers_as_the_first_did(stage: Stage, status: RunStatus | None) -> None:
    """D24: it finds its own pass id as the author, and still tells of news."""
    stage.scene.dispatch("a")
    stage.scene.claimed("a")
    stage.scene.open(by="p2")
    stage.scene.succeed("a")
    ref = PassRef(run_id=_RUN, pass_id=PassId("p2"))
    closed = stage.losing(lambda: stage.store.close_pass(ref, Closing(status=status)), to=b"UPDATE pikkuflow_run")
    assert closed is not None
    assert closed.status is (status or RunStatus.RUNNING)
    assert closed.wake is (status is not RunStatus.COMPLETED)


def test_a_childs_end_whose_answer_was_lost_still_wakes_the_parent(stage: Stage) -> None:
    """D9, D24: the parent that was told is named again."""
    stage.scene.begin()
    child = new_run("child", parent=ParentStep(run_id=_RUN, step=StepName("kid")))
    stage.scene.store.start_child(_REF, new_step("kid", kind=StepKind.CHILD, place=Place.child("child")), child)
    stage.scene.park(_REF)
    stage.scene.open("child", "p9")
    ref = PassRef(run_id=RunId("child"), pass_id=PassId("p9"))
    closing = Closing(status=RunStatus.COMPLETED, output="1")
    closed = stage.losing(lambda: stage.store.close_pass(ref, closing), to=b"COMMIT")
    assert closed.parent is not None
    assert closed.parent.id == _RUN
    assert stage.scene.run().news == 2


def test_a_claim_whose_answer_was_lost_is_this_claims(stage: Stage) -> None:
    """D24: the attempt is worked by us; it does not wait for its lease to lapse."""
    stage.scene.dispatch("a")
    claims = stage.losing(lambda: stage.store.claim_steps(_claim()), to=b"FOR SHARE")
    assert [step.attempt for step in claims.claimed] == [1]


@pytest.mark.parametrize("status", [StepStatus.SUCCEEDED, StepStatus.FAILED])
def test_an_outcome_whose_answer_was_lost_is_accepted_and_wakes(stage: Stage, status: StepStatus) -> None:
    """D24: landed before is landed; the run is told once and woken."""
    stage.scene.dispatch("a")
    stage.scene.claimed("a")
    outcome = _outcome(status, error=BOOM if status is StepStatus.FAILED else None)
    settled = stage.losing(lambda: stage.store.settle_steps(_RUN, [outcome]), to=b"FOR NO KEY UPDATE")
    assert settled.accepted == (True,)
    assert settled.wake
    assert stage.scene.run().news == 2


def test_a_failure_with_attempts_left_whose_answer_was_lost_opens_one_attempt(stage: Stage) -> None:
    """D2, D24: not two."""
    stage.scene.dispatch("a")
    stage.scene.claimed("a")
    outcome = _outcome(StepStatus.PENDING, error=BOOM, delay_seconds=5.0)
    settled = stage.losing(lambda: stage.store.settle_steps(_RUN, [outcome]), to=b"FOR NO KEY UPDATE")
    assert settled.accepted == (True,)
    assert stage.scene.step().attempt == 2
    assert len(stage.scene.store.list_attempts(_RUN)) == 1


def test_a_resume_whose_answer_was_lost_is_this_callers(stage: Stage) -> None:
    """D4, D24: it is told to wake the run."""
    stage.scene.begin()
    stage.scene.close(_REF, status=RunStatus.SUSPENDED, code="WORKFLOW_SUSPENDED")
    assert stage.losing(lambda: stage.store.resume_run(_RUN), to=b"COMMIT") is not None
    assert stage.store.resume_run(_RUN) is None
    assert stage.scene.run().news == 2


# --- the server is away -------------------------------------------------------------------------------------------------


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A server of this test's own."""
    server = PostgresServer()
    server.start()
    yield server
    server.stop()


def _end_for_good(server: PostgresServer) -> None:
    """Kill the server, and wait for the end of its backends: each is in a session of its own, and may answer once more."""
    backends = psutil.Process(server.program.pid).children(recursive=True)
    server.program.kill_all()
    for backend in backends:
        with suppress(psutil.NoSuchProcess):
            backend.kill()
    psutil.wait_procs(backends, timeout=20)


def test_acts_outlive_a_restart_of_the_server(own_postgres: PostgresServer, caplog: pytest.LogCaptureFixture) -> None:
    """Design 3.4: an act in the middle of an outage waits, and no pooled connection of before is in the way."""
    bench = SqlBench(own_postgres.url(own_postgres.create_database()))
    scene = Scene(bench)
    ref = scene.begin()
    _end_for_good(own_postgres)
    written: list[Any] = []
    waiting = threading.Thread(target=lambda: written.append(scene.write(ref, StepStatus.SUCCEEDED, result="1")))
    waiting.start()
    wait_until(lambda: "waiting for it" in caplog.text, what="an act that waits for its database")
    assert written == []
    own_postgres.restart(crash=True)
    waiting.join(timeout=30)
    assert written[0].written
    assert scene.step().status is StepStatus.SUCCEEDED
    bench.close()


def test_patience_ends_in_one_clear_error_without_the_password() -> None:
    """Issue 2, bad input: the database is down at start."""
    store = SqlRunStore("postgresql://shop:s3cret@127.0.0.1:9/shop", patience_seconds=0.2)
    with pytest.raises(StoreUnavailable, match="does not answer") as caught:
        store.get_run(_RUN)
    told = f"{caught.value!r} {caught.value} {caught.value.__cause__!r} {caught.value.__context__!r}"
    assert "shop:***@127.0.0.1:9" in told
    assert "s3cret" not in told


def test_a_process_that_stops_waits_no_longer() -> None:
    """Design 2: a warm shutdown is not held up by a database that is away."""
    stopping = threading.Event()
    store = SqlRunStore("postgresql://shop@127.0.0.1:9/shop", patience_seconds=None, is_stopping=stopping.is_set)
    threading.Timer(0.3, stopping.set).start()
    with pytest.raises(StoreUnavailable):
        store.get_run(_RUN)


def test_leases_say_that_their_service_does_not_answer() -> None:
    """Spec 6.1: unknown is not lost; the caller needs to know the difference."""
    leases = SqlLeases("postgresql://shop:s3cret@127.0.0.1:9/shop", patience_seconds=0.1)
    with pytest.raises(ConnectionError) as caught:
        leases.acquire("key", "holder", 30.0)
    assert "s3cret" not in str(caught.value)


def test_a_hint_that_cannot_be_left_is_given_up_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """Design 4: nothing depends on a hint; one line says that they are lost."""
    hints = DueColumnHints(SqlRunStore("postgresql://shop@127.0.0.1:9/shop", patience_seconds=None))
    for _ in range(2):
        hints.leave(_RUN, 1.0)
    assert len([record for record in caplog.records if record.name == "pikkuflow.hints"]) == 1
    assert hints.pop_due(10) == ()
    assert not hints.wait(_RUN, 0.01)


@pytest.mark.parametrize(
    "url", ["", "oracle://x/y", "sqlite://", "sqlite:///:memory:", "not a url", "redis://localhost"]
)
def test_a_url_that_cannot_work_is_refused(url: str) -> None:
    """Issue 2, bad input: one clear error that says what to write."""
    with pytest.raises(SettingError, match="sqlite:///path"):
        SqlRunStore(url)


# --- a process stands still in the middle of an act -------------------------------------------------------------------------


def test_a_process_that_stands_still_in_an_act_keeps_nobody_waiting(stage: Stage) -> None:
    """It may be frozen for hours: the server rolls its transaction back, and when it goes on it does the act anew."""
    stage.scene.insert()
    tries: list[int] = []

    def act(tx: Transaction) -> None:
        tx.lock_run(_RUN)
        tries.append(tx.connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())
        if len(tries) > 1:
            return
        standing = tx.connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar_one()
        assert standing == f"{IDLE_IN_TRANSACTION_SECONDS}s"
        # Time is moved: the server would wait for ten seconds.
        tx.connection.exec_driver_sql("SET idle_in_transaction_session_timeout = '100ms'")
        stage.scene.open()
        tx.do(select(1))

    stage.store.database.write(act)
    assert len(set(tries)) == 2
