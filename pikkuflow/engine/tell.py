"""Tell observers; whatever they raise is logged and changes nothing (I12)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from pikkuflow.domain.ids import RunId
from pikkuflow.engine.runtime import Runtime
from pikkuflow.ports import PassEnded, StepLost

__all__ = ["tell_pass_ended", "tell_step_lost", "warn"]

_LOGGER: Final = logging.getLogger("pikkuflow")


def warn(rt: Runtime, message: str, *, run_id: RunId | None = None) -> None:
    """Something a person should know."""
    _tell(lambda: rt.observer.warn(message, run_id=run_id))


def tell_pass_ended(rt: Runtime, event: PassEnded) -> None:
    """One per pass (D31)."""
    _tell(lambda: rt.observer.pass_ended(event))


def tell_step_lost(rt: Runtime, event: StepLost) -> None:
    """An attempt lost its worker or pass (spec 5.1)."""
    _tell(lambda: rt.observer.step_lost(event))


def _tell(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:
        # What failed may be a log handler: then this fails as well.
        with suppress(Exception):
            _LOGGER.exception("An observer failed.")
