"""Whoever may publish to the broker can waste a worker's time, and nothing else (issue B 7; scenarios 01 and 11)."""

from __future__ import annotations

import base64
import json
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from pikkuflow import RunFailed
from pikkuflow.adapters.celery.names import ORCHESTRATE_TASK, STEP_TASK
from pikkuflow.adapters.redis import redis_url_of
from pikkuflow.domain.step import Step
from tests.acceptance.deployment import Deployment, step_of, steps_of
from tests.faults.site import LONG, attempts_begun, wait_for_steps
from tests.faults.tracing import MESSAGES
from tests.servers.processes import Program, wait_until


@pytest.fixture(scope="module")
def worker(shared_deployment: Deployment) -> Program:
    """One worker that receives what is forged, and what is not."""
    return shared_deployment.worker("faulty", name="victim", env={MESSAGES: "1"})


@pytest.fixture
def faulty(shared_deployment: Deployment, worker: Program) -> Any:
    """The client."""
    return shared_deployment.load("faulty")


def _forge(faulty: Any, *args: Any, task: str = STEP_TASK) -> str:
    """Publish a message of pikkuflow's own kind, as anyone with the broker's password can; its id."""
    return str(faulty.app.send_task(task, args, ignore_result=True).id)


def _wait_for_end(deployment: Deployment, message_id: str) -> str:
    """Wait until a worker has done with a message; its state and what it raised."""
    lines: list[dict[str, Any]] = []

    def handled() -> bool:
        lines[:] = [line for line in deployment.journal("handled") if line["message"] == message_id]
        return bool(lines)

    wait_until(handled, seconds=LONG, what=f"the end of message {message_id}")
    return f"{lines[0]['state']} {lines[0]['said']}"


def _rows(faulty: Any, run: Any) -> list[Step]:
    """The rows without what passes by itself."""
    return [replace(step, due_in_seconds=None) for step in steps_of(faulty, run)]


def _asleep(faulty: Any) -> Any:
    run = faulty.sleeper.start(3600.0, owner="alice")
    wait_for_steps(run, "before", "nap")
    return run


def test_a_message_that_names_another_function_changes_nothing(
    shared_deployment: Deployment, worker: Program, faulty: Any
) -> None:
    """T6.15, T15.2, D8: the task's name is compared with the row before any write; the other task does not run."""
    gate = shared_deployment.folder / "gate"
    run = faulty.one.start("faulty.wait_for", str(gate), dispatch="queue")
    shared_deployment.wait_for_journal("begun", run=run, seconds=LONG)
    before = steps_of(faulty, run)
    said = _wait_for_end(shared_deployment, _forge(faulty, run.id, [["work", 1]], "faulty.whose"))
    gate.touch()
    run.result(timeout=LONG)
    assert "StepFunctionMismatch" in said
    assert [step.status for step in before] == ["running"]
    assert attempts_begun(shared_deployment, run) == [1]
    assert step_of(faulty, run, "work").task == "faulty.wait_for"


def test_a_message_cannot_name_a_function_that_no_row_has(
    shared_deployment: Deployment, worker: Program, faulty: Any
) -> None:
    """A step that the run does not have, a run that is not there, a task that nobody knows: nothing is run or written."""
    run = _asleep(faulty)
    rows = _rows(faulty, run)
    for args in (
        (run.id, [["invented", 1]], "faulty.whose"),
        ("no-such-run", [["work", 1]], "faulty.whose"),
        (run.id, [["before", 1]], "os.system"),
        (run.id, [["nap", 1]], "faulty.whose"),
    ):
        _wait_for_end(shared_deployment, _forge(faulty, *args))
    assert _rows(faulty, run) == rows
    assert attempts_begun(shared_deployment, run) == [1]
    assert run.status().status == "running"


def test_a_message_cannot_choose_on_whose_behalf_a_step_works(
    shared_deployment: Deployment, worker: Program, faulty: Any
) -> None:
    """The owner is the row's: headers, keywords and arguments of a message have no say."""
    gate = shared_deployment.folder / "gate-of-alice"
    run = faulty.owned.start(str(gate), run_id="of-alice", owner="alice")
    shared_deployment.wait_for_journal("begun", run=run, seconds=LONG)
    forged = faulty.app.send_task(
        ORCHESTRATE_TASK, ([run.id],), headers={"owner": "mallory", "pikkuUserId": "mallory"}, ignore_result=True
    )
    refused = faulty.app.send_task(
        STEP_TASK, (run.id, [["whose", 1]], "faulty.whose"), {"owner": "mallory"}, ignore_result=True
    )
    _wait_for_end(shared_deployment, forged.id)
    assert "TypeError" in _wait_for_end(shared_deployment, refused.id)
    gate.touch()
    assert run.result(timeout=LONG) == "alice"


