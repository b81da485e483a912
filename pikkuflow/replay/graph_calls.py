"""What a node of a graph asks of the engine: the durable call that it stands for (spec 3.5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from pikkuflow.domain.command import StepCall
from pikkuflow.domain.duration import seconds_of
from pikkuflow.domain.gate import Policy, Terms, approvers_of
from pikkuflow.domain.graph import GraphNode
from pikkuflow.domain.graph_input import ABSENT, CALL
from pikkuflow.domain.graph_moves import Begin, Part
from pikkuflow.domain.graph_names import reason_of
from pikkuflow.domain.graph_plan import Walk
from pikkuflow.domain.run import Run
from pikkuflow.domain.status import StepKind
from pikkuflow.errors import WorkflowDefinitionError
from pikkuflow.replay.options import StepOptions, step_options
from pikkuflow.replay.settled import step_error
from pikkuflow.replay.translate import Translate

__all__ = ["GraphCalls"]

_OPTIONS: Final = (
    *("retries", "retry_delay", "dispatch", "record_start", "compensate", "timeout", "heartbeat_timeout"),
)
"""Fields of a node that are options of its step."""


class GraphCalls:
    """Makes the calls of one pass."""

    def __init__(self, run: Run, walk: Walk, translate: Translate) -> None:
        self._run = run
        self._walk = walk
        self._translate = translate
        self._options: dict[str, StepOptions] = {}

    def of(self, begin: Begin) -> StepCall:
        """The call of a step that is begun now.

        Raises ``DurationError`` when a sleep's reference gives no duration, and what translating a task raises.
        """
        if begin.part is Part.LIST:
            return self._list(begin)
        node = begin.node
        if node.kind is StepKind.TASK:
            args, kwargs = self._arguments(begin)
            call = self._task(begin, args, kwargs)
        else:
            call = self._own(begin)
        recovers = self._walk.failure_before(begin)
        return call if recovers is None else replace(call, recovers=recovers)

    def again(self, begin: Begin) -> StepCall:
        """The call of a step that has its row: what it is worked with is there."""
        if begin.part is Part.LIST:
            return self._list(begin)
        if begin.node.kind is StepKind.TASK:
            return self._task(begin, (), {})
        return self._own(begin, is_new=False)

    def _task(self, begin: Begin, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> StepCall:
        node = begin.node
        signature = {
            "task": node.what,
            "args": args,
            "kwargs": kwargs,
            "options": dict(node.fields.get("options") or {}),
            "immutable": True,
        }
        call = self._translate(signature, begin.name, self._options_of(node))
        if call.heartbeat_seconds is not None and call.kind is StepKind.CHILD:
            raise WorkflowDefinitionError(f"Node {node.id!r} is a run of its own and has no heartbeat: its steps have.")
        return call if begin.group is None else replace(call, group=begin.group)

    def _options_of(self, node: GraphNode) -> StepOptions:
        known = self._options.get(node.id)
        if known is None:
            said = {name: node.fields[name] for name in _OPTIONS if node.fields.get(name) is not None}
            known = self._options[node.id] = step_options(said)
        return known

    def _own(self, begin: Begin, *, is_new: bool = True) -> StepCall:
        node = begin.node
        if node.kind is StepKind.SLEEP:
            seconds = self._seconds(begin) if is_new else None
            return StepCall(name=begin.name, kind=node.kind, seconds=seconds)
        if node.kind is StepKind.MILESTONE:
            return StepCall(name=begin.name, kind=node.kind, function=_nothing)
        reason = reason_of(node, begin.ordinal)
        limit = node.fields.get("expiry" if node.kind is StepKind.APPROVAL else "timeout")
        seconds = None if limit is None else seconds_of(limit, what=f"time of node {node.id!r}")
        terms = self._terms(node) if node.kind is StepKind.APPROVAL else None
        return StepCall(name=begin.name, kind=node.kind, task=reason, seconds=seconds, retries=0, terms=terms)

    def _terms(self, node: GraphNode) -> Terms:
        approvers = approvers_of(node.fields.get("approvers", "any"))
        policy = Policy(approvers=approvers, scope=node.fields.get("approver_scope"))
        return Terms(policy=policy, schema=self._translate.schema(node.fields.get("schema")))

    def _seconds(self, begin: Begin) -> float:
        duration = self._walk.taken(begin, begin.node.fields["sleep"])
        return seconds_of("" if duration is ABSENT else duration, what=f"duration of node {begin.node.id!r}")

    def _list(self, begin: Begin) -> StepCall:
        """The results of a ``for_each``, recorded as its node's own; or its failure, by the first item that failed."""
        return StepCall(
            name=begin.name, kind=StepKind.FUNCTION, function=self._results(begin), no_retry_on=(Exception,)
        )

    def _results(self, begin: Begin) -> Callable[[], Any]:
        members = self._walk.members(begin)
        errors = [
            step_error(self._run.id, name, ended.failure, ended.attempts)
            for name, ended in members
            if ended.failure is not None
        ]
        # Read here: what cannot be read ends the pass, and is no failure of the step.
        values = [] if errors else [ended.read() for _, ended in members]

        def results() -> Any:
            if errors:
                raise errors[0]
            return values

        return results

    # --- arguments ----------------------------------------------------------------------------------------------------
    def _arguments(self, begin: Begin) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """A ``$call`` says which are which. A mapping gives keyword arguments, a list positional ones, anything else one argument.

        Without an input, a member of a ``for_each`` gets its item, and an entry what the run was started with.
        """
        node = begin.node
        if CALL in _keys(node.input):
            said = self._walk.taken(begin, node.input)[CALL]
            return (*said.get("first", ()), *said.get("args", ())), said.get("kwargs", {})
        if node.input is not None:
            return _called_with(self._walk.taken(begin, node.input), is_single="$ref" in _keys(node.input))
        if begin.part is Part.ITEM:
            return (self._walk.item(begin),), {}
        trigger = self._walk.trigger
        if node.id in self._walk.graph.entry and trigger is not None:
            return _called_with(trigger, is_single=not isinstance(trigger, Mapping))
        return (), {}


def _called_with(value: Any, *, is_single: bool) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if value is ABSENT:
        return (), {}
    if not is_single and isinstance(value, Mapping):
        return (), value
    if not is_single and isinstance(value, list):
        return tuple(value), {}
    return (value,), {}


def _keys(value: Any) -> frozenset[str]:
    return frozenset(value) if isinstance(value, Mapping) else frozenset()


def _nothing() -> None:
    """What a milestone does."""
