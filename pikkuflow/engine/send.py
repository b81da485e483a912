"""Send after the commit: what cannot be handed to the broker becomes a hint, since the rows are there and a sweep sends (D21)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pikkuflow.domain.act import RunRef, StepMessage
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.step import NewStep, Step
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.tell import warn
from pikkuflow.errors import DispatchError

__all__ = ["SOON_SECONDS", "message_of", "message_of_new", "routed", "send_steps", "wake_runs"]

SOON_SECONDS: Final = 1.0
"""How far ahead a hint is left when something could not be done now (D11, D21)."""


def wake_runs(rt: Runtime, runs: Sequence[RunRef], *, advice: str = "", at_most: int | None = None) -> bool:
    """Ask for a pass over each run. False when the broker did not take the messages: a hint is left for each then.

    ``advice`` is said instead of the error's own when they could not be sent. ``at_most`` so many runs travel in one message.
    """
    if not runs or not rt.has_broker:
        return False
    try:
        rt.dispatcher.wake(runs, at_most=at_most)
    except DispatchError as error:
        told = f"{error.message} {advice}" if advice else str(error)
        others = "" if len(runs) == 1 else f", like {len(runs) - 1} more,"
        warn(rt, f"It{others} could not be woken: {told}", run_id=runs[0].id)
        for run in runs:
            rt.hints.leave(run.id, SOON_SECONDS)
        return False
    return True


def send_steps(rt: Runtime, messages: Sequence[StepMessage], *, chunk: int = 1) -> bool:
    """Send step messages. False when the broker did not take them: the rows stay as they are (D21)."""
    if not messages:
        return True
    if not rt.has_broker:
        return False
    try:
        rt.dispatcher.send_steps([routed(rt, message) for message in messages], chunk=chunk)
    except DispatchError as error:
        warn(rt, f"{len(messages)} step(s) could not be sent: {error}", run_id=messages[0].run_id)
        return False
    return True


def message_of(rt: Runtime, step: Step, *, attempt: int | None = None, override: str | None = None) -> StepMessage:
    """The message of a row, for its own attempt, or for another with that one's ``override``: each holds for one attempt only."""
    message = StepMessage(
        run_id=step.run_id,
        name=step.name,
        attempt=step.attempt if attempt is None else attempt,
        task=step.task or "",
        queue=step.queue,
        options=step.options,
        override=step.override if attempt is None else override,
    )
    return routed(rt, message)


def message_of_new(run_id: RunId, step: NewStep, *, attempt: int = 1, override: str | None = None) -> StepMessage:
    """The message of a row that this pass has just written; its override is not merged yet (``routed``)."""
    return StepMessage(
        run_id=run_id,
        name=step.name,
        attempt=attempt,
        task=step.task or "",
        queue=step.queue,
        options=step.options,
        override=override,
    )


def routed(rt: Runtime, message: StepMessage) -> StepMessage:
    """The message with the options of its override merged: where this attempt goes (design 1)."""
    if message.override is None:
        return message
    changed = rt.codec.decode(message.override).get("options") or {}
    return replace(message, options=json.dumps({**json.loads(message.options), **changed}), override=None)
