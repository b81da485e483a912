"""``pikkuflow demo``: a run that survives the SIGKILL of its worker, live on screen.

It needs no project and no server: an embedded Valkey, a SQLite file, one worker and beat, all in a folder of their own that goes away
at the end. The worker is killed in the middle of a step, with all its processes; a second one takes over.
"""

from __future__ import annotations

import importlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pikkuflow.adapters.sql import migrations
from pikkuflow.app import PikkuFlow
from pikkuflow.cli.embedded import EmbeddedServer
from pikkuflow.cli.output import STATUS_STYLES, console
from pikkuflow.cli.processes import CeleryChild
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import StepStatus
from pikkuflow.domain.step import Step
from pikkuflow.errors import PikkuFlowError

__all__ = ["demo"]

_APP: Final = "pikkuflow.cli.demo_app"
_RUN: Final = RunId("demo-order-1")
_RUN_SECONDS: Final = 90.0
_READY_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.1

_NEXT: Final = """
What to type next:
  put `pikku = PikkuFlow(app)` and a workflow into your Celery project (the README has twenty lines), then
  celery -A proj flow dev        server, worker and beat for development
  celery -A proj flow start WORKFLOW '[42]' --wait
  celery -A proj flow list       celery -A proj flow show RUN"""


@dataclass
class _Scene:
    """What the demo knows while it runs."""

    folder: Path
    environ: Mapping[str, str]
    screen: Console
    worker: CeleryChild
    killed: list[int] = field(default_factory=list)

    def stop_worker(self) -> None:
        """Stop whichever worker is on."""
        self.worker.stop()

    def ledger(self) -> list[dict[str, Any]]:
        """Every effect so far; a torn last line is not read yet."""
        path = self.folder / "ledger.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]


@click.command()
@click.option(
    "--keep", is_flag=True, help="Leave the folder with database, logs and ledger behind and say where it is."
)
def demo(keep: bool) -> None:  # noqa: FBT001 - click passes options by name
    """Run an order workflow, kill its worker in the middle, and show that nothing is lost or done twice."""
    screen = console()
    folder = Path(tempfile.mkdtemp(prefix="pikkuflow-demo-"))
    with ExitStack() as stack:
        if keep:
            screen.print(f"The demo's files stay in {folder}")
        else:
            stack.callback(_remove, folder)
        screen.rule("pikkuflow demo")
        screen.print("Starting an embedded server, a worker and beat …")
        pikku, scene = _raise_curtain(stack, folder, screen)
        screen.print(
            f"Starting run [bold]{_RUN}[/] of workflow [bold]demo.order[/]; its worker is killed while it packs the parcel."
        )
        importlib.import_module(_APP).order.start(1, run_id=_RUN)
        with _board(pikku, screen) as draw:
            _play(pikku, scene, draw)
        _tell(pikku, scene)
    screen.print(_NEXT, markup=False)


def _remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
    folder.rmdir()


def _raise_curtain(stack: ExitStack, folder: Path, screen: Console) -> tuple[PikkuFlow, _Scene]:
    server = stack.enter_context(EmbeddedServer(folder / "server", os.environ))
    os.environ.update(
        server.settings
        | {
            "PIKKUFLOW_DATABASE_URL": f"sqlite:///{folder / 'demo.db'}",
            "SHOP_LEDGER": str(folder / "ledger.jsonl"),
            "PIKKUFLOW_SWEEP_INTERVAL": "1",
        }
    )
    pikku: PikkuFlow = importlib.import_module(_APP).pikku
    migrations.upgrade(pikku.settings.database_url)
    beat = CeleryChild(
        "beat",
        ["-A", _APP, "beat", "-s", str(folder / "beat"), "--pidfile="],
        environ=os.environ,
        log=folder / "beat.log",
        own_session=True,
    )
    stack.callback(beat.stop)
    scene = _Scene(folder=folder, environ=os.environ, screen=screen, worker=_worker(folder, 1))
    stack.callback(scene.stop_worker)
    scene.worker.wait_for_line(" ready.", _READY_SECONDS)
    stack.callback(pikku.runtime.store.close)
    return pikku, scene


def _worker(folder: Path, number: int) -> CeleryChild:
    return CeleryChild(
        f"worker {number}",
        ["-A", _APP, "worker", "-n", "demo@%h", "-c", "2", "-l", "INFO"],
        environ=os.environ,
        log=folder / f"worker-{number}.log",
        own_session=True,
    )


