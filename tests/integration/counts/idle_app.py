"""An app whose worker has nothing to do."""

from __future__ import annotations

from celery import Celery

from pikkuflow import PikkuFlow

app = Celery("idle")
app.config_from_object("celeryconfig")
pikku = PikkuFlow(app)
