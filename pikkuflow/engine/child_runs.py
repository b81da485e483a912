"""Start and work child runs (D1, spec 2.4)."""

from __future__ import annotations

import json
from typing import Any

from pikkuflow.domain.act import RunRef
from pikkuflow.domain.canvas import canvas_definition
from pikkuflow.domain.command import PlannedCall, Recorded, StepCall
from pikkuflow.domain.definition import WorkflowDefinition
from pikkuflow.domain.ids import RunId, StepName, invocation_id
from pikkuflow.domain.run import NewRun, ParentStep, Run
from pikkuflow.domain.step import Step
from pikkuflow.engine.open_pass import OpenPass
from pikkuflow.engine.own_version import store_graph
from pikkuflow.engine.send import wake_runs
from pikkuflow.engine.step_rows import child_step

__all__ = ["begin_child", "begin_detached", "child_of", "work_child"]


def begin_child(p: OpenPass, planned: PlannedCall, child: NewRun) -> None:
    """Insert the child run and the parent's row with one transaction, then wake the child."""
    p.start_child(child_step(p, planned, child.id), child)
    if p.works_child is None:
        wake_runs(p.rt, [RunRef(id=child.id, workflow=child.workflow)])


def begin_detached(p: OpenPass, planned: PlannedCall, child: NewRun) -> Recorded:
    """Insert a child run that outlives its parent; the parent's row has succeeded with the child's id."""
    result = p.rt.codec.encode(child.id, what=f"the run of step {planned.name!r}")
    p.start_child(child_step(p, planned, child.id), child, result=result)
    if p.works_child is None:
        wake_runs(p.rt, [RunRef(id=child.id, workflow=child.workflow)])
    else:
        works_child = p.works_child
        p.ask(lambda: works_child(child.id))
    return Recorded(value=child.id)


def work_child(p: OpenPass, name: StepName, child: RunId) -> Step | None:
    """Work the child here when this pass belongs to an inline run. The parent's row once it is settled, else None."""
    if p.works_child is None:
        return None
    works_child = p.works_child
    p.ask(lambda: works_child(child))
    row: Step | None = p.ask(lambda: p.rt.store.get_step(p.run.id, name))
    if row is None or not row.is_settled:
        return None
    p.goes_on_after(row)
    return row


def child_of(p: OpenPass, planned: PlannedCall) -> NewRun:
    """The child run of a call. Its id is the step's invocation id, so starting it twice is starting it once.

    Raises ``PayloadError`` when its arguments cannot be stored, and ``WorkflowDefinitionError`` for a canvas that cannot be durable.
    """
    call, run = planned.call, p.run
    workflow = call.task or call.name
    definition = p.rt.registry.find(workflow)
    payload = {"args": list(call.args), "kwargs": dict(call.kwargs)}
    if call.canvas is not None:
        canvas = call.canvas()
        definition = child = canvas_definition(canvas.graph)
        payload = {"args": [canvas.trigger], "kwargs": {}}
        p.ask(lambda: store_graph(p.rt, child))
    plan = definition.planned_steps if definition is not None else None
    return NewRun(
        id=RunId(invocation_id(run.id, planned.name)),
        workflow=workflow,
        # A child whose code lives elsewhere gets its version from the first worker that knows it: none is recorded here.
        version=definition.version if definition is not None else "",
        input=p.rt.codec.encode(payload, what=f"the arguments of step {planned.name!r}"),
        inline=run.inline,
        owner=run.owner,
        wire=_wire_of(run, planned.name),
        planned_steps=None if plan is None else json.dumps(list(plan)),
        deterministic=definition.deterministic if definition is not None else False,
        timeout_seconds=_timeout_of(call, definition),
        parent=None if call.detached else ParentStep(run_id=run.id, step=planned.name),
    )


def _timeout_of(call: StepCall, definition: WorkflowDefinition | None) -> float | None:
    if call.timeout_seconds is not None:
        return call.timeout_seconds
    return None if definition is None else definition.timeout_seconds


def _wire_of(run: Run, step: StepName) -> str:
    """Where the child comes from (spec 1.1): the parent's owner, none invented when it has none (T5.6)."""
    parent: dict[str, Any] = json.loads(run.wire or "{}")
    wire = {"type": "workflow", "parentRunId": run.id, "parentStepId": step}
    if run.owner is not None:
        wire["pikkuUserId"] = run.owner
    if "traceparent" in parent:
        wire["traceparent"] = parent["traceparent"]
    return json.dumps(wire)
