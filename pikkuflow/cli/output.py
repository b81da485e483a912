"""Tables on a terminal, plain columns when piped, JSON when asked."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = [
    "STATUS_STYLES",
    "as_json",
    "console",
    "is_terminal",
    "json_option",
    "print_json",
    "print_table",
    "say",
    "short_time",
]

STATUS_STYLES: Final[Mapping[str, str]] = {
    "running": "cyan",
    "scheduled": "blue",
    "pending": "blue",
    "suspended": "yellow",
    "completed": "green",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "magenta",
    "compensating": "yellow",
    "compensated": "yellow",
    "compensation_failed": "red",
}

json_option = click.option(
    "--json", "json_", is_flag=True, help="One JSON document (or one a line, for streams) instead of a table."
)


def is_terminal() -> bool:
    """Standard output is a terminal."""
    return sys.stdout.isatty()


def console() -> Console:
    """A console on standard output that obeys ``NO_COLOR``."""
    return Console(no_color="NO_COLOR" in os.environ, highlight=False)


def as_json(value: Any) -> str:
    """One line of JSON; times as ISO 8601."""
    return json.dumps(value, default=_plain, ensure_ascii=False)


def print_json(value: Any) -> None:
    """Print one JSON document."""
    click.echo(as_json(value))


def say(document: Mapping[str, Any], text: str, *, json_: bool) -> None:
    """One line, or the same as JSON."""
    if json_:
        print_json(document)
    else:
        click.echo(text)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)


def short_time(moment: datetime | None) -> str:
    """Local time to the second, or an empty text."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S") if moment else ""


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str | None = None) -> None:
    """A table; piped, tab-separated lines with a header (for cut, awk and sort)."""
    if not is_terminal():
        click.echo("\t".join(columns))
        for row in rows:
            click.echo("\t".join(_one_line(cell) for cell in row))
        return
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_one_line(cell), style=STATUS_STYLES.get(str(cell), "")) for cell in row))
    console().print(table)


def _one_line(cell: Any) -> str:
    return "" if cell is None else " ".join(str(cell).split())
