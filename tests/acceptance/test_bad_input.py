"""Bad input: one clear error each, typed, saying what to do; nothing lost, nothing half written (issue A; scenario 48)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from celery import chain, group, signature

from pikkuflow import (
    PayloadError,
    RunFailed,
    StoreUnavailable,
    Workflow,
    WorkflowDefinitionError,
    WorkflowNotFound,
)
from pikkuflow.domain.run import RunFilter
from tests.acceptance.apps.values import VALUES
from tests.acceptance.deployment import APPS, Deployment, deployed, step_of, steps_of, wait_for_status
from tests.servers.processes import free_port
from tests.servers.valkey import ValkeyServer

REFUSED = ["lock", "set", "nan", "infinity", "large"]
KEPT = ["nul", "lookalike"]
PLACES = [pytest.param({}, id="in-place"), pytest.param({"dispatch": "queue"}, id="dispatched")]
SECONDS = 20


@pytest.fixture(scope="module")
def running(shared_deployment: Deployment) -> Deployment:
    """A prefork worker."""
    shared_deployment.worker("bad")
    return shared_deployment


@pytest.fixture(scope="module")
def bad(running: Deployment) -> Any:
    """The client."""
    return running.load("bad")


@pytest.mark.parametrize("options", PLACES)
@pytest.mark.parametrize("kind", REFUSED)
def test_a_result_that_cannot_be_stored_fails_its_step_once(
    running: Deployment, bad: Any, kind: str, options: dict[str, Any]
) -> None:
    """T4.5: a recorded, readable failure that names the step; the work is not done again though attempts are left."""
    run = bad.result.start(kind, **options)
    with pytest.raises(RunFailed, match=r"give"):
        run.result(timeout=SECONDS)
    row = step_of(bad, run, "give")
    assert (row.status, row.attempt) == ("failed", 1)
    assert row.error is not None
    assert row.error.type.endswith("PayloadError")
    assert "'give'" in row.error.message
    assert len(running.journal("given", run=run)) == 1


@pytest.mark.parametrize("options", PLACES)
@pytest.mark.parametrize("kind", KEPT)
def test_a_result_that_looks_odd_comes_back_as_it_was(bad: Any, kind: str, options: dict[str, Any]) -> None:
    """NUL, and data that looks like the encoder's own."""
    assert bad.result.start(kind, **options).result(timeout=SECONDS) == VALUES[kind]()


@pytest.mark.parametrize("kind", REFUSED)
def test_an_argument_that_cannot_be_stored_is_refused_before_its_row(bad: Any, kind: str) -> None:
    """T5.3: the error is raised where the call is written, and names the step; no row of it exists."""
    run = bad.argument.start(kind)
    with pytest.raises(RunFailed, match=r"take"):
        run.result(timeout=SECONDS)
    assert [step.name for step in steps_of(bad, run)] == ["before"]


@pytest.mark.parametrize("kind", REFUSED)
def test_an_output_that_cannot_be_stored_fails_its_run(bad: Any, kind: str) -> None:
    """And says that it is the run's output."""
    with pytest.raises(RunFailed, match=r"bad\.output"):
        bad.output.start(kind).result(timeout=SECONDS)


@pytest.mark.parametrize("kind", REFUSED)
def test_an_input_that_cannot_be_stored_starts_nothing(bad: Any, kind: str) -> None:
    """``PayloadError`` at the caller; no run is there."""
    before = bad.pikku.runs.list(workflow="bad.output").heads
    with pytest.raises(PayloadError, match=r"bad\.output"):
        bad.output.start(VALUES[kind]())
    assert bad.pikku.runs.list(workflow="bad.output").heads == before


def test_an_error_with_a_constructor_of_its_own_keeps_its_name_and_text(bad: Any) -> None:
    """It is recorded, not pickled."""
    named, said = bad.caught.start("error").result(timeout=SECONDS)
    assert named.endswith("BankError")
    assert said == "account 7: frozen"


