"""Generated workflows as bodies, and what they must come to given what their steps came to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from pikkuflow.adapters.schemas import schema_of
from pikkuflow.domain.command import StepCall
from pikkuflow.domain.gate import Schema, gate_name
from pikkuflow.domain.status import StepKind
from pikkuflow.errors import StepFailed
from pikkuflow.replay.context import Workflow
from pikkuflow.replay.gates import Approval
from pikkuflow.replay.options import StepOptions
from tests.simulation.plan import Act, Child, Do, Gate, GateKind, Gather, Map, Part, Sleep, Spread, State

__all__ = ["Boom", "Call", "Expected", "Translator", "Walk", "acts_of", "body_of", "children_of", "expect", "value_of"]


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

    def __call__(self) -> Any:
        """Only there so that a type checker takes it for something that can be worked."""
        raise AssertionError("calls are worked by the runner")


class Translator:
    """Reads calls and functions."""

    def __call__(self, what: Any, name: str | None, options: StepOptions) -> StepCall:
        """The call of what the body wrote."""
        if not isinstance(what, Call):
            return StepCall(
                name=name or "function",
                kind=StepKind.FUNCTION,
                function=what,
                retries=options.retries,
                retry_delay=options.retry_delay,
                record_start=options.record_start,
                quick=options.quick,
            )
        if what.workflow:
            return StepCall(name=name or what.task, kind=StepKind.CHILD, task=what.task)
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
        )

    def schema(self, schema: Any) -> Schema:
        """As the application has it."""
        return schema_of(schema)

    def member(self, task: Any, item: Any) -> Any:
        """The call of one member of a map."""
        return Call(task.task, f"{task.key}[{item}]")


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
            found[f"{workflow}/{part.name}"] = part.act
        elif isinstance(part, Map):
            found.update({f"{workflow}/{part.name}[{index}]": act for index, act in enumerate(part.acts)})
        elif isinstance(part, Gather):
            found.update(acts_of(workflow, part.members))
        elif isinstance(part, Spread):
            found.update(acts_of(workflow, (part.first, *part.between)))
    return found


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

    def _gate(self, part: Gate) -> Any:
        if part.kind is GateKind.SUSPEND:
            return self._wf.suspend(part.name)
        if part.kind is GateKind.SIGNAL:
            return self._wf.wait_for(part.name, timeout=part.timeout, default="over")
        answer = self._wf.approval(part.name, expiry=part.timeout)
        return answer.status if answer.is_expired else answer.data

    def _map(self, part: Map) -> Any:
        return self._wf.map(
            Call("t", f"{self._workflow}/{part.name}"),
            range(len(part.acts)),
            name=part.name,
            chunk=part.chunk,
            window=part.window,
            retries=part.retries,
            retry_delay=part.delay,
            **({} if part.dispatch is None else {"dispatch": part.dispatch}),
        )

    def _child(self, part: Child) -> Any:
        return self._wf.do(part.name, self._call(part))

    def _gather(self, part: Gather) -> Any:
        handles = [self._submit(member) for member in part.members]
        found = self._wf.gather(*handles, return_exceptions=part.tolerant)
        return [f"failed {one.step}" if isinstance(one, StepFailed) else one for one in found]

    def _spread(self, part: Spread) -> Any:
        handle = self._submit(part.first)
        between = self.walk(part.between)
        return [*between, handle.result()]

    def _submit(self, member: Do | Child) -> Any:
        options = _options(member) if isinstance(member, Do) else {}
        return self._wf.submit(member.name, self._call(member), **options)

    def _call(self, part: Do | Child) -> Any:
        key = f"{self._workflow}/{part.name}"
        if isinstance(part, Child):
            return Call(f"{self._workflow}.{part.name}", key, workflow=True)
        if part.is_function:
            return lambda: self._does(key)
        return Call("t", key, leaves=part.leaves)


_WORK: Final[Mapping[type, Any]] = {
    Do: Walk._do,
    Sleep: Walk._sleep,
    State: Walk._state,
    Gate: Walk._gate,
    Map: Walk._map,
    Child: Walk._child,
    Gather: Walk._gather,
    Spread: Walk._spread,
}


def _options(part: Do) -> dict[str, Any]:
    options: dict[str, Any] = {"retries": part.retries, "retry_delay": part.delay, "record_start": part.record_start}
    if part.dispatch is not None:
        options["dispatch"] = part.dispatch
    if part.quick is not None:
        options["quick"] = part.quick
    return options


# --- what must come out -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Expected:
    """What a run must have come to: its output, or the step whose failure failed it. ``steps`` are those it must have reached."""

    output: Any
    failed_step: str | None
    steps: tuple[str, ...]
    state: Mapping[str, Any]


class _Known:
    """A ``wf`` that only knows what became of each step."""

    def __init__(self, run_id: str, outcome: Callable[[str], Any]) -> None:
        self.run_id = run_id
        self.steps: list[str] = []
        self._outcome = outcome
        self.state = self
        self.values: dict[str, Any] = {}
        self._sets: dict[str, int] = {}

    def do(self, name: str, _what: Any, **_options: Any) -> Any:
        return self._settled(name)

    def submit(self, name: str, _what: Any, **_options: Any) -> Any:
        self.steps.append(name)
        return _KnownHandle(lambda: self._outcome(name))

    def gather(self, *handles: Any, return_exceptions: bool) -> list[Any]:
        found = [_tried(handle.result) for handle in handles]
        return found if return_exceptions else _all(found)

    def map(self, _what: Any, items: Sequence[int], *, name: str, **_options: Any) -> list[Any]:
        names = [f"{name}[{index}]" for index in items]
        self.steps.extend(names)
        return _all([_tried(lambda member=member: self._outcome(member)) for member in names])  # type: ignore[misc]

    def sleep(self, name: str, _seconds: float) -> None:
        self._settled(name)

    def suspend(self, reason: str) -> None:
        self._settled(gate_name(StepKind.SUSPEND, reason))

    def wait_for(self, name: str, *, default: Any, **_options: Any) -> Any:
        try:
            return self._settled(gate_name(StepKind.SIGNAL, name))
        except StepFailed:
            return default

    def approval(self, reason: str, **_options: Any) -> Approval[Any]:
        outcome = self._settled(gate_name(StepKind.APPROVAL, reason))
        return Approval(status=outcome["status"], data=outcome.get("data"))

    def set(self, key: str, value: Any) -> None:
        count = self._sets[key] = self._sets.get(key, 0) + 1
        self._settled(f"__state:{key}" + ("" if count == 1 else f"#{count - 1}"))
        self.values[key] = value

    def get(self, key: str) -> Any:
        return self.values.get(key)

    def _settled(self, name: str) -> Any:
        self.steps.append(name)
        return self._outcome(name)


@dataclass(frozen=True, slots=True)
class _KnownHandle:
    result: Callable[[], Any]


def _tried(outcome: Callable[[], Any]) -> Any:
    try:
        return outcome()
    except StepFailed as error:
        return error


def _all(found: list[Any]) -> list[Any]:
    for one in found:
        if isinstance(one, StepFailed):
            raise one
    return found


def expect(run_id: str, workflow: str, parts: Sequence[Part], outcome: Callable[[str], Any]) -> Expected:
    """What the run must come to when its steps came to what ``outcome`` gives or raises (``StepFailed``)."""
    known = _Known(run_id, outcome)
    try:
        output = Walk(cast("Any", known), workflow, lambda _key: None).walk(parts)
    except StepFailed as error:
        return Expected(None, error.step, tuple(known.steps), known.values)
    return Expected(output, None, tuple(known.steps), known.values)