def test_a_start_message_names_its_owner_and_nobody_asks_who_sent_it(
    shared_deployment: Deployment, worker: Program, faulty: Any
) -> None:
    """Issue B 7, as it is documented: who may publish may start a run on anyone's behalf. The broker's access rules are the gate."""
    sent = faulty.app.send_task(
        "faulty.one", ("faulty.whose",), headers={"pikkuflow_owner": "alice"}, ignore_result=True
    )
    wait_until(lambda: sent.id in _ids(faulty, owner="alice"), seconds=LONG, what="the run of the message")
    assert faulty.pikku.runs.get(sent.id).result(timeout=LONG) == "alice"


@pytest.mark.parametrize("settled", [False, True], ids=["asleep", "ended"])
@pytest.mark.parametrize(
    ("task", "args"),
    [
        pytest.param("faulty.sleeper", (3600.0,), id="same-input"),
        pytest.param("faulty.sleeper", (0.0,), id="other-input"),
        pytest.param("faulty.one", ("faulty.whose",), id="other-workflow"),
    ],
)
def test_a_start_message_cannot_take_over_a_run_that_is_there(
    shared_deployment: Deployment, worker: Program, faulty: Any, task: str, args: tuple[Any, ...], *, settled: bool
) -> None:
    """T15.2, issue B 7: under the id of a run, it changes neither owner, input, workflow, rows nor outcome, and nothing is worked again."""
    run = faulty.one.start("faulty.work", 0.0, owner="alice") if settled else _asleep(faulty)
    if settled:
        run.result(timeout=LONG)
    before = _rows(faulty, run), _kept(faulty, run), attempts_begun(shared_deployment, run)
    for _ in range(2):
        faulty.app.send_task(task, args, task_id=run.id, headers={"pikkuflow_owner": "mallory"}, ignore_result=True)
    _wait_for_starts(shared_deployment, run.id, count=2)
    assert len(faulty.row.start(1).result(timeout=LONG)) == 1
    assert (_rows(faulty, run), _kept(faulty, run), attempts_begun(shared_deployment, run)) == before
    assert run.head().owner == "alice"


def test_a_start_message_of_an_unknown_workflow_starts_nothing(
    shared_deployment: Deployment, worker: Program, faulty: Any
) -> None:
    """T15.2: what is no registered task of the app is refused by Celery; what is a plain task is no run."""
    ids = {faulty.app.send_task(name, ("x",), ignore_result=True).id for name in ("os.system", "faulty.nothing")}
    wait_until(lambda: worker.log().count("Received unregistered task") >= 2, seconds=LONG)
    assert len(faulty.row.start(1).result(timeout=LONG)) == 1
    assert not ids & _ids(faulty)


def _ids(faulty: Any, **which: Any) -> set[str]:
    return {head.id for head in faulty.pikku.runs.list(limit=500, **which).heads}


def _kept(faulty: Any, run: Any) -> Any:
    """What of a run's row must never change: who it belongs to, what it is, what it came to."""
    row = faulty.pikku.runtime.store.get_run(run.run_id)
    return row.owner, row.workflow, row.input, row.status, row.output, row.wire, row.created_at


def _wait_for_starts(deployment: Deployment, run_id: str, *, count: int) -> None:
    wait_until(
        lambda: sum(line["message"] == run_id for line in deployment.journal("started")) >= count,
        seconds=LONG,
        what=f"the end of {count} start messages of {run_id}",
    )


@pytest.mark.parametrize("attempt", [1, 2, 7])
def test_a_message_of_a_settled_run_is_late_whatever_it_says(
    shared_deployment: Deployment, worker: Program, faulty: Any, attempt: int
) -> None:
    """Scenario 11, T6.3: replayed messages of a run that has ended: rows, output and journal stay as they are."""
    run = faulty.one.start("faulty.work", 0.0, dispatch="queue")
    output = run.result(timeout=LONG)
    rows, head = steps_of(faulty, run), run.head()
    for message in (
        _forge(faulty, run.id, [["work", attempt]], "faulty.work"),
        _forge(faulty, [run.id, run.id], task=ORCHESTRATE_TASK),
    ):
        _wait_for_end(shared_deployment, message)
    assert steps_of(faulty, run) == rows
    assert run.head() == head
    assert run.result(timeout=0) == output
    assert attempts_begun(shared_deployment, run) == [1]


def test_a_message_of_an_old_or_coming_attempt_is_refused(
    shared_deployment: Deployment, worker: Program, faulty: Any
) -> None:
    """Design 3.6, scenario 01: a claim needs the row's own attempt; a live claim excludes the same one."""
    gate = shared_deployment.folder / "gate-of-attempts"
    run = faulty.one.start("faulty.wait_for", str(gate), dispatch="queue", retries=5)
    shared_deployment.wait_for_journal("begun", run=run, seconds=LONG)
    for attempt in (0, 1, 2, 3, -1):
        _wait_for_end(shared_deployment, _forge(faulty, run.id, [["work", attempt]], "faulty.wait_for"))
    assert attempts_begun(shared_deployment, run) == [1]
    assert step_of(faulty, run, "work").attempt == 1
    gate.touch()
    assert run.result(timeout=LONG)[0] == 1