CALLS = {
    "number as name": r"(?i)int",
    "bytes as name": r"(?i)bytes",
    "brackets in name": r"a\[1\]",
    "number sign in name": r"a#1",
    "reserved name": r"__now",
    "impossible duration": r"three fortnights",
    "negative duration": r"-1",
    "truth as duration": r"True",
    "impossible delay": r"soon",
    "arguments that do not fit": r"word",
    "unknown option": r"(?s)retrys",
    "no step at all": r"5",
    "limit that is no number": r"time_limit='x'",
    "countdown past every calendar": r"countdown=1e\+18",
    "linked signature": r"link",
}


@pytest.mark.parametrize("kind", CALLS)
def test_a_call_that_can_be_no_step_is_refused_where_it_is_written(bad: Any, kind: str) -> None:
    """T3.17 and the like: the run fails with an error that says what was wrong; nothing is written for the call."""
    run = bad.call.start(kind)
    with pytest.raises(RunFailed, match=CALLS[kind]):
        run.result(timeout=SECONDS)
    assert [step.name for step in steps_of(bad, run)] == ["before"]


CANVASES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "callback that is no signature": (lambda take: take.s(1).set(link=[print]), r"print.*link of 'bad\.take'"),
    "errback that is no signature": (
        lambda take: take.s(1) | take.s().set(link_error="x"),
        r"link_error of 'bad\.take'",
    ),
    "frozen signature": (lambda take: chain(_frozen(take.s(1)), take.s()), "task_id"),
    "applied member": (lambda take: group(take.s(1), _frozen(take.s(2))), "task_id"),
    "unknown task": (lambda take: chain(take.s(1), signature("bad.gone", app=take.app)), r"'bad\.gone'"),
    "member that is no signature": (lambda take: {"task": "celery.group", "kwargs": {"tasks": [take.s(1), 7]}}, "7"),
    "chord without a body": (lambda take: {"task": "celery.chord", "kwargs": {"header": [take.s(1)]}}, "body"),
    "items that are no list": (lambda _take: {"task": "celery.map", "kwargs": {"it": 7}}, "7.*no list|task of map"),
    "arguments that are no list": (lambda _take: {"task": "bad.take", "args": 7}, r"args of 'bad\.take'"),
    "limit that is no number": (lambda take: chain(take.s(1), take.s().set(time_limit="x")), "time_limit='x'"),
    "argument that cannot be stored": (lambda take: chain(take.s(1), take.s({1, 2})), r"'bad\.take'"),
    "no task at all": (lambda _take: group(), "no task"),
}


@pytest.mark.parametrize("kind", CANVASES)
def test_a_canvas_that_cannot_be_durable_starts_nothing(bad: Any, kind: str) -> None:
    """Issue E, bad input: one error that says what is wrong with it, and no run."""
    build, named = CANVASES[kind]
    with pytest.raises((WorkflowDefinitionError, PayloadError), match=named):
        bad.pikku.durable(build(bad.take)).start()
    assert bad.pikku.runs.list(workflow="pikkuflow.canvas").heads == ()


def _frozen(signature: Any) -> Any:
    signature.freeze()
    return signature


def test_what_a_worker_does_not_know_waits_for_one_that_does(deployment: Deployment) -> None:
    """D5, T1.17, scenario 33: a missing task or workflow suspends its run and spends no attempt; resumed after the deploy it goes on."""
    older = deployment.worker("bad", name="older")
    deployment.settings = {**deployment.settings, "BAD_NEWER": "1"}
    bad = deployment.load("bad")
    task, workflow = bad.missing_task.start(), bad.unknown_there.start()
    for run, code, name in ((task, "TASK_NOT_FOUND", "bad.late"), (workflow, "WORKFLOW_NOT_FOUND", "unknown_there")):
        wait_for_status(run, "suspended", seconds=SECONDS)
        assert run.head().code == code
        assert name in str(run.head().error)
    row = step_of(bad, task, "missing")
    assert (row.status, row.attempt, row.sent_at, row.running_at) == ("pending", 1, None, None)
    assert workflow.status().steps == ()
    older.stop()
    deployment.worker("bad", name="newer", env={"BAD_NEWER": "1"})
    assert task.resume()
    assert workflow.resume()
    assert task.result(timeout=SECONDS) == "late"
    assert workflow.result(timeout=SECONDS) == "known by now"
    assert [line["attempt"] for line in deployment.journal("late")] == [1]


