"""Every example does what it says, inline and on a real worker."""

from __future__ import annotations

import sys
from ast import literal_eval
from pathlib import Path
from typing import Any

import pytest

from pikkuflow import Run
from pikkuflow.adapters.sql import migrations
from tests.acceptance.deployment import Deployment
from tests.acceptance.footprint import marked, run
from tests.servers.processes import ROOT, wait_until

EXAMPLES = ROOT / "examples"
PRINTS: dict[str, list[Any]] = {
    "01-minimal": [{"paid": "payment-42-999", "parcel": "parcel-42"}],
    "02-retries-and-idempotency": [{"paid": "booked at attempt 3", "letter": "sent: thank you"}, "bookings: 1"],
    "03-fan-out": [{"small": ["a.png@small", "b.png@small"], "number": 2, "refused": "'a.png' is no word"}],
    "04-child-workflows": [{"order": 7, "invoice": "[tea] [cup]"}],
    "05-inline-and-state": [{"ticket": True}],
    "06-onboarding": [
        {"access": False, "why": "expired"},
        "['access for Bob']",
        {"access": True, "by": "carol", "badge": "B-7"},
        {"access": False, "why": "who is Cid?"},
    ],
    "07-order-saga": [
        {"paid": "payment-1", "parcel": "parcel-1"},
        {"paid": "payment-2", "parcel": "parcel-2"},
        "no payment of order 3 by the dead card",
        "released shelf-3 of order 3",
        "compensated",
    ],
    "08-version-change": [["paid 2", "receipt 2", "sent"], ["charged 1", "sent"]],
    "09-graph": [
        None,
        "check 2",
        "pack[0] [tea]",
        "pack[1] [cup]",
        "thank Dear Ada, thank you for your order",
        "pack ['[tea]', '[cup]']",
        "weigh 20",
        "lighten 10",
        "weigh#1 10",
        "lighten#1 5",
        "weigh#2 5",
        "ship parcel of 5 kg",
    ],
    "10-canvas": [
        "total: 60",
        "here: 30",
        "canvas.fetch[0] 0",
        "canvas.fetch[1] 10",
        "canvas.fetch[2] 20",
        "canvas.fetch [0, 10, 20]",
        "canvas.total 30",
        "canvas.write here: 30",
    ],
}
STARTS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "01-minimal": ("minimal.order", (42,)),
    "02-retries-and-idempotency": ("retries.pay", (500,)),
    "03-fan-out": ("fan_out.album", (["a.png", "b.png"],)),
    "04-child-workflows": ("children.order", (7,)),
    "05-inline-and-state": ("inline.hello", ("Ada",)),
    "06-onboarding": ("onboarding.join", ("Ada", "0s")),
    "07-order-saga": ("saga.order", (1, "good")),
    "08-version-change": ("changes.order", (2, "here")),
    "09-graph": ("graph.order", ({"name": "Ada", "lines": [{"sku": "tea"}, {"sku": "cup"}]},)),
    "10-canvas": ("canvas.report", (4,)),
}


def test_every_example_is_tested() -> None:
    """A new folder is a new row above, and a row of the examples' README."""
    folders = {folder.name for folder in EXAMPLES.iterdir() if (folder / "app.py").exists()}
    assert folders == PRINTS.keys() == STARTS.keys()
    shown = (EXAMPLES / "README.md").read_text()
    assert [name for name in folders if f"`{name}`" not in shown] == []


@pytest.mark.parametrize("example", PRINTS)
def test_an_example_runs_by_itself(tmp_path: Path, example: str) -> None:
    """``flow db upgrade``, whose work is done here, then ``python app.py``: no broker, no worker."""
    environ = marked({"PYTHONDONTWRITEBYTECODE": "1"})
    (tmp_path / ".pikkuflow").mkdir()
    migrations.upgrade(f"sqlite:///{tmp_path / '.pikkuflow' / 'pikkuflow.db'}")
    shown = run(sys.executable, EXAMPLES / example / "app.py", cwd=tmp_path, environ=environ).stdout.splitlines()
    assert len(shown) == len(PRINTS[example])
    for line, expected in zip(shown, PRINTS[example], strict=True):
        _check(line if isinstance(expected, str) else literal_eval(line), expected)


@pytest.mark.parametrize("example", PRINTS)
def test_an_example_runs_on_a_worker(deployment: Deployment, example: str) -> None:
    """The same file, unchanged, on Valkey and PostgreSQL; started by name, as any Celery client does."""
    folder = EXAMPLES / example
    deployment.processes.worker(
        "app", pool="solo", concurrency=1, cwd=folder, options=["--without-mingle", "--without-gossip"]
    )
    client = deployment.load("steps")
    name, args = STARTS[example]
    client.app.send_task(name, args, task_id=example)
    started: Run[Any] = Run(example, lambda: client.pikku.runtime)
    wait_until(lambda: client.pikku.runtime.store.get_run(started.run_id), what="the run that the message starts")
    _check(started.result(timeout=30), PRINTS[example][0])


def _check(got: Any, expected: Any) -> None:
    if expected == {"ticket": True}:
        assert got.pop("greeting") in {"good morning, Ada", "good evening, Ada"}
    assert got == expected
