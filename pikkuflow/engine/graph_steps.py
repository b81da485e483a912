"""What an attempt at a node of a graph gets beside its arguments (spec 3.5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pikkuflow.domain.graph_names import node_of_step
from pikkuflow.domain.graph_step import RECOVERS, STATE, NodeStep, RecoveringFrom
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.run import Run
from pikkuflow.domain.status import StepStatus
from pikkuflow.engine.runtime import Runtime
from pikkuflow.replay.recorder import recorded_failure

__all__ = ["node_step"]


def node_step(
    rt: Runtime,
    run: Run,
    step: StepName,
    options: Mapping[str, Any],
    *,
    before: Callable[[], object] = lambda: None,
) -> NodeStep | None:
    """The node that the attempt works; None in a workflow function. ``before`` is called before the run's rows are read.

    A worker that knows the task and not the workflow, or not this version of it, cannot tell: there a choice is recorded, and counts if it
    is a node's.
    """
    definition = rt.registry.find(run.workflow)
    if definition is not None and definition.graph is None and run.version in {"", definition.version}:
        return None
    recovers = options.get(RECOVERS)

    def state() -> Mapping[str, Any]:
        before()
        return _state(rt, run.id)

    return NodeStep(node=node_of_step(step), ask_recovering=lambda: _recovering(rt, run.id, recovers), ask_state=state)


def _state(rt: Runtime, run_id: RunId) -> Mapping[str, Any]:
    """What the run's nodes have kept: of several that kept a key, the one that settled last."""
    rows = [row for row in rt.store.list_steps(run_id) if row.status is StepStatus.SUCCEEDED and row.override]
    kept: dict[str, Any] = {}
    for row in sorted(rows, key=lambda row: (row.settled_no or 0, row.seq)):
        kept |= rt.codec.decode(row.override or "{}").get(STATE) or {}
    return kept


def _recovering(rt: Runtime, run_id: RunId, recovers: str | None) -> RecoveringFrom | None:
    row = None if recovers is None else rt.store.get_step(run_id, StepName(recovers))
    if row is None:
        return None
    failure = recorded_failure(row)
    return RecoveringFrom(node=node_of_step(row.name), step=row.name, error=failure.message, error_type=failure.type)
