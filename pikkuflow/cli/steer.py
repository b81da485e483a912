"""``flow start``, ``sweep``: making things move."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Final

import click

from pikkuflow.cli.context import extension, runtime
from pikkuflow.cli.output import json_option, say
from pikkuflow.engine.sweep import SweepKind, recover
from pikkuflow.engine.sweep import sweep as sweep_kind
from pikkuflow.errors import DispatchError, NoBroker, ResultTimeout, RunCancelled, RunFailed

__all__ = ["start", "sweep"]

_ENDED_OTHERWISE: Final = 3
_TIMED_OUT: Final = 4


def _json(kind: type, shape: str) -> Any:
    def parse(_ctx: click.Context, parameter: click.Parameter, text: str | None) -> Any:
        if text is None:
            return kind()
        try:
            value = json.loads(text)
        except ValueError as error:
            raise click.BadParameter(f"{text!r} is no JSON: {error}", param=parameter) from error
        if not isinstance(value, kind):
            raise click.BadParameter(f"Give {shape}, not {text!r}.", param=parameter)
        return value

    return parse


@click.command()
@click.argument("workflow")
@click.argument("args", required=False, callback=_json(list, "a JSON list of arguments, such as '[42]'"))
@click.option("--kwargs", callback=_json(dict, "a JSON object of keyword arguments, such as '{\"cents\": 5}'"))
@click.option("--run-id", help="The run's id; starting the same id twice is the same run.")
@click.option("--owner", help="Whose run it is.")
@click.option(
    "--run-timeout", metavar="DURATION", help="How long the run may take in all, such as 90s or 2h; then it is undone."
)
@click.option("--inline", is_flag=True, help="Run the whole of it in this process: no broker, no worker, as durable.")
@click.option("--wait", is_flag=True, help="Wait for the end and print the result.")
@click.option(
    "--timeout", type=click.FloatRange(min=0), help="With --wait: give up waiting after so many seconds (exit code 4)."
)
@json_option
@click.pass_context
def start(
    ctx: click.Context, /, workflow: str, args: list[Any], *, json_: bool, inline: bool, wait: bool, **options: Any
) -> None:
    """Start a run of WORKFLOW with ARGS, a JSON list."""
    runtime(ctx)
    order = extension(ctx).workflow_named(workflow)
    starter = order.using(run_id=options["run_id"], owner=options["owner"], timeout=options["run_timeout"])
    try:
        run = (starter.run_inline if inline else starter.start)(*args, **options["kwargs"])
    except TypeError as error:
        raise click.UsageError(f"The arguments do not fit workflow {workflow!r}: {error}") from error
    if not (wait or inline):
        say({"id": run.run_id, "status": "running"}, run.run_id, json_=json_)
        return
    try:
        output = run.result(timeout=options["timeout"])
    except (RunFailed, RunCancelled) as error:
        click.echo(f"Run {run.run_id} ended with {error.code}: {error.message}", err=True)
        ctx.exit(_ENDED_OTHERWISE)
    except ResultTimeout as error:
        click.echo(str(error), err=True)
        ctx.exit(_TIMED_OUT)
    say({"id": run.run_id, "status": "completed", "output": output}, json.dumps(output, default=str), json_=json_)


@click.command()
@click.option("--kind", type=click.Choice([kind.value for kind in SweepKind]), help="Only this kind; all by default.")
@json_option
@click.pass_context
def sweep(ctx: click.Context, *, kind: str | None, json_: bool) -> None:
    """Look once for lost work and send it again, as beat does. Exit code 1 when something that was found could not be sent."""
    engine = runtime(ctx)
    if not engine.has_broker:
        raise NoBroker("Without a broker nothing can be sent again.", hint="Set broker_url or CELERY_BROKER_URL.")
    counts = sweep_kind(engine, SweepKind(kind)) if kind else recover(engine)
    document = asdict(counts)
    say(document, ", ".join(f"{name} {count}" for name, count in document.items()), json_=json_)
    if counts.unsent or counts.undelivered:
        raise DispatchError(
            f"{counts.unsent} run(s) and step(s) were found and not sent, {counts.undelivered} outcome(s) were not handed on.",
            hint="Nothing is lost: start what did not answer (above); a later sweep sends them.",
        )
