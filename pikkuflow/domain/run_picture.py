"""The picture of a run of a workflow function: what it recorded, in order; and of a plan, before there is a run (issue E)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pikkuflow.domain.ids import StepName
from pikkuflow.domain.picture import Picture, PictureEdge, PictureNode, counted, foremost, shown_step, undone_by
from pikkuflow.domain.recorded_names import UNDO_SUFFIX
from pikkuflow.domain.run import Run
from pikkuflow.domain.status import StepKind
from pikkuflow.domain.step import Step

__all__ = ["picture_of_plan", "picture_of_run"]


def picture_of_plan(workflow: str, planned: Sequence[str], *, deterministic: bool) -> Picture:
    """What a workflow function plans: a line when it always takes just these steps, else only their order."""
    nodes = tuple(PictureNode(id=name, title=shown_step(name)) for name in planned)
    edges = tuple(PictureEdge(source=one.id, target=other.id) for one, other in pairwise(nodes))
    return Picture(
        title=workflow,
        nodes=nodes,
        edges=edges if deterministic else (),
        entry=tuple(planned[:1]) if deterministic else (),
    )


@dataclass(slots=True)
class _Stop:
    """Rows that are one node: a step, or all members of a map."""

    id: str
    rows: list[Step]
    together: int | None = None

    @property
    def first(self) -> Step:
        return self.rows[0]

    @property
    def settled_no(self) -> int | None:
        """Its place in the order of the run once all of it has settled."""
        ends = [row.settled_no for row in self.rows]
        return None if None in ends else max(end or 0 for end in ends)


def picture_of_run(run: Run, steps: Sequence[Step]) -> Picture:
    """The steps of a run in the order in which its body called them.

    The members of a map are one node, with their count. Steps that were submitted together stand beside each other; what came next is
    drawn after those of them that had settled when it began. A child run is named, and compensations hang on what they undo.
    """
    forward = sorted((row for row in steps if not row.name.endswith(UNDO_SUFFIX)), key=lambda row: row.seq)
    stops = _stops(forward)
    at = {row.name: stop for stop in stops.values() for row in stop.rows}
    edges = list(_edges(list(stops.values()), at))
    nodes: list[PictureNode] = []
    undos = _undos(steps, at)
    for stop in stops.values():
        shown = _node(stop)
        nodes.append(shown)
        undo, led = undone_by(shown, undos.get(stop.id, ()))
        nodes += undo
        edges += led
    begins = {stop.id for stop in stops.values() if stop.first.from_step is None}
    return Picture(
        title=f"{run.workflow} run {run.id}",
        nodes=tuple(nodes),
        edges=tuple(edges),
        entry=tuple(stop.id for stop in stops.values() if stop.id in begins),
        status=run.status,
    )


def _stops(forward: Iterable[Step]) -> dict[str, _Stop]:
    stops: dict[str, _Stop] = {}
    before: _Stop | None = None
    count = 0
    for row in forward:
        # A group has the name of a map, which a single step may have as well.
        key = row.name if row.group is None else f"{row.group}[]"
        known = stops.get(key)
        if known is not None:
            known.rows.append(row)
            continue
        stop = stops[key] = _Stop(id=key, rows=[row])
        if before is not None and before.first.from_step == row.from_step:
            if before.together is None:
                count += 1
                before.together = count
            stop.together = before.together
        before = stop
    return stops


def _edges(stops: Sequence[_Stop], at: dict[StepName, _Stop]) -> Iterable[PictureEdge]:
    together: dict[int, list[_Stop]] = {}
    for stop in stops:
        if stop.together is not None:
            together.setdefault(stop.together, []).append(stop)
    for stop in stops:
        source = None if stop.first.from_step is None else at.get(stop.first.from_step)
        if source is None:
            continue
        beside = [] if source.together is None else together[source.together]
        for one in [source, *(other for other in beside if other is not source and _is_before(other, stop))]:
            yield PictureEdge(source=one.id, target=stop.id, is_walked=True)


def _is_before(one: _Stop, other: _Stop) -> bool:
    return one.settled_no is not None and one.settled_no < other.first.begun_no


def _node(stop: _Stop) -> PictureNode:
    row = stop.first
    is_map = row.group is not None
    return PictureNode(
        id=stop.id,
        title=row.group if row.group is not None else shown_step(row.name),
        kind=row.kind,
        status=foremost(stop.rows).value,
        notes=(counted(stop.rows, "members"),) if is_map else tuple(_notes(row)),
        together=stop.together,
    )


def _notes(row: Step) -> Iterable[str]:
    if row.kind is StepKind.TASK and row.task != row.name:
        yield f"task {row.task}"
    elif row.kind is StepKind.CHILD:
        yield f"workflow {row.task}"
    elif row.kind not in {StepKind.TASK, StepKind.FUNCTION}:
        yield row.kind.value
    if row.attempt > 1:
        yield f"attempt {row.attempt}"
    if row.child_run_id is not None:
        yield f"run {row.child_run_id}"


def _undos(steps: Iterable[Step], at: dict[StepName, _Stop]) -> dict[str, list[Step]]:
    undos: dict[str, list[Step]] = {}
    for row in steps:
        if row.name.endswith(UNDO_SUFFIX):
            stop = at.get(StepName(row.name.removesuffix(UNDO_SUFFIX)))
            if stop is not None:
                undos.setdefault(stop.id, []).append(row)
    return undos
