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
from pikkuflow.domain.graph_input import ref, template
from pikkuflow.domain.graph_moves import Ended
from pikkuflow.domain.graph_names import StepNames
from pikkuflow.domain.graph_read import graph_of
from pikkuflow.domain.status import StepKind, StepStatus
from tests.naive_walk import Found, NaiveWalk
from tests.simulation.expect import Expected
from tests.simulation.ledger import Violation
from tests.simulation.plan import Gate, GateKind, Map, Milestone, Node, Sleep

__all__ = ["ITEMS", "choices_of", "expect_graph", "graph_of_nodes", "is_list"]

ITEMS = 6
"""A graph run is started with lists of numbers of every length up to this: a node's ``for_each`` is one of them."""

_INVARIANT = "a graph run begins what its rows lead to"


def graph_of_nodes(workflow: str, nodes: Sequence[Node]) -> Graph:
    """The graph of these nodes; it begins with the first."""
    written = {node.part.name: _fields(workflow, node) for node in nodes}
    return graph_of(workflow, nodes=written, entry=nodes[0].part.name)


def choices_of(workflow: str, nodes: Sequence[Node]) -> dict[str, tuple[str | None, ...]]:
    """The branches that each node chooses, by its key, one for each time that it is begun."""
    return {f"{workflow}/{node.part.name}": node.chooses for node in nodes if node.chooses}


def _fields(workflow: str, node: Node) -> dict[str, Any]:
    fields = _own_fields(f"{workflow}/{node.part.name}", node)
    following: Any = {key: list(targets) for key, targets in node.branches} or list(node.next)
    if following:
        fields["next"] = following
    if node.ignores or node.recover:
        fields["recover"] = "ignore" if node.ignores else list(node.recover)
    return fields


def _own_fields(key: str, node: Node) -> dict[str, Any]:
    part = node.part
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
            "for_each": ref("trigger", str(len(part.acts))),
            "mode": "sequential" if part.window == 1 else "parallel",
            "input": [template(f"{key}[$0]", [ref("$item")]), *reads],
            "options": {"undone": part.undo is not None},
        }
    return fields | {
        "input": [key, *reads],
        "record_start": part.record_start,
        "options": {"leaves": part.leaves, "undone": part.undo is not None},
    }


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
    run: RunRow, graph: Graph, rows: Mapping[Any, StepRow], decode: Callable[[str], Any], *, is_cut: bool
) -> Expected:
    """What the run must have come to, given how its steps ended. Raises ``Violation`` for a step that nothing leads to.

    ``is_cut``: it was stopped from outside, and may not have come as far as its steps would let it.
    """
    forward = [row for row in rows.values() if row.kind is not StepKind.COMPENSATION]
    naive = NaiveWalk(graph, decode(run.input)["args"][0])
    names = StepNames(graph.nodes)
    begins = [(row.begun_no, 1, row.seq, row) for row in forward]
    ends = [(row.settled_no or 0, 0, row.begun_no, row) for row in forward if row.status in _ENDED]
    for _, is_begin, _, row in sorted([*begins, *ends], key=lambda event: event[:3]):
        if is_begin:
            naive.begin(_begun(run, naive, names, row))
        else:
            naive.end(row.name, _ended(row, decode))
    steps = tuple(row.name for row in forward)
    left = naive.plan()
    if isinstance(left, str):
        return Expected(steps, {}, failed_step=left)
    if not is_cut and (left or naive.open):
        raise Violation(_INVARIANT, f"{run.id} is {run.status}, left are {[one.name for one in left]} {[*naive.open]}")
    return Expected(steps, {})


_ENDED = {StepStatus.SUCCEEDED, StepStatus.FAILED}


def _begun(run: RunRow, naive: NaiveWalk, names: StepNames, row: StepRow) -> Found:
    """What the row is of what may be begun now. What was planned with it may have ended meanwhile, and then leads to it as well."""
    step, following = names.read(row.name), naive.following()
    found = [] if step is None or isinstance(following, str) else following
    for one in found:
        if one.name == row.name and row.from_step in one.sources:
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
