"""Make the rows of new steps (design 6)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from pikkuflow.domain.command import PlannedCall, StepCall
from pikkuflow.domain.graph_step import RECOVERS
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.recorded_names import UNDO_SUFFIX
from pikkuflow.domain.status import StepKind, StepStatus
from pikkuflow.domain.step import NewStep, Place, Step
from pikkuflow.domain.undo import Undo
from pikkuflow.engine.open_pass import OpenPass
from pikkuflow.engine.runtime import Runtime
from pikkuflow.errors import PikkuFlowError
from pikkuflow.ports import Route
from pikkuflow.replay.recorder import recorded_failure

__all__ = [
    "Arguments",
    "arguments_of",
    "child_step",
    "given_to",
    "new_step",
    "options_of",
    "step_of_row",
    "undo_step",
]

_OWN: Final = frozenset({"no_retry_on", RECOVERS})
"""What is final for a step says nothing of its compensation, which is tried as often as it may be, and recovers nothing."""


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


def given_to(rt: Runtime, run_id: RunId, step: NewStep | Step, override: str | None) -> Arguments:
    """What the attempt is called with. A compensation gets the arguments of its step's first attempt, after an ``Undo`` (D20).

    Raises ``PikkuFlowError`` when the row that a compensation undoes is gone.
    """
    if step.kind is not StepKind.COMPENSATION:
        return arguments_of(rt, step.args, override)
    forward = None if step.from_step is None else rt.store.get_step(run_id, step.from_step)
    if forward is None:
        raise PikkuFlowError(f"Step {step.name!r} of run {run_id!r} undoes a step that is not there.")
    given = arguments_of(rt, forward.args, override)
    return Arguments(args=(_undo_of(rt, forward), *given.args), kwargs=given.kwargs)


def _undo_of(rt: Runtime, forward: Step) -> Undo:
    if forward.status is StepStatus.SUCCEEDED:
        output = rt.codec.decode(forward.result or "null")
        return Undo(ok=True, output=output, error=None, error_type=None, step=forward.name)
    error = recorded_failure(forward)
    return Undo(ok=False, output=None, error=error.message, error_type=error.type, step=forward.name)


def undo_step(p: OpenPass, forward: Step, *, seq: int, place: str) -> NewStep:
    """The row of what undoes a step: under the same name, queue and budget, so that a missing route cannot keep it back."""
    options = {key: value for key, value in options_of(forward).items() if key not in _OWN}
    return NewStep(
        name=StepName(f"{forward.name}{UNDO_SUFFIX}"),
        seq=seq,
        kind=StepKind.COMPENSATION,
        task=forward.undo_task,
        retries=forward.retries,
        retry_delay=forward.retry_delay,
        place=place,
        queue=forward.queue,
        options=json.dumps(options),
        lease_seconds=forward.lease_seconds,
        child_run_id=forward.child_run_id,
        from_step=forward.name,
        group=forward.group,
        begun_no=p.begin_no(),
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
        options=_options_text(call, routed.options if call.terms is None else call.terms.policy.to_json()),
        lease_seconds=routed.lease_seconds,
        delay_seconds=routed.delay_seconds if call.seconds is None else call.seconds,
        expires_seconds=routed.expires_seconds,
        from_step=planned.from_step,
        group=call.group,
        undo_task=call.undo_task,
        begun_no=p.begin_no(),
        timeout_seconds=call.timeout_seconds,
        heartbeat_seconds=call.heartbeat_seconds,
    )


def child_step(p: OpenPass, planned: PlannedCall, child: RunId) -> NewStep:
    """The parent's row of a child run: no retries unless its author asked for some (D1)."""
    call = planned.call
    return NewStep(
        name=planned.name,
        seq=planned.seq,
        kind=StepKind.CHILD,
        task=call.task,
        retries=call.retries or 0,
        place=Place.child(child),
        lease_seconds=p.rt.settings.step_lease_seconds,
        child_run_id=child,
        options=_options_text(call, "{}"),
        from_step=planned.from_step,
        group=call.group,
        undo_task=None if call.detached else call.undo_task,
        begun_no=p.begin_no(),
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
        undo_task=row.undo_task,
        begun_no=row.begun_no,
        timeout_seconds=row.timeout_seconds,
        heartbeat_seconds=row.heartbeat_seconds,
    )


def options_of(step: NewStep | Step) -> Mapping[str, Any]:
    """A row's routed message options."""
    return _options_of(step.options)


@lru_cache(maxsize=256)
def _options_of(text: str) -> Mapping[str, Any]:
    # The steps of a task have the same options, unless their signatures say otherwise.
    return MappingProxyType(json.loads(text))


def _options_text(call: StepCall, options: str) -> str:
    return options if call.recovers is None else json.dumps(json.loads(options) | {RECOVERS: call.recovers})


def _unrouted(call: StepCall, lease_seconds: float) -> Route:
    return Route(leaves=None, queue=None, options="{}", lease_seconds=lease_seconds, args=call.args, kwargs=call.kwargs)


def _arguments_text(rt: Runtime, planned: PlannedCall, route: Route) -> str:
    payload = {"args": list(route.args), "kwargs": dict(route.kwargs)}
    return rt.codec.encode(payload, what=f"the arguments of step {planned.name!r}")
