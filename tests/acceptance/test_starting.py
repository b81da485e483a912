"""Every way to start a run, and what comes back (issue A, "Starting and asking"; recipes 2)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import chain, chord, group

from pikkuflow import Call, DirectCallError, RunExists, RunFailed
from tests.acceptance.conftest import on_valkey
from tests.acceptance.deployment import APPS, Deployment
from tests.servers.postgres import PostgresServer
from tests.servers.processes import ROOT, wait_until
from tests.servers.valkey import ValkeyServer

SECONDS = 20


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, valkey_server: ValkeyServer, postgres_server: PostgresServer
) -> Iterator[Deployment]:
    """A prefork worker, with a result backend."""
    settings = {"CELERY_RESULT_BACKEND": valkey_server.broker_url.replace("virtual_host=0", "virtual_host=1")}
    for deployment in on_valkey(tmp_path_factory.mktemp("starting"), valkey_server, postgres_server, settings):
        deployment.worker("steps")
        yield deployment


@pytest.fixture(scope="module")
def steps(running: Deployment) -> Any:
    """The client."""
    return running.load("steps")


def test_start_gives_a_handle(steps: Any) -> None:
    """The handle knows the run's id, result and status; ``pikku.runs.get`` makes another of the same run."""
    run = steps.echo.start({"order": 1}, owner="ann")
    assert run.result(timeout=SECONDS) == {"order": 1}
    assert steps.pikku.runs.get(run.id) == run
    assert run.status().head.owner == "ann"


@pytest.mark.parametrize("options", [pytest.param({}, id="in-place"), pytest.param({"dispatch": "queue"}, id="queue")])
def test_a_step_knows_for_whom_it_is_done(steps: Any, options: dict[str, Any]) -> None:
    """T5.5: the run's owner reaches its steps and its children's; a run without one invents none."""
    for workflow in (steps.one, steps.parent):
        assert workflow.using(owner="ann").start("steps.whose", **options).result(timeout=SECONDS) == "ann"
        assert workflow.start("steps.whose", **options).result(timeout=SECONDS) is None


def test_a_workflow_is_not_called(steps: Any) -> None:
    """The error names both ways to run it (design 1)."""
    with pytest.raises(DirectCallError, match="called as a function") as caught:
        steps.echo(1)
    assert "start" in caught.value.hint
    assert "run_inline" in caught.value.hint


def test_start_many_keeps_the_order(steps: Any) -> None:
    """Many runs with one insert; each handle is of its own call."""
    runs = steps.echo.start_many([Call((number,), run_id=f"many-{number}") for number in range(20)])
    assert [run.id for run in runs] == [f"many-{number}" for number in range(20)]
    assert [run.result(timeout=SECONDS) for run in runs] == list(range(20))


def test_delay_gives_celerys_result(steps: Any) -> None:
    """``AsyncResult(run_id).get()`` works, as for any task."""
    result = steps.echo.delay("delayed")
    assert result.get(timeout=SECONDS) == "delayed"
    assert steps.app.AsyncResult(result.id).state == "SUCCESS"
    assert steps.pikku.runs.get(result.id).result(timeout=0) == "delayed"


def test_apply_async_takes_the_run_id_as_task_id(steps: Any) -> None:
    """And a failed run is a failed task."""
    result = steps.fails.apply_async((), task_id="bad-end")
    with pytest.raises(Exception, match="does not want to"):
        result.get(timeout=SECONDS)
    assert result.state == "FAILURE"
    with pytest.raises(RunFailed, match="does not want to"):
        steps.pikku.runs.get("bad-end").result(timeout=0)


def test_send_task_needs_no_code_here(steps: Any) -> None:
    """T2.1: a start by name; the run has the message's id."""
    result = steps.app.send_task("steps.echo", ("sent",), task_id="sent-1")
    assert result.get(timeout=SECONDS) == "sent"
    assert steps.pikku.runs.get("sent-1").head().workflow == "steps.echo"


def test_a_start_message_under_a_taken_id_leaves_the_outcome_alone(steps: Any) -> None:
    """Scenario 11, T15.2: refused though it is, Celery's result of the run that has the id stays what it was."""
    result = steps.echo.delay("mine")
    assert result.get(timeout=SECONDS) == "mine"
    steps.app.send_task("steps.echo", ("theirs",), task_id=result.id)
    assert steps.echo.start("after").result(timeout=SECONDS) == "after"
    steps.app.send_task("steps.echo", ("theirs",), task_id=result.id)
    assert steps.echo.start("after that").result(timeout=SECONDS) == "after that"
    assert steps.app.AsyncResult(result.id).state == "SUCCESS"
    assert steps.app.AsyncResult(result.id).get(timeout=SECONDS) == "mine"
    assert steps.pikku.runs.get(result.id).result(timeout=0) == "mine"


