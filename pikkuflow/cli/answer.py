"""``flow resume``, ``signal``, ``approve``, ``approvals``: answering what runs wait for."""

from __future__ import annotations

import json
from typing import Any

import click

from pikkuflow.cli.context import extension, runtime
from pikkuflow.cli.output import json_option, print_json, print_table, say, short_time
from pikkuflow.cli.runs import run_option
from pikkuflow.domain.gate import Decider

__all__ = ["approvals", "approve", "resume", "signal"]


def _value(_ctx: click.Context, parameter: click.Parameter, text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is no JSON: {error}", param=parameter) from error


_data = click.argument("data", required=False, callback=_value, metavar="[JSON]")


@click.command()
@run_option
@click.option("--reason", help="Only the suspension of this reason; without it, whatever suspends the run.")
@json_option
@click.pass_context
def resume(ctx: click.Context, run_id: str, *, reason: str | None, json_: bool) -> None:
    """Have a suspended run go on at once. An approval or a signal is not passed."""
    runtime(ctx)
    moved = extension(ctx).runs.get(run_id).resume(reason)
    text = f"Run {run_id} goes on." if moved else f"Run {run_id} was resumed from {reason!r} before; nothing was done."
    say({"id": run_id, "resumed": moved}, text, json_=json_)


@click.command()
@run_option
@click.argument("name")
@_data
@click.option("--key", help="Two sends of this name with one key are one signal.")
@json_option
@click.pass_context
def signal(ctx: click.Context, run_id: str, name: str, *, data: Any, key: str | None, json_: bool) -> None:
    """Send signal NAME to a run, with a JSON payload (null without one)."""
    runtime(ctx)
    stored = extension(ctx).runs.get(run_id).signal(name, data, idempotency_key=key)
    text = (
        f"Signal {name!r} was stored."
        if stored
        else f"Signal {name!r} came with key {key!r} before; the first one counts."
    )
    say({"id": run_id, "signal": name, "stored": stored}, text, json_=json_)


@click.command()
@run_option
@click.argument("reason")
@_data
@click.option("--by", metavar="USER", help="Who decides.")
@click.option("--scope", "scopes", multiple=True, help="A scope that the user has; may be repeated.")
@json_option
@click.pass_context
def approve(
    ctx: click.Context, run_id: str, reason: str, *, data: Any, by: str | None, scopes: tuple[str, ...], json_: bool
) -> None:
    """Decide the approval REASON of a run, with JSON data. The workflow validates it: `flow approvals` shows what it refused."""
    runtime(ctx)
    extension(ctx).runs.get(run_id).approve(reason, data, by=Decider(by, scopes))
    say({"id": run_id, "reason": reason, "stored": True}, f"The decision on {reason!r} was stored.", json_=json_)


@click.command()
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--after", metavar="PAGE", help="Go on after this page, as the page before said.")
@json_option
@click.pass_context
def approvals(ctx: click.Context, *, limit: int, after: str | None, json_: bool) -> None:
    """List what waits for a decision: whose, since when, until when, and why the last one was refused."""
    runtime(ctx)
    try:
        page = extension(ctx).runs.approvals(limit=limit, after=after)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--after") from error
    if json_:
        print_json([waiting.to_dict() for waiting in page])
    else:
        rows = [
            (
                one.run_id,
                one.reason,
                " + ".join(part for part in (one.policy.approvers.value, one.policy.scope) if part),
                one.owner,
                short_time(one.since),
                short_time(one.expires_at),
                one.issue,
            )
            for one in page
        ]
        print_table(("run", "approval", "who may", "owner", "since", "until", "last refusal"), rows)
    if page.next_page is not None:
        click.echo(f"There may be more: --after '{page.next_page}'", err=True)
