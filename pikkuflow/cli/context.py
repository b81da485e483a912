"""What a command needs of the application it was pointed at."""

from __future__ import annotations

from typing import Any, cast

import click

from pikkuflow.app import PikkuFlow
from pikkuflow.cli.dev_server import DATA_FOLDER, adopt_dev_server
from pikkuflow.engine.runtime import Runtime
from pikkuflow.errors import SettingError

__all__ = ["app_argument", "extension", "runtime"]


def extension(ctx: click.Context) -> PikkuFlow:
    """The application's ``PikkuFlow`` object, with its tasks and workflows imported.

    Raises:
        SettingError: no application was named, or it has no ``PikkuFlow(app)``.
    """
    app = ctx.obj.app
    if adopt_dev_server(app):
        click.echo(f"Using the server that `flow dev` runs in {DATA_FOLDER}/.", err=True)
    app.loader.import_default_modules()
    app.finalize()
    found = getattr(app, "pikkuflow_ext", None)
    if found is None:
        raise SettingError(
            f"The Celery application {app.main or '(default)'} has no PikkuFlow(app).",
            hint="Name yours with -A: celery -A proj flow …; or add `pikku = PikkuFlow(app)` to it.",
        )
    return cast("PikkuFlow", found)


def runtime(ctx: click.Context) -> Runtime:
    """The engine's surroundings of that application; its schema is checked first.

    Raises:
        SchemaOutdated: the database must be migrated first.
    """
    composed = extension(ctx).runtime
    composed.store.check_schema()
    return composed


def app_argument(ctx: click.Context) -> str:
    """The text that names the application to a child process, as ``-A`` had it.

    Raises:
        SettingError: it was not named by text.
    """
    given: Any = ctx.find_root().params.get("app")
    if not isinstance(given, str):
        raise SettingError(
            "This command starts processes of your application.", hint="Name it: celery -A proj flow dev"
        )
    return given
