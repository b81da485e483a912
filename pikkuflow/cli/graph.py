"""``flow graph``: a picture of a workflow or of a run."""

from __future__ import annotations

from typing import Final

import click

from pikkuflow.adapters.svg import svg_of_dot
from pikkuflow.cli.context import extension, runtime
from pikkuflow.cli.output import STATUS_STYLES, is_terminal
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.picture import Picture
from pikkuflow.domain.picture_dot import dot_of
from pikkuflow.domain.picture_text import text_lines_of
from pikkuflow.engine.pictures import FORMS, drawn, picture_of_stored_run, picture_of_workflow
from pikkuflow.errors import RunNotFound

__all__ = ["graph"]

_SVG: Final = "svg"


@click.command()
@click.argument("what", metavar="WORKFLOW|RUN")
@click.option(
    "--format",
    "form",
    type=click.Choice([*FORMS, _SVG]),
    default="text",
    show_default=True,
    help="svg needs Graphviz; the others nothing.",
)
@click.option("--run", "is_run", is_flag=True, help="It is a run's id, also when a workflow has that name.")
@click.pass_context
def graph(ctx: click.Context, what: str, *, form: str, is_run: bool) -> None:
    """Draw a workflow as it is defined, or a run with the status of its steps."""
    picture = _picture(ctx, what, is_run=is_run)
    if form == _SVG:
        click.echo(svg_of_dot(dot_of(picture)), nl=False)
    elif form == "text" and is_terminal():
        _print(picture)
    else:
        click.echo(drawn(picture, form), nl=False)


def _picture(ctx: click.Context, what: str, *, is_run: bool) -> Picture:
    definition = None if is_run else extension(ctx).registry.find(what)
    if definition is not None:
        return picture_of_workflow(definition)
    engine = runtime(ctx)
    run = engine.store.get_run(RunId(what))
    if run is None:
        kind = "run" if is_run else "workflow and no run"
        raise RunNotFound(
            f"There is no {kind} {what!r}.",
            what,
            hint=f"Workflows here: {', '.join(engine.registry.names()) or 'none'}. Runs: `flow list`.",
        )
    return picture_of_stored_run(engine, run)


def _print(picture: Picture) -> None:
    """In colours, beside the letters and words."""
    for line in text_lines_of(picture):
        click.secho(line.text, fg=STATUS_STYLES.get(line.status or ""))
