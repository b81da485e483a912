"""Generated workflows as bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pikkuflow.adapters.schemas import schema_of
from pikkuflow.domain.command import StepCall
from pikkuflow.domain.gate import Schema
from pikkuflow.domain.recorded_names import UNDO_SUFFIX
from pikkuflow.domain.status import StepKind
from pikkuflow.errors import StepFailed
from pikkuflow.replay.context import Workflow
from pikkuflow.replay.options import StepOptions
from tests.simulation.plan import (
    Act,
    CallOff,
    Child,
    Do,
    Gate,
    GateKind,
    Gather,
    Map,
    Milestone,
    Part,
    Sleep,
    Spread,
    State,
)

__all__ = [
    "UNDO_TASK",
    "Boom",
    "Call",
    "Translator",
    "Walk",
    "acts_of",
    "body_of",
    "children_of",
    "together_in",
    "value_of",
]

UNDO_TASK: Final = "u"
"""What undoes the one task."""


class Boom(Exception):
    """What a failing task raises."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a body hands to ``wf``: a task with its behaviour, or a workflow."""

    task: str
    key: str
    act: Act | None = None
    workflow: bool = False
    leaves: bool = False
    undone: bool = False

    def __call__(self) -> Any:
        """Only there so that a type checker takes it for something that can be worked."""
        raise AssertionError("calls are worked by the runner")


class Translator:
    """Reads calls and functions."""

    def __call__(self, what: Any, name: str | None, options: StepOptions) -> StepCall:
        """The call of what the body wrote, or of a graph's node."""
        if isinstance(what, Mapping):
            return _node_call(what, name, options)
        if not isinstance(what, Call):
            return StepCall(
                name=name or "function",
                kind=StepKind.FUNCTION,
                function=what,
                retries=options.retries,
                retry_delay=options.retry_delay,
                record_start=options.record_start,
                quick=options.quick,
                timeout_seconds=options.timeout_seconds,
                heartbeat_seconds=options.heartbeat_seconds,
            )
        if what.workflow:
            undo_task = what.task if options.compensate else None
            return StepCall(
                name=name or what.task,
                kind=StepKind.CHILD,
                task=what.task,
                undo_task=undo_task,
                detached=options.detached,
                timeout_seconds=options.timeout_seconds,
            )
        return StepCall(
            name=name or what.task,
            kind=StepKind.TASK,
            task=what.task,
            args=(what.key,),
            retries=options.retries,
            retry_delay=options.retry_delay,
            record_start=options.record_start,
            quick=options.quick,
            dispatch=options.dispatch,
            options={"leaves": what.leaves},
            timeout_seconds=options.timeout_seconds,
            heartbeat_seconds=options.heartbeat_seconds,
            undo_task=UNDO_TASK if what.undone and options.compensate else None,
        )

    def schema(self, schema: Any) -> Schema:
        """As the application has it."""
        return schema_of(schema)

    def member(self, task: Any, item: Any) -> Any:
        """The call of one member of a map."""
        return Call(task.task, f"{task.key}[{item}]", undone=task.undone)


def _node_call(signature: Mapping[str, Any], name: str | None, options: StepOptions) -> StepCall:
    said = signature["options"]
    if said.get("child"):
        return StepCall(
            name=name or signature["task"],
            kind=StepKind.CHILD,
            task=signature["task"],
            args=tuple(signature["args"]),
            undo_task=signature["task"] if options.compensate else None,
            timeout_seconds=options.timeout_seconds,
        )
    return StepCall(
        name=name or signature["task"],
        kind=StepKind.TASK,
        task=signature["task"],
        args=tuple(signature["args"]),
        retries=options.retries,
        retry_delay=options.retry_delay,
        record_start=options.record_start,
        dispatch=options.dispatch,
        options={"leaves": said.get("leaves", False)},
        timeout_seconds=options.timeout_seconds,
        heartbeat_seconds=options.heartbeat_seconds,
        undo_task=UNDO_TASK if said.get("undone") and options.compensate else None,
    )


def value_of(run_id: str, step: str) -> str:
    """What a task gives."""
    return f"{run_id}/{step}"


class Does(Protocol):
    """Works a function of a workflow."""

    def __call__(self, key: str) -> Any: ...


def children_of(workflow: str, parts: Sequence[Part]) -> dict[str, tuple[Part, ...]]:
    """The parts of every workflow beneath, by name, this one's too."""
    found = {workflow: tuple(parts)}
    for part in parts:
        if isinstance(part, Child):
            found.update(children_of(f"{workflow}.{part.name}", part.parts))
            continue
        beneath = children_of(workflow, _members_of(part))
        del beneath[workflow]
        found.update(beneath)
    return found


def _members_of(part: Part) -> tuple[Part, ...]:
    if isinstance(part, Gather):
        return part.members
    return (part.first, *part.between) if isinstance(part, Spread) else ()


def acts_of(workflow: str, parts: Sequence[Part]) -> dict[str, Act]:
    """Every step's behaviour by key, of one workflow."""
    found: dict[str, Act] = {}
    for part in parts:
        if isinstance(part, Do):
            found.update(_with_undo(f"{workflow}/{part.name}", part.act, part.undo))
        elif isinstance(part, Map):
            for index, act in enumerate(part.acts):
                found.update(_with_undo(f"{workflow}/{part.name}[{index}]", act, part.undo))
        elif isinstance(part, Gather):
            found.update(acts_of(workflow, part.members))
        elif isinstance(part, Spread):
            found.update(acts_of(workflow, (part.first, *part.between)))
    return found


