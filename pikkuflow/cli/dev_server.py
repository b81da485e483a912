"""How a second terminal finds the server that ``flow dev`` runs in the same folder: by a small file, trusted while it answers."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from celery import Celery

__all__ = ["DATA_FOLDER", "adopt_dev_server", "announced"]

DATA_FOLDER: Final = Path(".pikkuflow")
_FILE: Final = "dev.json"
_CONNECT_SECONDS: Final = 0.5


@contextmanager
def announced(folder: Path, settings: Mapping[str, str]) -> Iterator[None]:
    """Within it, other terminals of this folder find the server by these environment settings."""
    path = folder / _FILE
    path.write_text(json.dumps(dict(settings)))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def adopt_dev_server(app: Celery, folder: Path = DATA_FOLDER) -> bool:
    """Point this process at the server that ``flow dev`` runs here, unless the environment names a broker. False: there is none."""
    path = folder / _FILE
    if "CELERY_BROKER_URL" in os.environ or not path.is_file():
        return False
    settings: dict[str, str] = json.loads(path.read_text())
    if not _answers(urlsplit(settings["CELERY_BROKER_URL"]).path):
        return False
    os.environ.update(settings)
    app.conf.update(broker_url=settings["CELERY_BROKER_URL"])
    return True


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        try:
            probe.connect(path)
        except OSError:
            return False
        return True
