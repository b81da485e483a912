"""How an attempt that is at work asks how it stands, and says how far it is (design 3.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pikkuflow.domain.ids import RunId
from pikkuflow.domain.step import NewStep, Step
from pikkuflow.domain.stop import Beat, StepStanding
from pikkuflow.engine.runtime import Runtime

__all__ = ["beat_of", "details_of"]


def beat_of(
    rt: Runtime, run_id: RunId, step: NewStep | Step, attempt: int, *, before: Callable[[str], None] | None = None
) -> Callable[[Any, bool], StepStanding]:
    """The ``beat`` of an attempt. ``before`` is told the details, and sees to it that the step has a row, which they are kept on."""

    def beat(details: Any, lives: bool) -> StepStanding:  # noqa: FBT001 - the port's shape
        lives = lives and step.heartbeat_seconds is not None
        text = None if details is None else rt.codec.encode(details, what=f"the details of step {step.name!r}")
        if text is not None and before is not None:
            before(text)
        return rt.store.beat(Beat(run_id=run_id, step=step.name, attempt=attempt, details=text, lives=lives))

    return beat


def details_of(rt: Runtime, text: str | None) -> Any:
    """What an attempt said last."""
    return None if text is None else rt.codec.decode(text)
