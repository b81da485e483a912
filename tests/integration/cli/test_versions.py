"""``flow versions``, and plans, through an application of one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.bin.base import CLIContext
from click.testing import CliRunner, Result

from pikkuflow import PikkuFlow, Workflow, WorkflowDefinitionError
from pikkuflow.adapters.sql import migrations
from pikkuflow.cli.main import flow
from pikkuflow.engine.versions import store_versions


def shop(folder: Path, body: Any, **more: Any) -> PikkuFlow:
    """An application over the folder's database, with ``body`` as its workflow."""
    app = Celery("shop", set_as_current=False)
    app.conf.pikkuflow_database_url = f"sqlite:///{folder / 'shop.db'}"
    pikku = PikkuFlow(app)
    pikku.workflow(name="shop.order", **more)(body)
    migrations.upgrade(pikku.settings.database_url)
    return pikku


def call(pikku: PikkuFlow, *arguments: str) -> Result:
    """The command line of the application."""
    obj: Any = CLIContext(app=pikku.app, no_color=True, workdir=None)
    return CliRunner().invoke(flow, list(arguments), obj=obj)


def before(wf: Workflow) -> str:
    """The first release."""
    wf.suspend("courier")
    return "old"


def after(wf: Workflow) -> str:
    """The second."""
    if wf.patched("faster"):
        return "new"
    wf.suspend("courier")
    return "old"


def test_the_versions_of_a_workflow_are_listed_with_their_open_runs(tmp_path: Path) -> None:
    """Design 1, 7: a table, or JSON; D17: a run that was suspended under the first release ends under the second as it began."""
    first = shop(tmp_path, before, version="2026-01")
    store_versions(first.runtime)
    first.workflow_named("shop.order").using(run_id="r1").run_inline()
    second = shop(tmp_path, after)
    hash_ = second.registry.get("shop.order").version
    shown = {one["version"]: one for one in json.loads(call(second, "versions", "shop.order", "--json").output)}
    assert list(shown) == ["2026-01", hash_]
    assert (shown["2026-01"]["openRuns"], shown["2026-01"]["kind"], shown["2026-01"]["here"]) == (1, "function", False)
    assert (shown[hash_]["openRuns"], shown[hash_]["here"]) == (0, True)
    lines = call(second, "versions", "shop.order").output.splitlines()
    assert lines[0].split("\t") == ["version", "kind", "stored", "open", "oldest open", "here"]
    assert [line.split("\t")[3] for line in lines[1:]] == ["1", "0"]

    second.runs.get("r1").resume("courier")

    assert second.runs.get("r1").result() == "old"
    assert second.workflow_named("shop.order").run_inline().result() == "new"
    assert [one.open_runs for one in second.runs.versions("shop.order")] == [0, 0]


def test_versions_of_an_unknown_workflow_are_a_mistake(tmp_path: Path) -> None:
    """Exit code 1, with the neighbour's name."""
    result = call(shop(tmp_path, before), "versions", "shop.orders")
    assert result.exit_code == 1
    assert "shop.order" in result.output


def test_a_run_shows_the_plan_of_the_workflow_it_began_with(tmp_path: Path) -> None:
    """V10, T14.2: the plan is the run's own once it has begun; another release's does not change it."""

    def straight(wf: Workflow) -> int:
        wf.suspend("courier")
        return int(wf.do("pack", lambda: 1))

    plan = ["__workflow_suspend:courier", "pack"]
    first = shop(tmp_path, straight, planned_steps=plan, deterministic=True)
    first.workflow_named("shop.order").using(run_id="r1").run_inline()
    second = shop(tmp_path, straight, planned_steps=["pack"])
    shown = second.runs.get("r1").status().to_dict()
    assert shown["deterministic"] is True
    assert shown["plannedSteps"] == [
        {"stepName": "__workflow_suspend:courier", "displayName": "courier"},
        {"stepName": "pack"},
    ]
    other = second.workflow_named("shop.order").run_inline().status().to_dict()
    assert "deterministic" not in other
    assert other["plannedSteps"] == [{"stepName": "pack"}]


def test_a_plan_is_no_text(tmp_path: Path) -> None:
    """V10: a text would be a list of letters."""
    with pytest.raises(WorkflowDefinitionError, match="not a list"):
        shop(tmp_path, before, planned_steps="pack")
