"""Make the rows of new steps (design 6)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from pikkuflow.domain.command import PlannedCall, StepCall
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import StepKind
from pikkuflow.domain.step import NewStep, Place, Step
from pikkuflow.engine.open_pass import OpenPass
from pikkuflow.engine.runtime import Runtime
from pikkuflow.ports import Route

__all__ = ["Arguments", "arguments_of", "child_step", "new_step", "options_of", "step_of_row"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What a row's ``args`` hold."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any]


def arguments_of(rt: Runtime, text: str | None, override: str | None = None) -> Arguments:
    """Read a row's ``args``; ``override`` is what the task's own ``retry`` changed for this attempt."""
    stored = {} if text is None else rt.codec.decode(text)
    changed = {} if override is None else rt.codec.decode(override)
    args, kwargs = changed.get("args"), changed.get("kwargs")
    return Arguments(
        args=tuple(stored.get("args", ()) if args is None else args),
        kwargs=dict(stored.get("kwargs", {}) if kwargs is None else kwargs),
    )


def new_step(p: OpenPass, planned: PlannedCall, route: Route | None, *, place: str) -> NewStep:
    """The row of a call that has none. ``route`` is a task's; without one the call's own arguments are stored as they are.

    Raises ``PayloadError`` when the arguments cannot be stored.
    """
    call, settings = planned.call, p.rt.settings
    routed = _unrouted(call, settings.step_lease_seconds) if route is None else route
    return NewStep(
        name=planned.name,
        seq=planned.seq,
        kind=call.kind,
        task=call.task,
        args=_arguments_text(p.rt, planned, routed) if call.kind is StepKind.TASK else None,
        retries=settings.retries if call.retries is None else call.retries,
        retry_delay=str(settings.retry_delay) if call.retry_delay is None else call.retry_delay,
        place=place,
        queue=routed.queue,
        options=routed.options,
        lease_seconds=routed.lease_seconds,
        delay_seconds=call.seconds if call.kind is StepKind.SLEEP else routed.delay_seconds,
        expires_seconds=routed.expires_seconds,
        from_step=planned.from_step,
        group=call.group,
    )


def child_step(planned: PlannedCall, child: RunId, *, lease_seconds: float) -> NewStep:
    """The parent's row of a child run: no retries unless its author asked for some (D1)."""
    call = planned.call
    return NewStep(
        name=planned.name,
        seq=planned.seq,
        kind=StepKind.CHILD,
        task=call.task,
        retries=call.retries or 0,
        place=Place.child(child),
        lease_seconds=lease_seconds,
        child_run_id=child,
        from_step=planned.from_step,
        group=call.group,
    )


def step_of_row(row: Step, *, place: str) -> NewStep:
    """What a row was made of, for writing it again."""
    return NewStep(
        name=row.name,
        seq=row.seq,
        kind=row.kind,
        task=row.task,
        args=row.args,
        retries=row.retries,
        retry_delay=row.retry_delay,
        place=place,
        queue=row.queue,
        options=row.options,
        lease_seconds=row.lease_seconds,
        child_run_id=row.child_run_id,
        fan_id=row.fan_id,
        from_step=row.from_step,
        group=row.group,
    )


def options_of(step: NewStep | Step) -> Mapping[str, Any]:
    """A row's routed message options."""
    return _options_of(step.options)


@lru_cache(maxsize=256)
def _options_of(text: str) -> Mapping[str, Any]:
    # The steps of a task have the same options, unless their signatures say otherwise.
    return MappingProxyType(json.loads(text))


def _unrouted(call: StepCall, lease_seconds: float) -> Route:
    return Route(leaves=None, queue=None, options="{}", lease_seconds=lease_seconds, args=call.args, kwargs=call.kwargs)


def _arguments_text(rt: Runtime, planned: PlannedCall, route: Route) -> str:
    payload = {"args": list(route.args), "kwargs": dict(route.kwargs)}
    return rt.codec.encode(payload, what=f"the arguments of step {planned.name!r}")
