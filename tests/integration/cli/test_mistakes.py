"""What the command line says to mistakes: one line, what to do, and an exit code of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.bin.base import CLIContext
from click.testing import CliRunner, Result

from pikkuflow import PikkuFlow, Workflow
from pikkuflow.adapters.sql import migrations
from pikkuflow.cli.main import flow
from pikkuflow.errors import WorkflowDefinitionError
from tests.servers.processes import free_port


@pytest.fixture
def shop(tmp_path: Path) -> PikkuFlow:
    """An app with one workflow and an empty database file, without a broker."""
    app = Celery("shop", set_as_current=False)
    app.conf.pikkuflow_database_url = f"sqlite:///{tmp_path / 'shop.db'}"
    pikku = PikkuFlow(app)

    @pikku.workflow(name="shop.order")
    def order(wf: Workflow, order_id: int) -> int:
        return order_id

    return pikku


def _call(shop: PikkuFlow, *arguments: str) -> Result:
    obj: Any = CLIContext(app=shop.app, no_color=True, workdir=None)
    result = CliRunner().invoke(flow, list(arguments), obj=obj)
    shop.runtime.store.close()
    return result


def test_a_database_without_tables_is_told_with_the_command_to_run(shop: PikkuFlow) -> None:
    """Exit code 1, and no traceback."""
    result = _call(shop, "list")
    assert result.exit_code == 1
    assert "flow db upgrade" in result.output


def test_arguments_that_do_not_fit_are_a_mistake_of_the_command_line(shop: PikkuFlow) -> None:
    """Exit code 2 and the workflow's name, not a traceback."""
    migrations.upgrade(shop.settings.database_url)
    result = _call(shop, "start", "shop.order", "[]", "--inline")
    assert result.exit_code == 2
    assert "shop.order" in result.output


def test_a_run_may_be_given_a_time_limit(shop: PikkuFlow) -> None:
    """Its deadline is shown; what is no duration is one line, and starts nothing."""
    migrations.upgrade(shop.settings.database_url)
    started = _call(shop, "start", "shop.order", "[7]", "--inline", "--run-id", "r1", "--run-timeout", "2h")
    assert started.exit_code == 0, started.output
    shown = json.loads(_call(shop, "show", "r1", "--json").output)
    assert shown["deadlineAt"] is not None
    refused = _call(shop, "start", "shop.order", "[7]", "--inline", "--run-id", "r2", "--run-timeout", "soon")
    assert refused.exit_code == 1
    assert "soon" in refused.output
    assert "r2" not in _call(shop, "list", "--json").output


def test_an_inline_start_prints_its_result(shop: PikkuFlow) -> None:
    """The whole run in this process: no broker, no worker."""
    migrations.upgrade(shop.settings.database_url)
    result = _call(shop, "start", "shop.order", "[7]", "--inline")
    assert (result.exit_code, result.stdout.strip().splitlines()[-1]) == (0, "7")


@pytest.fixture
def cut_off(shop: PikkuFlow, monkeypatch: pytest.MonkeyPatch) -> PikkuFlow:
    """The shop with a database that is ready and a broker that is named and away."""
    migrations.upgrade(shop.settings.database_url)
    monkeypatch.setattr("pikkuflow.engine.sweep._threshold", lambda *_: 0.0)
    shop.app.conf.update(broker_url=f"redis://127.0.0.1:{free_port()}/0")
    return shop


def test_a_start_without_its_broker_says_what_to_start(cut_off: PikkuFlow, caplog: pytest.LogCaptureFixture) -> None:
    """D21: the run is durable, so exit code 0; its id, that it is kept, and what is missing."""
    result = _call(cut_off, "start", "shop.order", "[7]", "--run-id", "order-7")
    assert (result.exit_code, result.stdout.strip().splitlines()[-1]) == (0, "order-7")
    (said,) = [record.getMessage() for record in caplog.records if "could not be woken" in record.getMessage()]
    assert said.startswith("run order-7: ")
    assert "begins by itself once the broker runs" in said
    assert ".." not in said


def test_a_sweep_that_could_not_send_says_what_and_fails(cut_off: PikkuFlow, caplog: pytest.LogCaptureFixture) -> None:
    """Exit code 1: a script must not take it for done. The counts are printed all the same."""
    _call(cut_off, "start", "shop.order", "[7]", "--run-id", "order-7")
    result = _call(cut_off, "sweep", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout.strip().splitlines()[-1])["unsent"] == 1
    assert "DISPATCH_ERROR" in result.stderr
    assert "1 run(s) and step(s) were found and not sent" in result.stderr
    assert "run order-7: The stalled sweep could not send this run" in caplog.text


def test_a_sweep_without_any_broker_is_refused(shop: PikkuFlow) -> None:
    """D26: it could send nothing."""
    migrations.upgrade(shop.settings.database_url)
    result = _call(shop, "sweep")
    assert result.exit_code == 1
    assert "NO_BROKER" in result.output


def test_a_run_that_is_not_there_is_told_with_where_to_look(shop: PikkuFlow) -> None:
    """The same words from every command."""
    migrations.upgrade(shop.settings.database_url)
    for command in ("show", "watch", "resume"):
        result = _call(shop, command, "nothing")
        assert result.exit_code == 1
        assert "flow list" in result.output


def test_a_task_that_took_a_workflows_name_is_a_clear_error(shop: PikkuFlow) -> None:
    """Celery only warns; the workflow would be out of reach."""
    app: Any = shop.app
    app.tasks.pop("shop.order")

    def order() -> None:
        """A task of the same name."""

    app.tasks.register(app.task(name="shop.order", shared=False)(order))
    with pytest.raises(WorkflowDefinitionError, match="Give the workflow another name"):
        shop.workflow_named("shop.order")
