"""``flow versions``: which versions of a workflow there are, and which of them runs still need."""

from __future__ import annotations

import click

from pikkuflow.cli.context import runtime
from pikkuflow.cli.output import json_option, print_json, print_table, short_time
from pikkuflow.engine.versions import versions_of

__all__ = ["versions"]


@click.command()
@click.argument("workflow")
@json_option
@click.pass_context
def versions(ctx: click.Context, workflow: str, *, json_: bool) -> None:
    """List the versions of WORKFLOW, with the runs of each that are not settled; `here` is what this application has."""
    found = versions_of(runtime(ctx), workflow)
    if json_:
        print_json([one.to_dict() for one in found])
        return
    rows = [
        (
            one.version or "unknown",
            one.kind,
            short_time(one.stored_at),
            one.open_runs,
            short_time(one.oldest_at),
            "yes" if one.here else None,
        )
        for one in found
    ]
    print_table(("version", "kind", "stored", "open", "oldest open", "here"), rows)