@pytest.mark.parametrize(
    "args",
    [
        pytest.param((), id="nothing"),
        pytest.param((7, None, {}), id="wrong-types"),
        pytest.param(("x" * 10_000, [["y" * 10_000, 1]], "z" * 10_000), id="huge-names"),
        pytest.param(("a\u0000b", [["c\u0000d", 1]], "faulty.work"), id="nul"),
        pytest.param(("'; DROP TABLE pikkuflow_run; --", [["work", 1]], "faulty.work"), id="sql"),
        pytest.param(("run", [["work", 2**70]], "faulty.work"), id="huge-attempt"),
    ],
)
def test_nonsense_costs_a_message(
    shared_deployment: Deployment, worker: Program, faulty: Any, args: tuple[Any, ...]
) -> None:
    """What is no message of ours fails by itself; the worker goes on."""
    _wait_for_end(shared_deployment, _forge(faulty, *args))
    assert len(faulty.row.start(1).result(timeout=LONG)) == 1


class _Bomb:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (self.path,))


def test_a_pickle_is_never_read(shared_deployment: Deployment, worker: Program, faulty: Any, tmp_path: Path) -> None:
    """A message that says it is a pickle is refused by its content type; the bomb does not go off, the worker goes on."""
    mark = tmp_path / "exploded"
    url = redis_url_of(shared_deployment.broker_url)
    assert url is not None
    message = {
        "body": base64.b64encode(pickle.dumps(((_Bomb(str(mark)),), {}, {}))).decode(),
        "content-encoding": "binary",
        "content-type": "application/x-python-serialize",
        "headers": {"task": ORCHESTRATE_TASK, "id": "bomb", "lang": "py"},
        "properties": {
            "correlation_id": "bomb", "delivery_mode": 2, "delivery_tag": "bomb", "body_encoding": "base64",
            "delivery_info": {"exchange": "", "routing_key": "celery"}, "priority": 0,
        },
    }  # fmt: skip
    with Redis.from_url(url) as client:
        client.lpush("celery", json.dumps(message))
    wait_until(lambda: "ContentDisallowed" in worker.log(), seconds=LONG)
    assert len(faulty.row.start(1).result(timeout=LONG)) == 1
    assert not mark.exists()


def test_stored_payloads_that_look_like_pickles_are_text(
    shared_deployment: Deployment, worker: Program, faulty: Any
) -> None:
    """Inputs and results are JSON: bytes of a pickle come back as those bytes, if at all, and are never loaded."""
    bomb = base64.b64encode(pickle.dumps(_Bomb(str(shared_deployment.folder / "exploded")))).decode()
    run = faulty.one.start("faulty.work", 0.0, {"__reduce__": bomb, "py/object": "os.mkdir"})
    run.result(timeout=LONG)
    assert not (shared_deployment.folder / "exploded").exists()


def test_errors_hide_the_passwords_of_urls(shared_deployment: Deployment, worker: Program, faulty: Any) -> None:
    """Issue B 7: what is stored of an error, and what is shown of it, names the server and not the password."""
    run = faulty.one.start("faulty.give", "secret", retries=0)
    with pytest.raises(RunFailed) as caught:
        run.result(timeout=LONG)
    row = step_of(faulty, run, "work")
    assert row.error is not None
    stored = [row.error.to_json(), json.dumps(run.status().to_dict()), str(caught.value), str(list(run.watch()))]
    assert all("hunter2" not in text for text in stored)
    assert "cannot reach postgresql://shop:***@db/shop or redis://:***@cache:6379/0" in row.error.message


@pytest.mark.faults
def test_a_redelivered_start_message_is_the_same_run(deployment: Deployment) -> None:
    """Scenario 01: a start by message is delivered again while its run works: one run, every step once."""
    deployment.worker("faulty", name="w1")
    faulty = deployment.load("faulty")
    for _ in range(5):
        faulty.app.send_task("faulty.storm", (2, 0.3), task_id="again-and-again")
    wait_until(lambda: len(faulty.pikku.runs.list(limit=5)), seconds=LONG, what="the row of the run")
    run = faulty.pikku.runs.get("again-and-again")
    run.result(timeout=LONG)
    begun = deployment.journal("begun", run=run)
    assert len({line["key"] for line in begun}) == len(begun)


@pytest.mark.faults
def test_a_step_outlives_the_visibility_timeout(deployment: Deployment) -> None:
    """Scenario 01: it works four times as long as the broker hides messages; there is one attempt and one outcome."""
    deployment.processes.env.update(FAULTS_VISIBILITY="3")
    deployment.worker("faulty", name="w1")
    deployment.worker("faulty", name="w2")
    deployment.beat("faulty")
    faulty = deployment.load("faulty")
    runs = [faulty.one.start("faulty.work", 12.0, **options) for options in ({}, {"dispatch": "queue"})]
    for run in runs:
        assert run.result(timeout=LONG) == deployment.journal("done", run=run)[0]["token"]
        assert attempts_begun(deployment, run) == [1]
