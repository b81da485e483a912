"""Public pains of Celery's canvas on real workers: what Celery's own does, and what the durable one does instead (celery-notes 5).

What becomes of each shape when a worker dies (pains 2, 3, 5 and 13) is in ``test_canvas_lost_worker.py``.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import chain, chord, group

from pikkuflow import RunFailed
from pikkuflow.domain.ids import invocation_id
from tests.acceptance.conftest import on_valkey
from tests.acceptance.deployment import Deployment, steps_of, wait_for_status
from tests.servers.postgres import PostgresServer
from tests.servers.processes import wait_until
from tests.servers.valkey import ValkeyServer

WIDTH = 100


@pytest.fixture
def running(tmp_path: Path, valkey_server: ValkeyServer, postgres_server: PostgresServer) -> Iterator[Deployment]:
    """A deployment with a result backend for Celery's own canvas; no worker yet."""
    settings = {"CELERY_RESULT_BACKEND": valkey_server.broker_url}
    yield from on_valkey(tmp_path, valkey_server, postgres_server, settings)


@pytest.fixture(scope="module")
def failing(
    tmp_path_factory: pytest.TempPathFactory, valkey_server: ValkeyServer, postgres_server: PostgresServer
) -> Iterator[Deployment]:
    """One worker for all canvases that fail."""
    settings = {"CELERY_RESULT_BACKEND": valkey_server.broker_url, "PIKKUFLOW_RETRIES": "1"}
    for deployment in on_valkey(tmp_path_factory.mktemp("failing"), valkey_server, postgres_server, settings):
        deployment.worker("canvases", concurrency=3)
        yield deployment


def _state(canvases: Any, task_id: str) -> str:
    return str(canvases.app.backend.get_task_meta(task_id, cache=False)["status"])


# --- a failure deep inside ----------------------------------------------------------------------------------------------


def _first_of_a_branch(m: Any, name: str) -> Any:
    """A chord of a chain whose first step fails and whose last is a group."""
    canvas = chord(
        [chain(m.give_up.s(), group(m.echo.s(name), m.echo.s(name))), m.echo.s(1, name)],
        m.echo.s(name),
    )
    canvas.body.on_error(m.failed.s(canvas=name))
    return canvas


def _nested_branch(m: Any, name: str) -> Any:
    """A chain of a group of a chain of a group, where a task fails."""
    inner = group(chain(m.echo.s(name), m.give_up.s()), m.echo.s(name))
    branch = chain(m.echo.s(name), inner, m.echo.s(name))
    canvas = chain(m.echo.s(1, name), group(branch, m.echo.s(name)), m.echo.s(name))
    canvas.on_error(m.failed.s(canvas=name))
    return canvas


def _group_in_a_chain(m: Any, name: str) -> Any:
    """A chain of groups, of which the first fails."""
    branch = chain(m.give_up.s(), group(m.echo.s(name), m.echo.s(name)))
    canvas = chain(m.echo.s(1, name), group(branch, m.echo.s(name)), group(m.echo.s(name), m.echo.s(name)))
    canvas.on_error(m.failed.s(canvas=name))
    return canvas


DEEP: dict[str, tuple[Callable[[Any, str], Any], int]] = {
    "pain 6": (_first_of_a_branch, 1),
    "pain 7": (_nested_branch, 5),
    "pain 16": (_group_in_a_chain, 2),
}
"""A canvas in which a task gives up, and how many others are worked."""


@pytest.mark.parametrize("pain", DEEP)
def test_a_failure_deep_inside_ends_every_wait_and_is_told(failing: Deployment, pain: str) -> None:
    """Pains 6, 7 and 16: the run fails, its errback is told once, of the step that failed, and nobody waits for ever."""
    canvases, name = failing.load("canvases"), f"durable {pain}"
    build, others = DEEP[pain]
    run = canvases.pikku.durable(build(canvases, name)).start()
    with pytest.raises(RunFailed, match="given up"):
        run.result(timeout=20)
    assert len(failing.journal("echo", run=name)) == others
    (told,) = failing.journal("failed", run=name)
    (broken,) = [step for step in steps_of(canvases, run) if step.status == "failed"]
    assert told["id"] == invocation_id(run.run_id, broken.name)


@pytest.mark.filterwarnings(
    "ignore::celery.exceptions.CPendingDeprecationWarning"
)  # of errbacks of chords, when it is applied
@pytest.mark.parametrize("pain", DEEP)
def test_celerys_own_waits_for_ever_and_tells_nobody(failing: Deployment, pain: str) -> None:
    """Pains 6, 7 and 16, the fault itself: nothing is left to be worked, and the outermost join has no outcome and no error."""
    canvases, name = failing.load("canvases"), f"plain {pain}"
    build, others = DEEP[pain]
    result = build(canvases, name).apply_async()
    waited_for = [one.id for one in getattr(result, "results", [result])]
    failing.wait_for_journal("echo", run=name, count=others)
    _wait_until_idle(failing)
    assert {_state(canvases, task_id) for task_id in waited_for} == {"PENDING"}
    assert len(failing.journal("echo", run=name)) == others
    assert failing.journal("failed", run=name) == []