def _play(pikku: PikkuFlow, scene: _Scene, draw: Callable[[str], None]) -> None:
    deadline = time.monotonic() + _RUN_SECONDS
    act = "running"
    while time.monotonic() < deadline:
        run = pikku.runtime.store.get_run(_RUN)
        if run is not None and run.is_settled:
            draw("done")
            return
        if not scene.killed and _is_packing(pikku, scene):
            scene.worker.kill()
            scene.killed.append(scene.worker.pid)
            act = f"worker {scene.worker.pid} and its processes were killed with SIGKILL; a new worker is starting"
            scene.worker = _worker(scene.folder, 2)
        draw(act)
        time.sleep(_LOOK_SECONDS)
    raise PikkuFlowError(
        f"The demo's run did not end in {_RUN_SECONDS:.0f} s.",
        hint=f"Run it with --keep and read the logs in {scene.folder}.",
    )


def _is_packing(pikku: PikkuFlow, scene: _Scene) -> bool:
    """It has begun, and its start is recorded: a step that works longer than a moment is visible."""
    begun = {line["step"] for line in scene.ledger() if line["event"] == "begun"}
    return any(
        step.name in begun and step.status is StepStatus.RUNNING for step in pikku.runtime.store.list_steps(_RUN)
    )


@contextmanager
def _board(pikku: PikkuFlow, screen: Console) -> Iterator[Callable[[str], None]]:
    """Draw the steps live on a terminal; piped, one line for each change."""
    store = pikku.runtime.store
    if screen.is_terminal:
        with Live(console=screen, refresh_per_second=10) as live:
            yield lambda act: live.update(_steps_table(store.list_steps(_RUN), act))
        return
    seen: dict[str, str] = {}

    def lines(act: str) -> None:
        for name, now in [("*", act)] + [
            (step.name, f"{step.status} (attempt {step.attempt})") for step in store.list_steps(_RUN)
        ]:
            if seen.get(name) != now:
                seen[name] = now
                screen.print(f"  {name}: {now}", markup=False)

    yield lines


def _steps_table(steps: tuple[Step, ...], act: str) -> Table:
    table = Table("step", "status", "attempt", title=act, title_justify="left", box=None, padding=(0, 2))
    for step in steps:
        table.add_row(step.name, Text(step.status, style=STATUS_STYLES.get(step.status, "")), str(step.attempt))
    return table


def _tell(pikku: PikkuFlow, scene: _Scene) -> None:
    """Print the history: what was lost, who took it over, and that each effect came once."""
    screen, store = scene.screen, pikku.runtime.store
    screen.rule("what happened")
    ledger = scene.ledger()
    pids = {(line["step"], line["attempt"]): line["pid"] for line in ledger}
    table = Table("step", "attempt", "outcome", "process", box=None, padding=(0, 2))
    earlier = store.list_attempts(_RUN)
    for step in store.list_steps(_RUN):
        rows = [
            (a.attempt, _attempt_outcome(a.status, a.error.message if a.error else ""))
            for a in earlier
            if a.step == step.name
        ]
        for attempt, outcome in [*rows, (step.attempt, step.status.value)]:
            table.add_row(step.name, str(attempt), Text(outcome), str(pids.get((step.name, attempt), "")))
    screen.print(table)
    done = [line for line in ledger if line["event"] == "done"]
    twice = len(done) - len({line["key"] for line in done})
    for line in done:
        screen.print(
            f"  effect: {line['what']} (attempt {line['attempt']}, process {line['pid']}, key {line['key'][:8]})",
            markup=False,
        )
    run = store.get_run(_RUN)
    if run is None or run.status != "completed" or twice or not scene.killed:
        raise PikkuFlowError(
            f"The demo did not go as it should: {run.status if run else 'no run'}, {twice} effects came twice."
        )
    screen.print(
        f"Run {_RUN} {run.status}: {len(done)} effects, each exactly once, though its worker was killed.",
        style="bold green",
    )
    screen.print(f"  result: {run.output}", markup=False)


def _attempt_outcome(status: StepStatus, error: str) -> str:
    if status is StepStatus.RUNNING:
        return "lost: its process was killed"
    return f"{status}: {error}"
