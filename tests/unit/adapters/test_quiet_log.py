"""Which of Celery's lines a worker's log keeps (design 7)."""

from __future__ import annotations

import logging

import pytest

from pikkuflow.adapters.celery.quiet_log import quieten_celery

_SWEEP = {"name": "pikkuflow.sweep", "id": "1", "args": "('stalled',)", "kwargs": "{}"}
_OTHER = {**_SWEEP, "name": "shop.charge"}


@pytest.mark.parametrize("name", ["celery.worker.strategy", "celery.app.trace"])
def test_sweeps_are_quiet_at_info_and_nothing_else_is(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Received and succeeded, three kinds every ten seconds; errors and everybody else's lines stay."""
    quieten_celery()
    quieten_celery()
    logger = logging.getLogger(name)
    with caplog.at_level(logging.INFO, name):
        for context in (_SWEEP, _OTHER):
            logger.info("Task %(name)s[%(id)s] received", context, extra={"data": context})
            logger.error("Task %(name)s[%(id)s] raised", context, extra={"data": context})
        logger.info("a line without a context")

    assert [record.getMessage() for record in caplog.records] == [
        "Task pikkuflow.sweep[1] raised",
        "Task shop.charge[1] received",
        "Task shop.charge[1] raised",
        "a line without a context",
    ]


def test_an_expired_sweep_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Beat's entries expire after their interval, so a backlog drops sweeps; the next one does their work."""
    quieten_celery()
    logger = logging.getLogger("celery.worker.request")
    with caplog.at_level(logging.INFO, "celery.worker.request"):
        for name in ("pikkuflow.sweep", "shop.charge"):
            logger.info("Discarding revoked task: %s[%s]", name, "1")

    assert [record.getMessage() for record in caplog.records] == ["Discarding revoked task: shop.charge[1]"]
