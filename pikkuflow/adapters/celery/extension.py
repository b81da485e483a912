"""What the Celery side needs of the extension object: the composition root implements it, and hangs itself on the app."""

from __future__ import annotations

from typing import Protocol, cast

from celery import Celery

from pikkuflow.adapters.celery.node import Node
from pikkuflow.domain.definition import Registry
from pikkuflow.engine.runtime import Runtime
from pikkuflow.errors import SettingError
from pikkuflow.settings import Settings

__all__ = ["ATTRIBUTE", "Extension", "extension_of"]

ATTRIBUTE = "pikkuflow_ext"
"""Where the extension hangs on its Celery app, in the manner of Celery's own extensions (celery-notes 1)."""


class Extension(Protocol):
    """A ``PikkuFlow`` object that is bound to an app."""

    @property
    def app(self) -> Celery:
        """The app it is bound to."""
        ...

    @property
    def registry(self) -> Registry:
        """Its workflows."""
        ...

    @property
    def node(self) -> Node:
        """This process."""
        ...

    @property
    def settings(self) -> Settings:
        """Its settings, read once. Raises ``SettingError``."""
        ...

    @property
    def runtime(self) -> Runtime:
        """The engine's surroundings in this process, built on first use and again after a fork."""
        ...

    def refresh(self) -> None:
        """Close the surroundings of this process; the next use builds them anew."""
        ...

    def compose(self, *, connections: int, patience_seconds: float | None) -> Runtime:
        """Fresh surroundings with their own connections, for a thread that must never wait behind user code."""
        ...


def extension_of(app: Celery) -> Extension:
    """The app's extension. Raises ``SettingError`` when it has none."""
    found = getattr(app, ATTRIBUTE, None)
    if found is None:
        raise SettingError(
            f"The Celery application {app.main or '(default)'} has no PikkuFlow(app).",
            hint="Add `pikku = PikkuFlow(app)` to it.",
        )
    return cast("Extension", found)