def test_an_unknown_workflow_is_named_with_its_neighbour(bad: Any) -> None:
    """T2.2, T2.4: nothing is stored for a workflow that is not here."""
    with pytest.raises(WorkflowNotFound, match=r"bad\.output2") as caught:
        bad.pikku.workflow_named("bad.output2")
    assert "bad.output" in str(caught.value)


def test_a_generator_or_coroutine_is_no_workflow(bad: Any) -> None:
    """Refused where it is written, by name."""

    def generator(wf: Workflow) -> Any:
        yield wf.do("x", lambda: 1)

    async def coroutine(_wf: Workflow) -> None:
        return None

    for body in (generator, coroutine):
        with pytest.raises(WorkflowDefinitionError, match=body.__name__):
            bad.pikku.workflow(name=f"bad.{body.__name__}")(body)


def test_an_unknown_setting_stops_a_worker_at_its_start(deployment: Deployment) -> None:
    """It names the nearest key, and exits."""
    deployment.processes.env["PIKKUFLOW_SWEP_INTERVAL"] = "5"
    worker = deployment.processes.celery(f"{APPS}.bad", "worker", name="misconfigured")
    worker.start()
    assert worker.wait(seconds=30) != 0
    assert "sweep_interval" in worker.log().lower()


def test_an_older_schema_stops_a_worker_at_its_start(deployment: Deployment) -> None:
    """It says which command to run."""
    deployment.processes.env["PIKKUFLOW_DATABASE_URL"] = f"sqlite:///{deployment.folder / 'empty.db'}"
    worker = deployment.processes.celery(f"{APPS}.bad", "worker", name="unmigrated")
    worker.start()
    assert worker.wait(seconds=30) != 0
    assert "flow db upgrade" in worker.log()


def test_a_start_while_the_broker_is_down_is_kept(own_valkey: ValkeyServer, deployment: Deployment) -> None:
    """T5.1, scenario 14: the run is durable, and begins by itself when the broker is back."""
    deployment.broker_url = own_valkey.broker_url
    deployment.processes.env["CELERY_BROKER_URL"] = own_valkey.broker_url
    bad = deployment.load("bad")
    own_valkey.kill()
    run = bad.result.start("nul")
    assert run.head().status == "running"
    own_valkey.start()
    deployment.worker("bad")
    assert run.result(timeout=SECONDS) == "\u0000"


def test_a_start_while_the_database_is_down_says_so(tmp_path: Any) -> None:
    """``StoreUnavailable`` in bounded time; nothing was started, and the hint says so."""
    here = deployed(tmp_path, broker_url="memory://", database_url=f"sqlite:///{tmp_path / 'runs.db'}")
    here.database_url = f"postgresql+psycopg://nobody@127.0.0.1:{free_port()}/none?connect_timeout=1"
    bad = here.load("bad")
    with pytest.raises(StoreUnavailable) as caught:
        bad.result.start("nul")
    assert caught.value.hint
    here.close()


def test_nothing_is_left_running(bad: Any) -> None:
    """Scenario 48: of all the runs above, none is left ``running``."""
    runs = bad.pikku.runtime.store.list_runs(RunFilter(workflow=None), limit=500, after=None)
    assert len(runs) > 30
    assert [run.id for run in runs if run.status == "running"] == []
