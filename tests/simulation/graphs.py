"""Generated graph workflows: how they are written as graphs, what their nodes choose, and how their runs are judged.

The judge is a naive interpreter (``tests.naive_walk``) that is told what the rows say, in the order of the run: it must have begun each of
them just then, and nothing else may be left to begin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pikkuflow.adapters.memory.tables import RunRow, StepRow
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.graph import Graph
from pikkuflow.domain.graph_input import ref
from pikkuflow.domain.graph_moves import Ended
from pikkuflow.domain.graph_read import graph_of
from pikkuflow.domain.status import StepKind, StepStatus
from tests.naive_walk import Found, NaiveWalk
from tests.simulation.expect import Expected
from tests.simulation.ledger import Violation
from tests.simulation.plan import Child, Gate, GateKind, Map, Milestone, Node, Sleep, Start

__all__ = ["ANY", "ITEMS", "choices_of", "ended_waiting", "expect_graph", "graph_of_nodes", "graphs_in", "is_list"]

ITEMS = 6
"""A graph run is started with lists of numbers of every length up to this: a node's ``for_each`` is one of them."""

ANY = "[*]"
"""Ends the key of an item of a list: which one it is, its step says."""

_INVARIANT = "a graph run begins what its rows lead to"


def graph_of_nodes(workflow: str, nodes: Sequence[Node]) -> Graph:
    """The graph of these nodes; it begins with the first."""
    written = {node.part.name: _fields(workflow, node) for node in nodes}
    return graph_of(workflow, nodes=written, entry=nodes[0].part.name)


def choices_of(workflow: str, nodes: Sequence[Node]) -> dict[str, tuple[str | None, ...]]:
    """The branches that each node chooses, by its key, one for each time that it is begun."""
    return {f"{workflow}/{node.part.name}": node.chooses for node in nodes if node.chooses}


def graphs_in(workflow: str, one: Start | Child) -> dict[str, tuple[Node, ...]]:
    """The nodes of every graph beneath, by its name, and its own if it is one."""
    found = {workflow: one.nodes} if one.nodes else {}
    for node in one.nodes:
        if isinstance(node.part, Child):
            found.update(graphs_in(f"{workflow}.{node.part.name}", node.part))
    return found


def _fields(workflow: str, node: Node) -> dict[str, Any]:
    fields = _own_fields(f"{workflow}/{node.part.name}", node, workflow)
    following: Any = {key: list(targets) for key, targets in node.branches} or list(node.next)
    if following:
        fields["next"] = following
    if node.ignores or node.recover:
        fields["recover"] = "ignore" if node.ignores else list(node.recover)
    return fields


def _own_fields(key: str, node: Node, workflow: str) -> dict[str, Any]:
    part = node.part
    if isinstance(part, Child):
        return _child_fields(part, f"{workflow}.{part.name}")
    if isinstance(part, Sleep):
        return {"sleep": part.seconds}
    if isinstance(part, Milestone):
        return {"milestone": part.name}
    if isinstance(part, Gate):
        return _gate_fields(part)
    reads = [ref(one) for one in node.reads]
    fields: dict[str, Any] = {"retries": part.retries, "retry_delay": part.delay}
    optional = {"dispatch": part.dispatch, "timeout": part.timeout, "heartbeat_timeout": part.heartbeat}
    fields |= {name: value for name, value in optional.items() if value is not None}
    fields["compensate"] = part.compensate
    fields["task"] = "t"
    if isinstance(part, Map):
        return fields | {
            "for_each": ref("trigger", str(len(part.acts))) if node.items is None else ref(node.items),
            "mode": "sequential" if part.window == 1 else "parallel",
            "input": [f"{key}{ANY}", ref("$item"), *reads],
            "options": {"undone": part.undo is not None},
        }
    return fields | {
        "input": [key, *reads],
        "record_start": part.record_start,
        "options": {"leaves": part.leaves, "undone": part.undo is not None},
    }


def _child_fields(part: Child, workflow: str) -> dict[str, Any]:
    """A graph beneath is started with what its parent was; a function takes nothing."""
    fields = {"task": workflow, "compensate": part.compensate, "options": {"child": True}}
    fields["input"] = [ref("trigger")] if part.nodes else []
    return fields | ({} if part.timeout is None else {"timeout": part.timeout})


def _gate_fields(gate: Gate) -> dict[str, Any]:
    if gate.kind is GateKind.SUSPEND:
        return {"suspend": gate.name}
    limit = "expiry" if gate.kind is GateKind.APPROVAL else "timeout"
    what = "approval" if gate.kind is GateKind.APPROVAL else "wait_for"
    return {what: gate.name} | ({} if gate.timeout is None else {limit: gate.timeout})


def is_list(row: StepRow) -> bool:
    """The row of a graph run is the list of a ``for_each``: nothing else of it is a function."""
    return row.kind is StepKind.FUNCTION