def together_in(workflow: str, parts: Sequence[Part]) -> dict[tuple[str, str], str]:
    """What is begun together in one workflow, a name for each such group by workflow and step.

    What is submitted waits for the next call that needs an outcome, and begins with all that was submitted until then.
    """
    found: dict[tuple[str, str], str] = {}
    _find_together(parts, [], lambda names: found.update({(workflow, name): names[0] for name in names}))
    return found


def _find_together(parts: Sequence[Part], submitted: list[str], begin: Callable[[list[str]], None]) -> None:
    for part in parts:
        if isinstance(part, Map) and not part.acts:
            # It needs no outcome.
            continue
        if isinstance(part, Gather):
            submitted += [member.name for member in part.members]
        elif isinstance(part, Spread):
            submitted.append(part.first.name)
            _find_together(part.between, submitted, begin)
        begin(submitted)
        submitted.clear()
        if isinstance(part, Map):
            begin([f"{part.name}[{index}]" for index in range(len(part.acts))])


def _with_undo(key: str, act: Act, undo: Act | None) -> dict[str, Act]:
    return {key: act} if undo is None else {key: act, f"{key}{UNDO_SUFFIX}": undo}


def body_of(workflow: str, parts: tuple[Part, ...], does: Does) -> Callable[[Workflow], Any]:
    """The workflow function of these parts."""

    def body(wf: Workflow) -> Any:
        return Walk(wf, workflow, does).walk(parts)

    return body


class Walk:
    """One pass over the parts, with the real ``wf`` or with one that only knows outcomes."""

    def __init__(self, wf: Any, workflow: str, does: Does) -> None:
        self._wf = wf
        self._workflow = workflow
        self._does = does

    def walk(self, parts: Sequence[Part]) -> list[Any]:
        """What the parts come to."""
        return [self._part(part) for part in parts]

    def _part(self, part: Part) -> Any:
        if not getattr(part, "caught", False):
            return self._work(part)
        try:
            return self._work(part)
        except StepFailed as error:
            return f"caught {error.step}"

    def _work(self, part: Part) -> Any:
        work: Callable[[Any], Any] = _WORK[type(part)].__get__(self)
        return work(part)

    def _do(self, part: Do) -> Any:
        return self._wf.do(part.name, self._call(part), **_options(part))

    def _sleep(self, part: Sleep) -> Any:
        return self._wf.sleep(part.name, part.seconds)

    def _state(self, part: State) -> Any:
        before = self._wf.state.get(part.key)
        self._wf.state.set(part.key, part.name)
        return [before, self._wf.state.get(part.key)]

    def _milestone(self, part: Milestone) -> Any:
        return self._wf.milestone(part.name)

    def _call_off(self, part: CallOff) -> Any:
        return self._wf.cancel(part.name)

    def _gate(self, part: Gate) -> Any:
        if part.kind is GateKind.SUSPEND:
            return self._wf.suspend(part.name)
        if part.kind is GateKind.SIGNAL:
            return self._wf.wait_for(part.name, timeout=part.timeout, default="over")
        answer = self._wf.approval(part.name, expiry=part.timeout)
        return answer.status if answer.is_expired else answer.data

    def _map(self, part: Map) -> Any:
        return self._wf.map(
            Call("t", f"{self._workflow}/{part.name}", undone=part.undo is not None),
            range(len(part.acts)),
            name=part.name,
            chunk=part.chunk,
            window=part.window,
            retries=part.retries,
            retry_delay=part.delay,
            compensate=part.compensate,
            **_limits(part),
            **({} if part.dispatch is None else {"dispatch": part.dispatch}),
        )

    def _child(self, part: Child) -> Any:
        if part.detached:
            return self._wf.do(part.name, self._call(part), detached=True, **_child_options(part)).run_id
        return self._wf.do(part.name, self._call(part), **_child_options(part))

    def _gather(self, part: Gather) -> Any:
        handles = [self._submit(member) for member in part.members]
        found = self._wf.gather(*handles, return_exceptions=part.tolerant)
        return [f"failed {one.step}" if isinstance(one, StepFailed) else one for one in found]

    def _spread(self, part: Spread) -> Any:
        handle = self._submit(part.first)
        between = self.walk(part.between)
        return [*between, handle.result()]

    def _submit(self, member: Do | Child) -> Any:
        options = _options(member) if isinstance(member, Do) else _child_options(member)
        return self._wf.submit(member.name, self._call(member), **options)

    def _call(self, part: Do | Child) -> Any:
        key = f"{self._workflow}/{part.name}"
        if isinstance(part, Child):
            return Call(f"{self._workflow}.{part.name}", key, workflow=True)
        if part.is_function:
            return lambda: self._does(key)
        return Call("t", key, leaves=part.leaves, undone=part.undo is not None)


_WORK: Final[Mapping[type, Any]] = {
    Do: Walk._do,
    Sleep: Walk._sleep,
    State: Walk._state,
    Milestone: Walk._milestone,
    CallOff: Walk._call_off,
    Gate: Walk._gate,
    Map: Walk._map,
    Child: Walk._child,
    Gather: Walk._gather,
    Spread: Walk._spread,
}


def _options(part: Do) -> dict[str, Any]:
    options: dict[str, Any] = {"retries": part.retries, "retry_delay": part.delay, "record_start": part.record_start}
    options.update(_limits(part))
    if not part.compensate:
        options["compensate"] = False
    if part.dispatch is not None:
        options["dispatch"] = part.dispatch
    if part.quick is not None:
        options["quick"] = part.quick
    return options


def _limits(part: Do | Map) -> dict[str, Any]:
    given = {"timeout": part.timeout, "heartbeat_timeout": part.heartbeat}
    return {key: seconds for key, seconds in given.items() if seconds is not None}


def _child_options(part: Child) -> dict[str, Any]:
    return {"compensate": part.compensate, **({} if part.timeout is None else {"timeout": part.timeout})}
