"""The engine's three Celery tasks: each calls its verb, and each says so when the app has no extension."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from pikkuflow import PikkuFlow, SettingError, Workflow
from pikkuflow.adapters.celery.tasks import register_engine_tasks
from pikkuflow.adapters.sql import migrations

MESSAGES = {
    "pikkuflow.orchestrate": (["r1"],),
    "pikkuflow.step": ("r1", [["work", 1]], "shop.work"),
    "pikkuflow.sweep": ("stalled",),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_to_an_app_without_an_extension_is_a_clear_error(name: str) -> None:
    """T1.16: orchestrator, step worker and sweeper each raise when there is no service behind them."""
    app = Celery("bare", broker="memory://", set_as_current=False)
    register_engine_tasks(app)
    with pytest.raises(SettingError, match="has no PikkuFlow"):
        app.tasks[name](*MESSAGES[name])


def test_each_message_reaches_its_verb(tmp_path: Path) -> None:
    """T1.16: a wake-up works the run to its step, a step message works the step, a sweep finds nothing left to do."""
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    migrations.upgrade(url)
    app = Celery("served", broker="memory://", set_as_current=False)
    app.conf.pikkuflow_database_url = url
    pikku = PikkuFlow(app)

    @app.task(name="shop.work", shared=False)
    def work() -> str:
        return "worked"

    @pikku.workflow(name="shop.flow")
    def flow(wf: Workflow) -> Any:
        return wf.do("work", work.s(), dispatch="queue")

    run = flow.start(run_id="r1")
    app.tasks["pikkuflow.orchestrate"](["r1"])
    assert [step.status for step in run.status().steps] == ["scheduled"]
    app.tasks["pikkuflow.step"]("r1", [["work", 1]], "shop.work")
    app.tasks["pikkuflow.orchestrate"](["r1"])
    assert run.result(timeout=0) == "worked"
    app.tasks["pikkuflow.sweep"]("stalled")
    assert run.result(timeout=0) == "worked"
    pikku.runtime.store.close()
    app.close()