def test_a_canvas_with_a_branch_that_is_lost_is_undone(failing: Deployment, tmp_path: Path) -> None:
    """Pain 7: a task deep inside kills each of its processes; what was done before and beside it is undone, once, newest first."""
    canvases, name = failing.load("canvases"), "undone"
    doom = canvases.doom.si("deadly-die", str(tmp_path / "mark"), name)
    branch = chain(canvases.reserve.si("inner", name), group(doom, canvases.echo.si(1, name)))
    beside = chain(canvases.echo.si(2, name), canvases.echo.si(3, name))
    canvas = chain(canvases.reserve.si("outer", name), group(branch, beside), canvases.echo.si(4, name))
    run = canvases.pikku.durable(canvas).start()
    assert wait_for_status(run, "compensated", "compensation_failed", "failed", seconds=30) == "compensated"
    assert len(failing.journal("doom", run=name)) == 2
    assert [line["what"] for line in failing.journal("released", run=name)] == ["inner", "outer"]
    assert sorted(line["args"][0] for line in failing.journal("echo", run=name)) == [1, 2, 3]


def _wait_until_idle(deployment: Deployment) -> None:
    inspect = deployment.load("canvases").app.control.inspect

    def idle() -> bool:
        seen = [(inspect(timeout=1).active() or {}), (inspect(timeout=1).reserved() or {})]
        return all(seen) and not any(tasks for answer in seen for tasks in answer.values())

    wait_until(idle, what="an idle worker")


# --- a join that is about to begin --------------------------------------------------------------------------------------


def test_a_join_begins_though_its_host_died_just_before(running: Deployment) -> None:
    """Pain 1: a hundred tasks of a header have ended, and the host dies before the join is sent.

    Celery's never begins; the durable one begins once, with all hundred, on the next worker, and none of the hundred is worked again.
    """
    canvases = running.load("canvases")
    # No sweep begins the join beside the process that is about to.
    worker = running.worker(
        "canvases", concurrency=4, env={"CANVASES_HOLD_JOINS": "yes", "PIKKUFLOW_RECOVERY": "false"}
    )
    run = canvases.pikku.durable(_hundred(canvases, "durable")).start()
    plain = _hundred(canvases, "plain").apply_async()
    plain_id, header = plain.id, [one.id for one in plain.parent.results]
    for name in ("durable", "plain"):
        running.wait_for_journal("held", run=name, seconds=40)
    worker.kill_all()
    assert {_state(canvases, task_id) for task_id in header} == {"SUCCESS"}
    assert sum(step.status == "succeeded" for step in steps_of(canvases, run)) == WIDTH
    assert {name: len(running.journal("echo", run=name)) for name in ("durable", "plain")} == {
        "durable": WIDTH,
        "plain": WIDTH,
    }
    running.worker("canvases")
    assert run.result(timeout=30) == [[[number] for number in range(WIDTH)]]
    assert len(running.journal("echo", run="durable")) == WIDTH + 1
    assert _state(canvases, plain_id) == "PENDING"
    assert len(running.journal("echo", run="plain")) == WIDTH


def _hundred(m: Any, name: str) -> Any:
    return chord([m.echo.s(number, name) for number in range(WIDTH)], m.echo.s(name))


# --- a warm shutdown ----------------------------------------------------------------------------------------------------


def test_a_warm_shutdown_longer_than_the_visibility_timeout_repeats_nothing(
    tmp_path: Path, valkey_server: ValkeyServer, postgres_server: PostgresServer
) -> None:
    """Pain 14: a worker that is stopping ends the step in hand; Celery's late-acknowledged chain is gone through twice meanwhile."""
    settings = {"CELERY_RESULT_BACKEND": valkey_server.broker_url, "CANVASES_LATE": "yes", "CANVASES_VISIBILITY": "2"}
    for deployment in on_valkey(tmp_path, valkey_server, postgres_server, settings):
        canvases, gate = deployment.load("canvases"), tmp_path / "gate"
        first = deployment.worker("canvases", name="first")
        plain = _gated(canvases, gate, "plain").apply_async()
        run = canvases.pikku.durable(_gated(canvases, gate, "durable")).start()
        for name in ("plain", "durable"):
            deployment.wait_for_journal("waiting", run=name)
        first.send(signal.SIGTERM)
        deployment.worker("canvases", name="second", concurrency=3)
        deployment.wait_for_journal("waiting", run="plain", count=2, seconds=40)
        gate.touch()
        first.wait()
        assert run.result(timeout=20) == [3]
        deployment.wait_for_journal("echo", run="plain", count=6)
        plain.forget()
        assert len(deployment.journal("waiting", run="durable")) == 1
        assert [line["args"][0] for line in deployment.journal("echo", run="durable")] == [1, 2, 3]


def _gated(m: Any, gate: Path, name: str) -> Any:
    return chain(m.wait_for.si(str(gate), name), *(m.echo.si(number, name) for number in (1, 2, 3)))
