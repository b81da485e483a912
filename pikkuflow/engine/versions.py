"""Versions of workflows: what this process has is stored, what is stored and still in use is shown (spec 1.4, D17).

And what a starting worker does for runs that met another's code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pikkuflow.domain.act import RunRef
from pikkuflow.domain.definition import WorkflowDefinition
from pikkuflow.domain.run import RunFilter
from pikkuflow.domain.status import MISSING_CODE, RunStatus
from pikkuflow.domain.version import NewVersion, VersionKind, WorkflowVersion
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.send import wake_runs

__all__ = ["described", "store_versions", "versions_of", "wake_for_code"]


def store_versions(rt: Runtime) -> None:
    """Store the version of every workflow that this process knows, unless it is there: one act, once a worker.

    Raises ``StoreUnavailable``.
    """
    found = (rt.registry.find(name) for name in rt.registry.names())
    rt.store.store_version(*(described(definition) for definition in found if definition is not None))


def described(definition: WorkflowDefinition) -> NewVersion:
    """What is stored of it: of a graph the whole, on which its runs can finish (spec 3.7); of a function where it is and what it plans."""
    if definition.graph is not None:
        return NewVersion(
            workflow=definition.name,
            version=definition.version,
            kind=VersionKind.GRAPH,
            definition=definition.graph.to_json(),
        )
    document: dict[str, Any] = {"source": definition.source, "deterministic": definition.deterministic}
    if definition.planned_steps is not None:
        document["plannedSteps"] = list(definition.planned_steps)
    return NewVersion(
        workflow=definition.name,
        version=definition.version,
        kind=VersionKind.FUNCTION,
        definition=json.dumps(document),
    )


def wake_for_code(rt: Runtime) -> int:
    """Try the runs at once that are suspended for code which was not there, since this worker may have it (D17): called when it starts.

    A page of each code at most (``sweep_page``), the newest first, and only runs whose workflow is known here; how many were woken.
    The others, and those that still do not fit, are tried again by their backoff, which this does not disturb.

    Raises ``StoreUnavailable``.
    """
    waiting = [RunFilter(status=RunStatus.SUSPENDED, code=code) for code in sorted(MISSING_CODE)]
    met = [run for where in waiting for run in rt.store.list_runs(where, limit=rt.settings.sweep_page)]
    known = [RunRef(id=run.id, workflow=run.workflow) for run in met if rt.registry.find(run.workflow) is not None]
    wake_runs(rt, known)
    return len(known)


def versions_of(rt: Runtime, workflow: str) -> tuple[WorkflowVersion, ...]:
    """The workflow's versions: stored ones in the order in which they came, then those that only runs or this process know.

    Raises ``WorkflowNotFound`` when neither the store nor this process has heard of the workflow.
    """
    versions = tuple(_versions_of(rt, workflow))
    if not versions:
        # It raises: what is registered is among them.
        rt.registry.get(workflow)
    return versions


def _versions_of(rt: Runtime, workflow: str) -> Iterator[WorkflowVersion]:
    stored = {one.version: one for one in rt.store.list_versions(workflow)}
    runs = {one.version: one for one in rt.store.count_open_runs(workflow)}
    definition = rt.registry.find(workflow)
    here = None if definition is None else definition.version
    known = [*stored, *runs, *([] if here is None else [here])]
    for version in dict.fromkeys(known):
        kept, used = stored.get(version), runs.get(version)
        yield WorkflowVersion(
            version=version,
            kind=None if kept is None else kept.kind,
            stored_at=None if kept is None else kept.created_at,
            open_runs=0 if used is None else used.count,
            oldest_at=None if used is None else used.oldest_at,
            here=version == here,
        )
