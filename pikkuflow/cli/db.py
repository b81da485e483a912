"""``flow db``: the database's schema."""

from __future__ import annotations

import click

from pikkuflow.adapters.sql import migrations
from pikkuflow.cli.context import extension
from pikkuflow.cli.output import json_option, print_json

__all__ = ["db"]


@click.group()
def db() -> None:
    """Migrate the database, or look at its revision."""


@db.command()
@json_option
@click.pass_context
def upgrade(ctx: click.Context, json_: bool) -> None:  # noqa: FBT001 - click passes options by name
    """Bring the schema up to this version; safe to run from several processes at once."""
    url = extension(ctx).settings.database_url
    migrations.upgrade(url)
    _say(json_, {"revision": migrations.current(url)}, f"The schema is at {migrations.current(url)}.")


@db.command()
@json_option
@click.pass_context
def current(ctx: click.Context, json_: bool) -> None:  # noqa: FBT001
    """Show the database's revision."""
    revision = migrations.current(extension(ctx).settings.database_url)
    _say(json_, {"revision": revision}, revision or "The database is empty.")


@db.command()
@json_option
@click.pass_context
def check(ctx: click.Context, json_: bool) -> None:  # noqa: FBT001
    """Exit with 0 if the schema is this version's, with 1 and the command to run if it is not."""
    migrations.check(extension(ctx).settings.database_url)
    _say(json_, {"current": True}, "The schema is up to date.")


def _say(json_: bool, document: dict[str, object], text: str) -> None:  # noqa: FBT001
    if json_:
        print_json(document)
    else:
        click.echo(text)
