"""``flow dev``: embedded server, worker and beat of one application, started and stopped together (design 7)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

import click

from pikkuflow.adapters.sql import migrations
from pikkuflow.cli.context import app_argument, extension
from pikkuflow.cli.dev_server import DATA_FOLDER, announced
from pikkuflow.cli.embedded import EmbeddedServer
from pikkuflow.cli.processes import CeleryChild
from pikkuflow.errors import NoBroker

__all__ = ["dev", "stop_signals"]

_LOOK_SECONDS: Final = 0.2


@click.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=DATA_FOLDER,
    show_default=True,
    help="Where the server and beat keep their files.",
)
@click.option("--no-server", is_flag=True, help="Use the broker of the configuration instead of an embedded server.")
@click.option(
    "-c", "--concurrency", type=click.IntRange(min=1), default=2, show_default=True, help="Worker processes or threads."
)
@click.option("-P", "--pool", type=click.Choice(["prefork", "threads", "solo"]), default="prefork", show_default=True)
@click.option("-l", "--loglevel", default="INFO", show_default=True)
@click.pass_context
def dev(ctx: click.Context, data: Path, no_server: bool, concurrency: int, pool: str, loglevel: str) -> None:  # noqa: FBT001
    """Start a server, a worker and beat for development; Ctrl-C stops them all.

    The same application runs unchanged on Redis and PostgreSQL: there, start `celery worker` and `celery beat` yourself.
    """
    app = app_argument(ctx)
    data.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        stopped = stack.enter_context(stop_signals())
        if not no_server:
            settings = stack.enter_context(EmbeddedServer(data, os.environ)).settings
            os.environ.update(settings)
            stack.enter_context(announced(data, settings))
            click.echo(
                "For Python in another terminal: export "
                + " ".join(f"{key}={value}" for key, value in settings.items()),
                err=True,
            )
        ext = extension(ctx)
        if not ext.runtime.has_broker:
            raise NoBroker("The configuration names no broker.", hint="Set broker_url, or leave --no-server out.")
        migrations.upgrade(ext.settings.database_url)
        children = []
        for name, arguments in _commands(app, data, concurrency, pool, loglevel).items():
            child = CeleryChild(name, arguments, environ=os.environ, own_session=True)
            stack.callback(child.stop)
            children.append(child)
        click.secho(f"pikkuflow: worker and beat of {app} are starting; Ctrl-C stops them.", fg="green", err=True)
        ended = _watch(children, stopped)
        for child in reversed(children):
            child.stop()
    if ended is not None:
        raise click.ClickException(f"The {ended.name} ended by itself with exit code {ended.exit_code}.")


def _commands(app: str, data: Path, concurrency: int, pool: str, loglevel: str) -> dict[str, list[str]]:
    return {
        "worker": ["-A", app, "worker", "-n", "dev@%h", "-c", str(concurrency), "-P", pool, "-l", loglevel],
        "beat": ["-A", app, "beat", "-s", str(data / "beat-schedule"), "--pidfile=", "-l", loglevel],
    }


def _watch(children: list[CeleryChild], stopped: Callable[[], bool]) -> CeleryChild | None:
    while not stopped():
        for child in children:
            if child.exit_code is not None:
                return child
        time.sleep(_LOOK_SECONDS)
    return None


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Within it, SIGINT and SIGTERM only set a flag, which the callable answers; a second Ctrl-C interrupts as ever."""
    asked: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
