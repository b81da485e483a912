"""Runs wait for people and for the world on real workers, which come and go meanwhile (spec 2.6, 2.7, C2)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pikkuflow import ApprovalForbidden, ApprovalResolved, Decider, RunForbidden, RunNotSuspended, RunSettled
from tests.acceptance.deployment import Deployment, step_of, steps_of, wait_for_status
from tests.acceptance.footprint import celery, marked, run
from tests.acceptance.test_readme import shown_module
from tests.servers.processes import ROOT, wait_until

HR = Decider("hr")


@pytest.fixture(scope="module")
def running(shared_deployment: Deployment) -> Deployment:
    """A prefork worker of two."""
    shared_deployment.worker("gates", concurrency=2)
    return shared_deployment


@pytest.fixture(scope="module")
def gates(running: Deployment) -> Any:
    """The client."""
    return running.load("gates")


def effects(deployment: Deployment, started: Any) -> list[str]:
    """What was done for a run, in order."""
    return [line["event"] for line in deployment.journal(run=started) if line["event"] != "begun"]


@pytest.mark.parametrize(
    ("decision", "expiry", "ending", "last"),
    [
        ({"granted": True}, 60, "active", "granted"),
        ({"granted": False}, 60, "rejected", "revoked"),
        (None, 1, "expired", "revoked"),
    ],
)
def test_an_onboarding_ends_as_it_was_decided(
    running: Deployment, gates: Any, decision: dict[str, bool] | None, expiry: float, ending: str, last: str
) -> None:
    """C2, T1.10, T1.12: access only when approved, revoked once otherwise; T15.8: four eyes."""
    started = gates.onboarding.using(owner="u1").start(expiry, ["papers"])
    wait_for_status(started, "suspended")
    assert started.head().error == "papers"
    assert started.resume("papers")
    if decision is not None:
        wait_until(lambda: started.head().error == "access", what="the approval")
        with pytest.raises(ApprovalForbidden):
            started.approve("access", {"granted": True}, by=Decider("u1"))
        started.approve("access", decision, by=HR)
    assert started.result(timeout=20) == ending
    assert effects(running, started) == ["invited", last]
    with pytest.raises(ApprovalResolved):
        started.approve("access", {"granted": True}, by=HR)
    outcomes = [(entry.outcome.value, entry.by.user) for entry in gates.pikku.runs.audit(started.id)]
    assert outcomes == ([] if decision is None else [("denied", "u1"), ("success", "hr")])


def test_an_onboarding_outlives_every_worker(deployment: Deployment) -> None:
    """C2: SIGKILL in the sleep, at the suspension and at the approval; each effect comes once."""
    gates = deployment.load("gates")
    worker = deployment.worker("gates")
    started = gates.onboarding.start(60, ["papers"])
    deployment.wait_for_journal("invited", run=started)
    answers: list[Callable[[], Any]] = [
        lambda: started.resume("papers"),
        lambda: started.approve("access", {"granted": True}, by=HR),
    ]
    for answer in answers:
        worker.kill_all()
        worker = deployment.worker("gates")
        wait_for_status(started, "suspended", seconds=30)
        worker.kill_all()
        assert answer() is not False
        worker = deployment.worker("gates")
    assert started.result(timeout=30) == "active"
    assert effects(deployment, started) == ["invited", "granted"]


def test_what_does_not_fit_the_schema_leaves_the_run_waiting_and_says_why(gates: Any) -> None:
    """T1.11: and a bare resume does not pass (T1.9)."""
    started = gates.onboarding.using(owner="u1").start(60, [])
    wait_for_status(started, "suspended")
    started.approve("access", {"granted": "perhaps"}, by=HR)
    wait_until(lambda: step_of(gates, started, "__workflow_approval:access").error, what="the reason")
    (waiting,) = [one for one in gates.pikku.runs.approvals() if one.run_id == started.id]
    assert waiting.issue is not None
    assert "granted: " in waiting.issue
    wait_for_status(started, "suspended")
    assert started.resume()
    wait_for_status(started, "suspended")
    started.approve("access", {"granted": True}, by=HR)
    assert started.result(timeout=20) == "active"


def test_a_decision_and_a_signal_that_come_first_are_found(gates: Any) -> None:
    """T15.8, spec 2.7: nobody has to wait for the workflow to wait."""
    started = gates.onboarding.using(owner="u1").start(60, [])
    started.approve("access", {"granted": True}, by=HR)
    assert started.result(timeout=20) == "active"
    letters = gates.inbox.start(3)
    for number in range(3):
        letters.signal("letter", number)
    assert letters.result(timeout=20) == [0, 1, 2]


def test_signals_that_race_the_waits_are_all_received(running: Deployment, gates: Any) -> None:
    """Scenario 12: each letter is sent while the run is about to wait for it; each is read once, in order, without a sweep."""
    started = gates.inbox.start(40)
    for number in range(40):
        started.signal("letter", number, idempotency_key=f"letter {number}")
        started.signal("letter", "again", idempotency_key=f"letter {number}")
    assert started.result(timeout=30) == list(range(40))
    assert len(effects(running, started)) == 40


def test_waits_that_are_over_are_remembered_by_another_worker(deployment: Deployment) -> None:
    """Scenario 28: five waits time out, the worker is replaced, and nothing is waited for again."""
    gates = deployment.load("gates")
    worker = deployment.worker("gates")
    started = gates.ticks.start(5)
    wait_until(lambda: len(steps_of(gates, started)) == 6, what="the sixth wait")
    rows = [(row.name, row.status, row.settled_at) for row in steps_of(gates, started)[:5]]
    worker.kill_all()
    deployment.worker("gates")
    started.signal("tick-0", None)
    assert started.result(timeout=20) == ["over"] * 5 + [None]
    assert [(row.name, row.status, row.settled_at) for row in steps_of(gates, started)[:5]] == rows
    with pytest.raises(RunSettled):
        started.signal("tick-0")


def test_a_resumed_run_does_not_start_from_the_top(running: Deployment, gates: Any) -> None:
    """Scenario 26: what was before the pause is not run again, what is after it ran not before, and two resumes are one."""
    started = gates.six.start()
    wait_for_status(started, "suspended")
    assert [line["step"] for line in running.journal("worked", run=started)] == ["step 0", "step 1", "step 2"]
    assert [started.resume("half time"), started.resume("half time")] == [True, False]
    assert started.result(timeout=20) == 6
    worked = [line["step"] for line in running.journal("worked", run=started)]
    assert worked == [f"step {number}" for number in range(6)]


def test_dispatched_steps_go_on_beside_an_approval(running: Deployment, gates: Any) -> None:
    """They are worked while the run waits for a decision; a resume of a run that is at work is a mistake."""
    started = gates.beside.start()
    wait_until(
        lambda: any(one.run_id == started.id for one in gates.pikku.runs.approvals()), what="the approval in the list"
    )
    with pytest.raises(RunNotSuspended):
        started.resume()
    running.wait_for_journal("worked", run=started, count=3)
    wait_for_status(started, "suspended")
    started.approve("go", "yes")
    assert started.result(timeout=20) == ["yes", "worked", "worked", "worked"]


def test_a_stranger_is_refused_at_the_front_door(gates: Any) -> None:
    """T15.3: also while it waits."""
    started = gates.onboarding.using(owner="u1").start(60, [])
    wait_for_status(started, "suspended")
    with pytest.raises(RunForbidden):
        gates.pikku.runs.get(started.id, as_user="u2")
    assert gates.pikku.runs.get(started.id, as_user="u1").head().error == "access"


def test_a_watched_run_says_what_it_waits_for(gates: Any) -> None:
    """T16.14, D30: the author's text, once, and again when it waits for something else."""
    started = gates.onboarding.using(owner="u1").start(60, ["papers"])
    reasons: list[str] = []
    for frame in started.watch():
        if frame["type"] == "suspended":
            reasons.append(frame["reason"])
            if frame["reason"] == "papers":
                started.resume("papers")
            else:
                started.approve("access", {"granted": True}, by=HR)
    assert reasons == ["papers", "access"]


