"""Drawing workflows and runs: which graph a run is on, and its picture in the form that was asked for (issue E)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pikkuflow.domain.definition import WorkflowDefinition
from pikkuflow.domain.graph import Graph
from pikkuflow.domain.graph_picture import picture_of_graph, picture_of_graph_run
from pikkuflow.domain.graph_read import graph_from_json
from pikkuflow.domain.picture import Picture
from pikkuflow.domain.picture_dot import dot_of
from pikkuflow.domain.picture_mermaid import mermaid_of
from pikkuflow.domain.picture_text import text_of
from pikkuflow.domain.run import Run
from pikkuflow.domain.run_picture import picture_of_plan, picture_of_run
from pikkuflow.domain.version import VersionKind
from pikkuflow.engine.runtime import Runtime
from pikkuflow.errors import SettingError, WorkflowDefinitionError

__all__ = ["FORMS", "drawn", "picture_of_stored_run", "picture_of_workflow"]

FORMS: Final[Mapping[str, Callable[[Picture], str]]] = {"mermaid": mermaid_of, "dot": dot_of, "text": text_of}
"""The forms that need nothing beside Python."""


def drawn(picture: Picture, form: str) -> str:
    """The picture as text of that form. Raises ``SettingError`` for a form that is none of ``FORMS``."""
    if form not in FORMS:
        raise SettingError(
            f"There is no picture in the form {form!r}.",
            hint=f"Ask for one of {', '.join(FORMS)}; `flow graph --format svg` draws with Graphviz.",
        )
    return FORMS[form](picture)


def picture_of_workflow(definition: WorkflowDefinition) -> Picture:
    """The picture of a graph, or of what a function plans.

    Raises ``WorkflowDefinitionError`` for a function without ``planned_steps``: its steps are known when it has run.
    """
    if definition.graph is not None:
        return picture_of_graph(definition.graph)
    if definition.planned_steps is None:
        raise WorkflowDefinitionError(
            f"Workflow {definition.name!r} is a function without planned_steps: there is nothing to draw before it runs.",
            hint="Draw one of its runs: celery -A proj flow graph RUN",
        )
    return picture_of_plan(definition.name, definition.planned_steps, deterministic=definition.deterministic)


def picture_of_stored_run(rt: Runtime, run: Run) -> Picture:
    """The picture of a run: on the graph that it was started with, or, for a function, of what it recorded.

    A graph run whose graph is neither here nor stored is drawn as what it recorded. Raises ``StoreUnavailable``, and
    ``WorkflowDefinitionError`` when another release stored the graph in a form that this one cannot read.
    """
    steps = rt.store.list_steps(run.id)
    graph = _graph_of(rt, run)
    return picture_of_run(run, steps) if graph is None else picture_of_graph_run(graph, run, steps)


def _graph_of(rt: Runtime, run: Run) -> Graph | None:
    definition = rt.registry.find(run.workflow)
    if definition is not None and run.version in {"", definition.version}:
        return definition.graph
    stored = rt.store.get_version(run.workflow, run.version)
    if stored is None or stored.kind is not VersionKind.GRAPH:
        return None
    return graph_from_json(run.workflow, stored.definition)
