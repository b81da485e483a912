"""What an unwind must have come to, from the rows as they are in the end and by the rules of spec 2.12; the planner is not asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from pikkuflow.adapters.memory.tables import RunRow, StepRow, Tables
from pikkuflow.domain.recorded_names import MILESTONE_PREFIX, UNDO_SUFFIX
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus
from tests.simulation.ledger import Violation

__all__ = ["Undone", "undone"]


class _End(Enum):
    DONE = auto()
    RESTED = auto()
    STUCK = auto()
    BLOCKED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """How a run that was undone must have ended. ``stuck`` are the steps that could not be undone."""

    status: RunStatus
    rested_at: str | None = None
    stuck: frozenset[str] = frozenset()


def undone(
    run: RunRow, tables: Tables, decode: Callable[[str], Any], recovered: frozenset[str] = frozenset()
) -> Undone | None:
    """How the run must have ended; None: there was nothing to undo. Raises ``Violation`` when a step is not as the others leave it.

    What was ``recovered`` is done with, and so are its items (spec 3.6).
    """
    rows = tables.steps_of(run.id)
    forward = [row for row in rows.values() if row.kind is not StepKind.COMPENSATION]
    reached = [row for row in forward if row.kind is StepKind.MILESTONE and row.status is StepStatus.SUCCEEDED]
    milestone = max(reached, key=_settled, default=None)
    bound = (0, -1) if milestone is None else _settled(milestone)
    rests = {row.name: _rest_of(row, tables, decode) for row in forward if row.kind is StepKind.CHILD}
    ends: dict[str, _End] = {}
    order: list[StepRow] = []
    for row in sorted(forward, key=_settled, reverse=True):
        undo = rows.get(f"{row.name}{UNDO_SUFFIX}")  # type: ignore[call-overload]
        is_recovered = bool({row.name, row.group} & recovered)
        if is_recovered or _settled(row) <= bound or not _happened(row, tables, rests):
            if undo is not None:
                raise Violation("I10 only what happened is undone", f"{run.id} {undo.name}: it is {row.status}")
            continue
        later = {ends[other.name] for other in order if (other.begun_no, other.seq) > _settled(row)}
        ends[row.name] = _end_of(row, undo, is_free=later <= {_End.DONE}, rests=rests)
        order.append(row)
    return _outcome(order, ends, milestone, rests)


def _outcome(
    order: list[StepRow], ends: Mapping[str, _End], milestone: StepRow | None, rests: Mapping[Any, str | None]
) -> Undone | None:
    stuck = frozenset(name for name, end in ends.items() if end is _End.STUCK)
    if stuck:
        return Undone(status=RunStatus.COMPENSATION_FAILED, stuck=stuck)
    if milestone is None and not order:
        return None
    own = None if milestone is None else milestone.name.removeprefix(MILESTONE_PREFIX).partition("#")[0]
    rested = [rests[row.name] for row in order if ends[row.name] is _End.RESTED]
    return Undone(status=RunStatus.COMPENSATED, rested_at=rested[0] if rested else own)


def _happened(row: StepRow, tables: Tables, rests: Mapping[Any, str | None]) -> bool:
    if row.undo_task is None or row.status not in {StepStatus.SUCCEEDED, StepStatus.FAILED}:
        return False
    is_child = row.kind is StepKind.CHILD and row.child_run_id is not None
    if not is_child or row.status is StepStatus.SUCCEEDED or row.child_run_id is None:
        return True
    # A child that failed has undone itself: it counts when that did not go all the way.
    child = tables.runs[row.child_run_id]
    return child.status is RunStatus.COMPENSATION_FAILED or rests[row.name] is not None


def _end_of(row: StepRow, undo: StepRow | None, *, is_free: bool, rests: Mapping[Any, str | None]) -> _End:
    where = f"{row.run_id} {row.name}"
    rested = _End.DONE if rests.get(row.name) is None else _End.RESTED
    if row.kind is StepKind.CHILD and row.status is StepStatus.FAILED:
        if undo is not None:
            raise Violation("I10 what undid itself is not undone", where)
        return rested if rested is _End.RESTED else _End.STUCK
    if not is_free:
        if undo is not None:
            raise Violation("I10 what rests on a step is undone before it", where)
        return _End.BLOCKED
    if undo is None or not undo.is_settled:
        raise Violation("what happened is undone", where)
    return rested if undo.status is StepStatus.SUCCEEDED else _End.STUCK


def _rest_of(row: StepRow, tables: Tables, decode: Callable[[str], Any]) -> str | None:
    """The milestone that a child run rests at."""
    child = None if row.child_run_id is None else tables.runs[row.child_run_id]
    if child is None or child.status is not RunStatus.COMPENSATED or child.output is None:
        return None
    said: dict[str, str] = decode(child.output)
    return said["restedAt"]


def _settled(row: StepRow) -> tuple[int, int]:
    return row.settled_no or 0, row.seq
