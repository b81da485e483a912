"""``celery -A app flow dev`` and the commands beside it, as the README has them (issue A, "Command line")."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.footprint import celery, left_behind, marked, run
from tests.acceptance.test_readme import shown_module
from tests.servers.processes import ROOT, CeleryProcesses, Program, wait_until


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """A folder with the README's project, an environment, and ``flow dev`` running in it."""

    folder: Path
    environ: dict[str, str]
    dev: Program

    def flow(self, *argv: str, exits: int = 0) -> str:
        """What ``celery -A shop flow …`` says in a second terminal of that folder."""
        return run(*celery("shop", "flow", *argv), cwd=self.folder, environ=self.environ, exits=exits).stdout


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """``flow dev`` of the README's project, once it consumes."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "shop.py").write_text(shown_module(ROOT / "README.md"))
    environ = marked({"PYTHONDONTWRITEBYTECODE": "1"})
    processes = CeleryProcesses(folder=folder, env=environ)
    dev = processes.celery("shop", "flow", "dev", name="dev", cwd=folder)
    dev.stop_signal = signal.SIGINT
    dev.start()
    dev.wait_until(lambda: " ready." in dev.log(), seconds=60)
    yield Terminal(folder=folder, environ=environ, dev=dev)
    processes.stop_all()


def test_the_readmes_commands_work_in_a_second_terminal(terminal: Terminal) -> None:
    """``start --wait``, ``show``; the second terminal finds the embedded server by itself."""
    output = {"paid": "payment-42", "labels": ["label-tea", "label-cup"]}
    assert json.loads(terminal.flow("start", "shop.order", "[42]", "--run-id", "order-42", "--wait")) == output
    shown = terminal.flow("show", "order-42")
    assert re.search(r"status +completed", shown)
    for step in ("charge card", "shop.print_label[0]", "shop.print_label[1]", "cool off"):
        assert re.search(rf"{re.escape(step)}\s+1\s+succeeded", shown), shown


def test_list_show_and_watch_speak_json(terminal: Terminal) -> None:
    """``--json`` everywhere; ``watch`` follows a run from its start to its end."""
    started = json.loads(terminal.flow("start", "shop.order", "[43]", "--run-id", "order-43", "--json"))
    assert started["id"] == "order-43"
    frames = [json.loads(line) for line in terminal.flow("watch", "order-43", "--json").splitlines()]
    assert frames[-1] == {"type": "done"}
    assert [frame["status"] for frame in frames if frame["type"] == "update"][-1] == "completed"
    (head,) = [one for one in json.loads(terminal.flow("list", "--json")) if one["id"] == "order-43"]
    assert (head["workflow"], head["status"]) == ("shop.order", "completed")
    whole = json.loads(terminal.flow("show", "order-43", "--json"))
    assert {step["status"] for step in whole["steps"]} == {"succeeded"}


def test_mistakes_are_told_in_a_line(terminal: Terminal) -> None:
    """Exit code 1 and one error, not a traceback."""
    for argv in (("show", "nothing"), ("start", "shop.ordre", "[1]")):
        ran = run(*celery("shop", "flow", *argv), cwd=terminal.folder, environ=terminal.environ, exits=1)
        assert "Error [" in ran.stderr
        assert "Traceback" not in ran.stderr


def test_ctrl_c_stops_everything(terminal: Terminal) -> None:
    """Server, worker and beat end with the command, in good order."""
    assert len(left_behind(terminal.environ)) >= 4
    terminal.dev.send(signal.SIGINT)
    assert terminal.dev.wait(seconds=40) == 0
    wait_until(lambda: not left_behind(terminal.environ), seconds=5, what=lambda: str(left_behind(terminal.environ)))
