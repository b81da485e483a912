"""Celery's lines at INFO that would drown a worker's log: those of sweeps, and a second success for each step (design 7).

A sweep says itself what it did, when it did something; a step logs Celery's own line under its invocation id. Warnings and errors stay.
"""

from __future__ import annotations

import logging
from typing import Final

from celery._state import get_current_task

from pikkuflow.adapters.celery.names import STEP_TASK, SWEEP_TASK

__all__ = ["quieten_celery"]

_LOGGERS: Final = ("celery.worker.strategy", "celery.worker.request", "celery.app.trace")


def quieten_celery() -> None:
    """Keep those lines out of the log of this process and its children; once is enough."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_is_wanted)


def _is_wanted(record: logging.LogRecord) -> bool:
    if record.levelno > logging.INFO:
        return True
    context = getattr(record, "data", None)
    if isinstance(context, dict):
        return context.get("name") != SWEEP_TASK and not _is_of_step_message(context.get("id"))
    # An expired sweep is told without a context: "Discarding revoked task".
    return not (isinstance(record.args, tuple) and SWEEP_TASK in record.args)


def _is_of_step_message(task_id: object) -> bool:
    """The line is about the message that carries steps, not about a step of it: messages show their step's name in logs."""
    task = get_current_task()
    return getattr(task, "name", None) == STEP_TASK and task.request.id == task_id
