"""What an attempt at a node of a graph gets beside its arguments (spec 3.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pikkuflow.domain.graph_names import node_of_step
from pikkuflow.domain.graph_step import RECOVERS, NodeStep, RecoveringFrom
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.run import Run
from pikkuflow.engine.runtime import Runtime
from pikkuflow.replay.recorder import recorded_failure

__all__ = ["node_step"]


def node_step(rt: Runtime, run: Run, step: StepName, options: Mapping[str, Any]) -> NodeStep | None:
    """The node that the attempt works; None in a workflow function.

    A worker that knows the task and not the workflow cannot tell: there a choice is recorded, and counts if it is a node's.
    """
    definition = rt.registry.find(run.workflow)
    if definition is not None and definition.graph is None:
        return None
    recovers = options.get(RECOVERS)
    return NodeStep(node=node_of_step(step), ask_recovering=lambda: _recovering(rt, run.id, recovers))


def _recovering(rt: Runtime, run_id: RunId, recovers: str | None) -> RecoveringFrom | None:
    row = None if recovers is None else rt.store.get_step(run_id, StepName(recovers))
    if row is None:
        return None
    failure = recorded_failure(row)
    return RecoveringFrom(node=node_of_step(row.name), step=row.name, error=failure.message, error_type=failure.type)
