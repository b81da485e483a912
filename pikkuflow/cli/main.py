"""Entry points: ``celery -A proj flow …`` (Celery's ``celery.commands``) and the ``pikkuflow`` script, one group of commands.

Exit codes: 0 done; 1 pikkuflow refused or could not (one line on stderr says why and what to do); 2 the command line was wrong;
3 the run that was asked about ended in another way than completed; 4 the time given was over.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import click
from celery import current_app
from celery.app.utils import find_app
from celery.bin.base import CLIContext

from pikkuflow.cli.answer import approvals, approve, resume, signal
from pikkuflow.cli.cancel import cancel
from pikkuflow.cli.db import db
from pikkuflow.cli.demo import demo
from pikkuflow.cli.dev import dev
from pikkuflow.cli.graph import graph
from pikkuflow.cli.runs import list_, show, watch
from pikkuflow.cli.steer import start, sweep
from pikkuflow.cli.versions import versions
from pikkuflow.errors import PikkuFlowError

__all__ = ["flow", "main"]


class _Group(click.Group):
    """A group whose commands report pikkuflow's errors as one line each, not as a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a ``PikkuFlowError`` ends with exit code 1 and its message and hint on stderr."""
        try:
            return super().invoke(ctx)
        except PikkuFlowError as error:
            click.secho(f"Error [{error.code}]: {error.message}", err=True, fg="red")
            if error.hint:
                click.echo(_pasteable(error.hint, ctx), err=True)
            raise click.exceptions.Exit(1) from error


def _pasteable(hint: str, ctx: click.Context) -> str:
    """The hint with the application that this command was pointed at."""
    app = ctx.find_root().params.get("app")
    return hint.replace("-A proj ", f"-A {app} ") if isinstance(app, str) else hint


_HELP = "Durable workflows on Celery: start, look at and steer runs."


@click.group(name="flow", cls=_Group, help=_HELP)
def flow() -> None:
    """Group the commands under ``celery flow``."""


@click.group(name="pikkuflow", cls=_Group, help=_HELP)
@click.option(
    "-A", "--app", envvar="CELERY_APP", metavar="APP", help="The Celery application: module, or module:attribute."
)
@click.option("--workdir", type=click.Path(exists=True, file_okay=False), help="Change to this folder first.")
@click.version_option(package_name="pikkuflow")
@click.pass_context
def _script(ctx: click.Context, app: str | None, workdir: str | None) -> None:
    if workdir:
        os.chdir(workdir)
    if str(os.getcwd()) not in sys.path:  # noqa: PTH109 - the entry that Python itself would put there
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    found: Any = _find(app) if app else current_app
    ctx.obj = CLIContext(app=found, no_color="NO_COLOR" in os.environ, workdir=workdir)


def _find(app: str) -> Any:
    try:
        return find_app(app)
    except (ModuleNotFoundError, AttributeError) as error:
        raise click.UsageError(f"The Celery application {app!r} cannot be loaded: {error}") from error


for _command in (
    approvals,
    approve,
    cancel,
    db,
    demo,
    dev,
    graph,
    list_,
    resume,
    show,
    signal,
    start,
    sweep,
    versions,
    watch,
):
    flow.add_command(_command)
    _script.add_command(_command)


def main() -> None:
    """Run the ``pikkuflow`` script."""
    _script()