def test_beat_starts_runs(running: Deployment, steps: Any) -> None:
    """An ordinary beat entry names the workflow."""
    beat = running.beat("steps", env={"STEPS_BEAT": "1"})
    try:
        found = wait_until(
            lambda: _beaten(steps, steps.pikku.runs.list(workflow="steps.echo", limit=200)),
            seconds=SECONDS,
            what="two runs that beat started",
        )
        assert all(run.result(timeout=SECONDS) == "beaten" for run in found)
    finally:
        beat.stop()


def _beaten(steps: Any, page: Any) -> list[Any]:
    runs = [steps.pikku.runs.get(head.id) for head in page if head.completed_at]
    found = [run for run in runs if run.result(timeout=0) == "beaten"]
    return found if len(found) >= 2 else []


def test_one_id_started_by_twenty_processes_is_one_run(running: Deployment, steps: Any) -> None:
    """Scenario 06: equal input gets the same run; the other input gets RunExists; the winner's input is never overwritten."""
    ran = subprocess.run(
        [sys.executable, "-m", f"{APPS}.starters", "contested", "20"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", **running.env},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    said = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(said) == 20, ran.stderr
    won = steps.pikku.runs.get("contested").result(timeout=SECONDS)
    assert Counter("run" if "run" in line else line["refused"] for line in said) == {"run": 10, "RUN_EXISTS": 10}
    assert {line["input"] for line in said if "run" in line} == {won}
    assert len(running.journal("touched", run="contested")) == 1


def test_one_id_with_another_input_is_refused(steps: Any) -> None:
    """The same id and input is the same run; another input or workflow is ``RunExists``, and nothing changed."""
    first = steps.echo.start(1, run_id="taken")
    assert steps.echo.start(1, run_id="taken") == first
    with pytest.raises(RunExists):
        steps.echo.start(2, run_id="taken")
    with pytest.raises(RunExists):
        steps.fails.start(1, run_id="taken")
    assert first.result(timeout=SECONDS) == 1


def test_runs_are_listed_by_page_and_filter(steps: Any) -> None:
    """Newest first; workflow, status, owner and since are filters; a page ends where the next one begins."""
    since = datetime.now(UTC) - timedelta(seconds=1)
    runs = [steps.echo.start(number, owner="lister") for number in range(5)]
    bad = steps.fails.start(owner="lister")
    for run in runs:
        run.result(timeout=SECONDS)
    with pytest.raises(RunFailed):
        bad.result(timeout=SECONDS)
    mine = steps.pikku.runs.list(owner="lister", since=since, workflow="steps.echo", limit=3)
    rest = steps.pikku.runs.list(owner="lister", since=since, workflow="steps.echo", limit=3, after=mine.next_page)
    assert [head.id for head in (*mine, *rest)] == [run.id for run in reversed(runs)]
    assert rest.next_page is None
    assert [head.id for head in steps.pikku.runs.list(owner="lister", status="failed")] == [bad.id]


def test_a_workflow_stands_anywhere_in_a_chain(steps: Any) -> None:
    """First, in the middle and last."""
    note = steps.note_plain
    whole = chain(steps.echo.s("head"), note.s("x"), steps.echo.s(), note.s("y"), steps.echo.s())
    assert whole.apply_async().get(timeout=SECONDS) == [["head", "x"], "y"]


def test_a_workflow_stands_in_a_group_and_in_a_chord(steps: Any) -> None:
    """Among plain tasks, and as the chord's body."""
    note = steps.note_plain
    assert group(steps.echo.s(1), note.s(2)).apply_async().get(timeout=SECONDS) == [1, [2]]
    header = [steps.echo.s(1), note.s(2), chain(note.s(3), steps.echo.s())]
    assert chord(header, note.s("body")).apply_async().get(timeout=SECONDS) == [[1, [2], [3]], "body"]
    assert chord([note.s(1), steps.echo.s(2)], steps.echo.s()).apply_async().get(timeout=SECONDS) == [[1], 2]


def test_link_and_link_error_are_served_at_the_end(running: Deployment, steps: Any) -> None:
    """The outcome is handed on when the run ends."""
    steps.echo.apply_async(("linked",), link=steps.note_plain.s("after"))
    failed = steps.fails.apply_async((), link_error=steps.note_error.s())
    plain = running.wait_for_journal("plain")
    wait_until(
        lambda: ["linked", "after"] in [line["args"] for line in running.journal("plain")], what=lambda: str(plain)
    )
    wait_until(lambda: failed.id in [line["failed"] for line in running.journal("errback")], what="the errback")


def test_a_failed_workflow_stops_its_chain(running: Deployment, steps: Any) -> None:
    """What stands behind it is not called."""
    result: Any = chain(steps.fails.s(), steps.note_plain.s("never")).apply_async()
    with pytest.raises(Exception, match="does not want to"):
        result.parent.get(timeout=SECONDS)
    assert not [line for line in running.journal("plain") if "never" in line["args"]]
