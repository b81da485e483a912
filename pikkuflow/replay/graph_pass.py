"""One pass over a graph workflow: the planner says what to begin, the engine brings it as far as it gets (spec 3.3).

A graph is walked where a function is called. What is reached is performed by the very machinery that a body's calls go through, so that
retries, leases, fences, gates, children and undoing hold for both. Rows are found by their names: a graph has no order of calls, since
its branches go on as their steps end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from pikkuflow.domain.command import PlannedCall, Reach, Recorded, StepCall, Waiting
from pikkuflow.domain.definition import WorkflowDefinition
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.graph import Graph
from pikkuflow.domain.graph_moves import Begin, Ended, Part, Seen, Trouble
from pikkuflow.domain.graph_names import StepNames
from pikkuflow.domain.graph_plan import Walk
from pikkuflow.domain.graph_step import BRANCH, START_NODE, trigger_of
from pikkuflow.domain.history import History
from pikkuflow.domain.ids import StepName
from pikkuflow.domain.recorded_names import UNDO_SUFFIX
from pikkuflow.domain.status import GATE_CODES, StepKind, StepStatus, SuspendCode
from pikkuflow.domain.step import Step
from pikkuflow.errors import VersionConflict, WorkflowDefinitionError
from pikkuflow.replay.graph_calls import GraphCalls
from pikkuflow.replay.outcome import Completed, Failed, Outcome, ParkedOutcome
from pikkuflow.replay.park import Parked, ParkReason
from pikkuflow.replay.recorder import SURROUNDINGS, Perform, recorded_failure
from pikkuflow.replay.settled import step_error
from pikkuflow.replay.translate import Translate

__all__ = ["walk_graph"]

NODE_FAILED: Final = "GRAPH_NODE_FAILED"
"""The code of a run that failed by one of its nodes (spec 3.6)."""


def walk_graph(
    definition: WorkflowDefinition,
    graph: Graph,
    history: History,
    *,
    perform: Perform,
    translate: Translate,
    decode: Callable[[str], Any],
) -> Outcome:
    """Walk a graph against what is recorded; parameters and what comes out are as for ``replay``.

    A run that was started with another version is suspended with VERSION_CONFLICT: nothing is guessed.
    """
    run = history.run
    if run.version and run.version != definition.version:
        return ParkedOutcome(_conflict(run.workflow, run.version, definition.version))
    given = decode(run.input)
    walked = _GraphPass(graph, history, perform, decode)
    try:
        return walked.work(trigger_of(given["args"], given["kwargs"]), translate)
    except Parked as parked:
        return ParkedOutcome(parked)
    except SURROUNDINGS:
        raise
    except Exception as error:
        if error is walked.halt:
            raise
        return Failed(error, code=NODE_FAILED)


class _GraphPass:
    def __init__(self, graph: Graph, history: History, perform: Perform, decode: Callable[[str], Any]) -> None:
        self._graph = graph
        self._run = history.run
        self._perform = perform
        self._decode = decode
        self._rows = {row.name: row for row in history.steps if not row.name.endswith(UNDO_SUFFIX)}
        self._next_seq = max((row.seq for row in self._rows.values()), default=-1) + 1
        self._closed: Parked | None = None
        self.halt: BaseException | None = None
        """A recorded result that cannot be read here: it ends the pass, not the run."""

    def work(self, trigger: Any, translate: Translate) -> Outcome:
        """Begin what is to be begun, until something is in flight, the run is complete, or it has failed."""
        self._walk = walk = self._loaded(trigger)
        self._calls = GraphCalls(self._run, walk, translate)
        # What a pass before this one began is reached again: it may be due, lost, or to be sent.
        waiting = sorted(walk.open.values(), key=lambda begin: self._rows[begin.name].seq)
        self._reach([begin for begin in waiting if not begin.node.is_gate])
        gates = [begin for begin in waiting if begin.node.is_gate]
        while True:
            plan = walk.plan()
            if plan.trouble is not None:
                return self._failed(plan.trouble)
            fresh = [begin for begin in plan.begin if not begin.node.is_gate]
            gates += [begin for begin in plan.begin if begin.node.is_gate]
            for begin in plan.begin:
                walk.begin(begin)
            if fresh:
                self._reach(fresh)
            elif gates:
                self._pass_gate(gates.pop(0))
            else:
                return self._end()

    def _loaded(self, trigger: Any) -> Walk:
        names = StepNames(self._graph.nodes)
        for row in self._rows.values():
            if names.read(row.name) is None:
                raise _misfit(self._run.workflow, row)
        start = json.loads(self._run.wire or "{}").get(START_NODE)
        return Walk(self._graph, trigger, map(self._seen, self._rows.values()), start=start, run_id=self._run.id)

    def _end(self) -> Outcome:
        if any(not begin.node.is_gate for begin in self._walk.open.values()):
            raise Parked(ParkReason.WAITING)
        if self._closed is not None:
            raise self._closed
        return Completed(self._walk.output())

    def _failed(self, trouble: Trouble) -> Outcome:
        if trouble.failure is None:
            return Failed(WorkflowDefinitionError(_sentence(trouble)), code=NODE_FAILED)
        error = step_error(self._run.id, trouble.step, trouble.failure, trouble.attempts)
        return Failed(error, code=NODE_FAILED)

    # --- reaching -----------------------------------------------------------------------------------------------------
    def _reach(self, begins: Sequence[Begin]) -> None:
        """Members of a parallel ``for_each`` share their end; everything else that is in flight at a time goes its own way."""
        groups: dict[StepName | None, list[Begin]] = {}
        for begin in begins:
            joined = begin.group if begin.part is Part.ITEM and not begin.node.is_sequential else None
            groups.setdefault(joined, []).append(begin)
        # Members begin first: what shares nothing may give others, in place, another list than the one that they were planned with.
        for group in sorted(groups, key=lambda group: group is None):
            members = groups[group]
            is_joined = group is not None and len(members) > 1
            self._ask(members, together=len(self._walk.open) > 1, joined=is_joined)

    def _pass_gate(self, begin: Begin) -> None:
        """A closed gate ends the pass only when everything else has been reached, the other gates too."""
        try:
            self._ask([begin], together=False, joined=False)
        except Parked as parked:
            if parked.code not in GATE_CODES:
                raise
            self._closed = self._closed or parked

    def _ask(self, begins: Sequence[Begin], *, together: bool, joined: bool) -> None:
        planned = tuple([self._planned(begin) for begin in begins])
        answers = self._answers(begins, Reach(calls=planned, together=together, joined=joined))
        for begin, answer in zip(begins, answers, strict=True):
            if isinstance(answer, Recorded):
                value = answer.value
                self._walk.end(begin.name, self._ended(begin, answer, lambda value=value: value))  # type: ignore[misc]

    def _answers(self, begins: Sequence[Begin], reach: Reach) -> tuple[Recorded | Waiting, ...]:
        try:
            return self._perform(reach)
        except (TypeError, ValueError) as error:
            # A task's own check of its arguments says nothing of the node.
            which = " or ".join(dict.fromkeys(repr(begin.node.id) for begin in begins))
            raise WorkflowDefinitionError(f"Node {which} cannot be called: {error}") from error

    def _planned(self, begin: Begin) -> PlannedCall:
        row = self._rows.get(begin.name)
        call = self._calls.again(begin) if row is not None else self._calls.of(begin)
        if row is not None:
            _check_fits(self._run.workflow, row, call)
            return PlannedCall(call=call, name=begin.name, seq=row.seq, from_step=row.from_step, row=row)
        seq = self._next_seq
        self._next_seq += 1
        return PlannedCall(call=call, name=begin.name, seq=seq, from_step=begin.after, row=None)

    # --- what is recorded ---------------------------------------------------------------------------------------------
    def _seen(self, row: Step) -> Seen:
        ended = None
        if row.is_settled:
            ended = Ended(
                read=lambda: self._read(row.result),
                failure=None if row.status is StepStatus.SUCCEEDED else recorded_failure(row),
                attempts=row.attempt,
                branch=self._branch(row),
            )
        return Seen(name=row.name, after=row.from_step, begun=row.begun_no, ended=ended, ended_no=row.settled_no or 0)

    def _ended(self, begin: Begin, answer: Recorded, read: Callable[[], Any]) -> Ended:
        branch = answer.branch
        if begin.node.kind is StepKind.APPROVAL and answer.failure is None:
            branch = answer.value["status"]
        return Ended(read=read, failure=answer.failure, attempts=answer.attempts, branch=branch)

    def _branch(self, row: Step) -> str | None:
        if row.status is not StepStatus.SUCCEEDED:
            return None
        if row.kind is StepKind.APPROVAL:
            return str(self._read(row.result)["status"])
        chosen = None if row.override is None else self._read(row.override).get(BRANCH)
        return None if chosen is None else str(chosen)

    def _read(self, text: str | None) -> Any:
        if text is None:
            return None
        try:
            return self._decode(text)
        except BaseException as error:
            self.halt = error
            raise


def _sentence(trouble: Trouble) -> str:
    return trouble.why if trouble.why.startswith("Node ") else f"Node {trouble.node!r} {trouble.why}."


def _check_fits(workflow: str, row: Step, call: StepCall) -> None:
    if row.kind is not call.kind:
        raise _misfit(workflow, row)


def _misfit(workflow: str, row: Step) -> Parked:
    message = f"Graph {workflow!r} does not fit what run {row.run_id} recorded: it has no node for step {row.name!r} ({row.kind})."
    failure = Failure(type=VersionConflict.__name__, message=message, code=VersionConflict.code)
    return Parked(ParkReason.SUSPENDED, code=SuspendCode.VERSION_CONFLICT, failure=failure)


def _conflict(workflow: str, started: str, now: str) -> Parked:
    message = f"Graph {workflow!r} is now version {now}; the run was started with {started}."
    failure = Failure(type=VersionConflict.__name__, message=message, code=VersionConflict.code)
    return Parked(ParkReason.SUSPENDED, code=SuspendCode.VERSION_CONFLICT, failure=failure)
