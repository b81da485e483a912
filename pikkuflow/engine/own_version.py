"""The version that a run goes on with when the code has moved on to another one (spec 3.7, D17)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pikkuflow.domain.definition import WorkflowDefinition
from pikkuflow.domain.graph import Graph
from pikkuflow.domain.graph_read import graph_from_json
from pikkuflow.domain.run import NewRun, Run
from pikkuflow.domain.status import SuspendCode
from pikkuflow.domain.version import VersionKind
from pikkuflow.engine.describe_error import failure_of
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.versions import described
from pikkuflow.errors import VersionConflict, WorkflowDefinitionError
from pikkuflow.replay.outcome import Failed
from pikkuflow.replay.park import Parked, ParkReason

__all__ = ["VERSION_NOT_FOUND", "own_version", "store_graph", "store_graphs"]

VERSION_NOT_FOUND: Final = "VERSION_NOT_FOUND"
"""The code of a run whose graph has changed and was never stored."""

_MOST_KEPT: Final = 1_000


def store_graphs(rt: Runtime, runs: Sequence[NewRun]) -> None:
    """Store the graphs that runs are about to be started with, so that these can finish on them: once in a process (T14.1).

    Raises ``StoreUnavailable``.
    """
    for workflow, version in sorted({(run.workflow, run.version) for run in runs} - rt.versions.keys()):
        definition = rt.registry.find(workflow)
        if definition is not None and definition.version == version:
            store_graph(rt, definition)


def store_graph(rt: Runtime, definition: WorkflowDefinition) -> None:
    """Store a graph that runs are about to be started with, unless this process did; a function is left alone.

    Raises ``StoreUnavailable``.
    """
    key = definition.name, definition.version
    if definition.graph is None or key in rt.versions:
        return
    rt.store.store_version(described(definition))
    _keep(rt, key, definition.graph)


def own_version(rt: Runtime, run: Run, definition: WorkflowDefinition) -> WorkflowDefinition | Failed:
    """What the run goes on with: what is loaded, or the graph that it was started with; or how it fails.

    A function's run goes on under changed code unless ``version_policy`` is ``"fail"``: its calls are compared (D17). The store is asked
    only when the versions differ, and once for a version. Parks when what is stored cannot be read by this release.

    Raises ``StoreUnavailable``.
    """
    if not run.version or run.version == definition.version:
        return definition
    stored = _stored(rt, run, definition)
    if isinstance(stored, Graph):
        return replace(definition, graph=stored, version=run.version)
    if stored is None and definition.graph is not None:
        return Failed(_conflict(run, definition, "and that graph was never stored"), code=VERSION_NOT_FOUND)
    if rt.settings.version_policy == "fail":
        return Failed(_conflict(run, definition, 'and is not resumed under pikkuflow_version_policy = "fail"'))
    return definition


def _stored(rt: Runtime, run: Run, definition: WorkflowDefinition) -> Graph | VersionKind | None:
    """Kept in the process: what is stored once stays as it is."""
    key = run.workflow, run.version
    if key in rt.versions:
        return rt.versions[key]
    found = rt.store.get_version(*key)
    if found is not None and found.kind is VersionKind.GRAPH:
        kept: Graph | VersionKind | None = _read(run, found.definition)
    else:
        # A function that was never stored goes on as one: only a graph has to be there before its runs (``store_graphs``).
        kept = VersionKind.FUNCTION if found is not None or definition.graph is None else None
    if kept is not None:
        _keep(rt, key, kept)
    return kept


def _keep(rt: Runtime, key: tuple[str, str], kept: Graph | VersionKind) -> None:
    if len(rt.versions) >= _MOST_KEPT:
        # Canvases have as many versions as shapes; what is forgotten is read again.
        rt.versions.clear()
    rt.versions[key] = kept


def _read(run: Run, text: str) -> Graph:
    try:
        return graph_from_json(run.workflow, text)
    except WorkflowDefinitionError as error:
        # Another release stored it, and may still be at work elsewhere.
        code = SuspendCode.VERSION_CONFLICT
        raise Parked(ParkReason.SUSPENDED, code=code, failure=replace(failure_of(error), code=code)) from None


def _conflict(run: Run, definition: WorkflowDefinition, why: str) -> VersionConflict:
    return VersionConflict(
        f"Workflow {run.workflow!r} is now version {definition.version}; the run was started with {run.version}, {why}.",
        run.workflow,
        run.version,
    )
