"""The configuration of every application here: the repository's ``celeryconfig.py``, which reads the environment."""

from __future__ import annotations

import os
import runpy
from pathlib import Path
from typing import Any

from celery import Celery

_CONFIGURATION = Path(__file__).resolve().parents[3] / "celeryconfig.py"


def configure(app: Celery, **changes: Any) -> Celery:
    """Configure an app as the README's deployment does, with ``changes`` on top."""
    settings = {key: value for key, value in runpy.run_path(str(_CONFIGURATION)).items() if key.islower()}
    settings = {key: value for key, value in settings.items() if not key.startswith("_") and key != "os"}
    if backend := os.environ.get("CELERY_RESULT_BACKEND"):
        settings["result_backend"] = backend
    app.conf.update(settings | changes)
    return app