def test_the_command_line_answers(running: Deployment, gates: Any, tmp_path: Path) -> None:
    """``approvals``, ``show``, ``signal``, ``resume`` and ``approve``: as a table and as JSON, with exit codes for what is refused."""

    def flow(*words: str, exits: int = 0) -> str:
        command = celery("tests.acceptance.apps.gates", "flow", *words)
        done = run(*command, cwd=tmp_path, environ={**marked({}), **running.env, "PYTHONPATH": str(ROOT)}, exits=exits)
        return done.stdout + done.stderr

    started = gates.onboarding.using(owner="u1").start(60, ["papers"])
    wait_for_status(started, "suspended")
    assert "resume 'papers'" in flow("show", started.id)
    assert "GATE_NOT_FOUND" in flow("resume", started.id, "--reason", "money", exits=1)
    assert json.loads(flow("signal", started.id, "hello", '{"a": 1}', "--key", "k", "--json"))["stored"] is True
    assert json.loads(flow("signal", started.id, "hello", "--key", "k", "--json"))["stored"] is False
    flow("resume", started.id, "--reason", "papers")
    wait_until(lambda: started.head().error == "access", what="the approval")
    assert "approval 'access' by not-initiator until" in flow("show", started.id)
    (shown,) = [one for one in json.loads(flow("approvals", "--json")) if one["runId"] == started.id]
    assert (shown["reason"], shown["approvers"], shown["owner"]) == ("access", "not-initiator", "u1")
    assert "APPROVAL_FORBIDDEN" in flow("approve", started.id, "access", '{"granted": true}', "--by", "u1", exits=1)
    flow("approve", started.id, "access", '{"granted": true}', "--by", "hr")
    assert started.result(timeout=20) == "active"


def test_the_page_about_waiting_shows_what_happens(tmp_path: Path) -> None:
    """docs/waiting.md: its module and its script, copied out as they are, without a broker."""
    page = ROOT / "docs" / "waiting.md"
    for name in ("release.py", "answer.py"):
        code = shown_module(page, name)
        (tmp_path / name).write_text(
            code.replace("ship.start(", "ship.using(run_id='ship-1.2', owner='ann').run_inline(")
        )
    text = (tmp_path / "answer.py").read_text().replace(', run_id="ship-1.2", owner="ann"', "")
    (tmp_path / "answer.py").write_text(text)
    environ = marked({"PYTHONDONTWRITEBYTECODE": "1"})
    run(*celery("release", "flow", "db", "upgrade"), cwd=tmp_path, environ=environ)
    shown = run(sys.executable, "answer.py", cwd=tmp_path, environ=environ).stdout
    assert shown == "release 1.2 was shipped by bob, as carol said\n"