# --- judging ----------------------------------------------------------------------------------------------------------
def expect_graph(
    run: RunRow,
    graph: Graph,
    rows: Mapping[Any, StepRow],
    decode: Callable[[str], Any],
    *,
    is_cut: bool,
    is_quick: bool,
) -> Expected:
    """What the run must have come to, given how its steps ended. Raises ``Violation`` for a step that nothing leads to.

    ``is_cut``: it was stopped from outside, and may not have come as far as its steps would let it. ``is_quick``: what followed a retry may
    have begun before its outcome was written, which a stop then refused.
    """
    forward = [row for row in rows.values() if row.kind is not StepKind.COMPENSATION]
    naive = NaiveWalk(graph, decode(run.input)["args"][0])
    planned: dict[str, list[Found]] = {}
    begins = [(row.begun_no, 0, row.seq, row) for row in forward]
    # A gate that was answered before it was come to ends as it begins, by the same number.
    unworked = [row for row in forward if ended_waiting(row)]
    ends = [
        (row.settled_no or 0, 1, row.begun_no, row) for row in forward if row.status in _ENDED and row not in unworked
    ]
    if is_cut and is_quick:
        ends += [(row.begun_no, 1, row.begun_no, row) for row in unworked]
    for _, is_end, _, row in sorted([*begins, *ends], key=lambda event: event[:3]):
        if is_end:
            if row.name not in naive.open:
                raise Violation(_INVARIANT, f"{run.id} {row.name} ends at {row.settled_no}, begins at {row.begun_no}")
            naive.end(row.name, Ended(read=lambda: None) if row in unworked else _ended(row, decode))
        else:
            _begin(run, naive, planned, row, decode)
    steps, recovered = tuple(row.name for row in forward), _recovered(naive, forward)
    left = naive.plan()
    if isinstance(left, str):
        # What cannot be begun is told by its node.
        failed = left if left in steps else left.partition("#")[0]
        return Expected(steps, {}, failed_step=failed, recovered=recovered)
    if not is_cut and (left or naive.open):
        raise Violation(_INVARIANT, f"{run.id} is {run.status}, left are {[one.name for one in left]} {[*naive.open]}")
    return Expected(steps, {}, recovered=recovered)


def _recovered(naive: NaiveWalk, rows: Sequence[StepRow]) -> frozenset[str]:
    """The failures that were taken over: what should have done so may have been cancelled before it began."""
    begun = {row.group or row.name for row in rows if row.status is not StepStatus.CANCELLED}
    taken = (visit.way.source for visit in naive.visits if visit.way.recovers and visit.name in begun)
    return frozenset(name for name in taken if name is not None)


def ended_waiting(row: StepRow) -> bool:
    """Its next attempt waited when the run was ended or stopped: that failed it, and nothing rests on that."""
    is_retry = row.kind is StepKind.TASK and row.attempt > 1
    return is_retry and row.status is StepStatus.FAILED and row.running_at is None


_ENDED = {StepStatus.SUCCEEDED, StepStatus.FAILED}


def _begin(
    run: RunRow, naive: NaiveWalk, planned: dict[str, list[Found]], row: StepRow, decode: Callable[[str], Any]
) -> None:
    """It is begun, and takes what it refers to as it was then, or when it was planned; an item takes what the first of its list took."""
    found = _begun(run, naive, planned, row)
    node = naive.graph.nodes[found.way.node]
    reads = [one for one in node.input or () if "$ref" in one and one["$ref"] in naive.graph.nodes]
    naive.begin(found)
    if row.kind is not StepKind.TASK or row.args is None:
        return
    began = naive.began(found)
    taken, first = decode(row.args)["args"][1:], f"{began.name}[0]"
    times = [began.begun, *(one.planned + 1 for one in planned.get(first) or planned[row.name])]
    right = [[naive.given(one, node, found.way, time) for one in reads] for time in times]
    if found.index is not None and node.for_each is not None:
        lists = [naive.given(node.for_each.fields(), node, found.way, time) for time in times]
        right = [
            [items[found.index], *reads]
            for items, reads in zip(lists, right, strict=True)
            if found.index < len(items or ())
        ]
    if taken not in right:
        raise Violation("a node takes what it refers to", f"{run.id} {row.name} took {taken}, not {right}")


def _begun(run: RunRow, naive: NaiveWalk, planned: dict[str, list[Found]], row: StepRow) -> Found:
    """What the row is of what may be begun now, or could be before: what was planned with it may have been begun and have ended since.

    That may lead to it as well, or to another begin of its node.
    """
    following = naive.following()
    found = [] if isinstance(following, str) else following
    for one in found:
        planned.setdefault(one.name, []).insert(0, one)
    for one in planned.get(row.name, ()):
        if row.from_step in one.sources and naive.is_open(one):
            return one
    raise Violation(_INVARIANT, f"{run.id} {row.name} after {row.from_step}, of {[one.name for one in found]}")


def _ended(row: StepRow, decode: Callable[[str], Any]) -> Ended:
    if row.status is StepStatus.FAILED:
        return Ended(failure=row.error or Failure(type="Error", message="Unknown error"), attempts=row.attempt)
    value = decode(row.result or "null")
    branch = value["status"] if row.kind is StepKind.APPROVAL else None
    if row.override is not None and row.kind is StepKind.TASK:
        branch = decode(row.override).get("branch")
    return Ended(read=lambda: value, attempts=row.attempt, branch=branch)
