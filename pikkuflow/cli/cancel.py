"""``flow cancel``: calling a run off."""

from __future__ import annotations

import click

from pikkuflow.cli.context import extension, runtime
from pikkuflow.cli.output import json_option, say
from pikkuflow.cli.runs import run_option
from pikkuflow.domain.status import RunStatus

__all__ = ["cancel"]

_TEXTS = {
    RunStatus.COMPENSATING: "is called off; what it did is being undone",
    RunStatus.CANCELLED: "is cancelled; there was nothing to undo",
    RunStatus.COMPENSATED: "is called off, and what it did is undone",
    RunStatus.COMPENSATION_FAILED: "is called off, but not all that it did could be undone",
}


@click.command()
@run_option
@click.option("--reason", help="Why; it becomes the run's error.")
@json_option
@click.pass_context
def cancel(ctx: click.Context, run_id: str, *, reason: str | None, json_: bool) -> None:
    """Call a run off: its child runs too, and what they did is undone."""
    runtime(ctx)
    run = extension(ctx).runs.get(run_id)
    status = run.cancel(reason)
    text = f"Run {run_id} {_TEXTS[status]}."
    say({"id": run_id, "status": status.value}, text, json_=json_)
