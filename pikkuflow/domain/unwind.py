"""What is undone next: the unwind planner, from the rows of a run alone (spec 2.12, T12.1 to T12.21).

It orders by recorded numbers, never by times (``Step.begun_no``, ``Step.settled_no``); where two are equal, by record order (``seq``).
A step that began after another had settled may rest on it, so it is undone first; steps that overlapped know nothing of each other and are
undone together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Final

from pikkuflow.domain.graph_step import RECOVERS
from pikkuflow.domain.ids import StepName
from pikkuflow.domain.recorded_names import MILESTONE_PREFIX, UNDO_SUFFIX
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus
from pikkuflow.domain.step import Step

__all__ = [
    "Candidate",
    "ChildEnd",
    "UndoState",
    "UnwindPlan",
    "Unwinding",
    "may_need_undoing",
    "milestone_of",
]


class UndoState(StrEnum):
    """How far the undoing of one step is."""

    DONE = "done"
    RESTED = "rested"
    """A child run was undone down to its own milestone: what came before it stays."""
    STUCK = "stuck"
    """Its compensation failed for good."""
    BLOCKED = "blocked"
    """Something that may rest on it is stuck, blocked or rested: it stays as it is."""
    RUNNING = "running"
    """Its compensation was handed over."""
    WAITING = "waiting"
    """Something that may rest on it is not undone yet."""
    READY = "ready"
    """It may be undone now; also one whose compensation has a row and no outcome (never sent, or its process was lost)."""


_OPEN: Final = frozenset({UndoState.READY, UndoState.RUNNING, UndoState.WAITING})
_ENDS_HERE: Final = frozenset({UndoState.STUCK, UndoState.BLOCKED, UndoState.RESTED})
_HOLDS: Final = _OPEN | _ENDS_HERE
"""What began before something in one of these states settled is not ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEnd:
    """How a child run ended that unwound: ``rested_at`` names the milestone that it rests at."""

    status: RunStatus
    rested_at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A step that has to be undone. ``undo`` is the row of its compensation, if it has one."""

    forward: Step
    undo: Step | None
    state: UndoState
    rested_at: str | None = None

    @property
    def name(self) -> StepName:
        """The step's name."""
        return self.forward.name

    @property
    def undo_name(self) -> StepName:
        """The name of its compensation."""
        return StepName(f"{self.forward.name}{UNDO_SUFFIX}")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnwindPlan:
    """Where an unwind stands.

    ``candidates`` are newest first; ``in_flight`` are steps whose end must be waited for before anything is undone; ``milestone`` is the
    latest one, which bounds the candidates.
    """

    candidates: tuple[Candidate, ...] = ()
    in_flight: tuple[StepName, ...] = ()
    milestone: str | None = None

    @property
    def ready(self) -> tuple[Candidate, ...]:
        """What may be undone now."""
        return () if self.in_flight else self._in(UndoState.READY)

    @property
    def stuck(self) -> tuple[Candidate, ...]:
        """What could not be undone."""
        return self._in(UndoState.STUCK)

    @property
    def is_settled(self) -> bool:
        """Nothing is left that will be undone."""
        return not self.in_flight and not any(one.state in _OPEN for one in self.candidates)

    @property
    def rested_at(self) -> str | None:
        """The milestone that the run rests at: that of the newest child that rests, else its own."""
        rested = self._in(UndoState.RESTED)
        return rested[0].rested_at if rested else self.milestone

    def _in(self, state: UndoState) -> tuple[Candidate, ...]:
        return tuple(one for one in self.candidates if one.state is state)


class Unwinding:
    """The unwind of a stopped run while one pass works at it: only the rows of compensations move, so the order is made once.

    ``steps`` are all rows of the run, in any order. ``ends`` tells, by the name of the row, how child runs ended: those of failed steps,
    which have unwound themselves, and those of compensations. Both may grow while this is used.
    """

    def __init__(self, steps: Mapping[StepName, Step], ends: Mapping[StepName, ChildEnd]) -> None:
        self._steps, self._ends = steps, ends
        forward = [row for row in steps.values() if row.kind is not StepKind.COMPENSATION and row.undo_task is not None]
        self._in_flight = tuple(row.name for row in forward if not row.is_settled)
        milestone = _latest_milestone(steps.values())
        self._milestone = None if milestone is None else milestone_of(milestone)
        fixed = () if milestone is None else _settled(milestone)
        recovered = frozenset(filter(None, map(_recovers, steps.values())))
        found = [
            row
            for row in forward
            if not {row.name, row.group} & recovered and _is_candidate(row, ends) and _settled(row) > fixed
        ]
        self._newest_first = sorted(found, key=_settled, reverse=True)
        self._by_begin = sorted(self._newest_first, key=_begun, reverse=True)
        self._undone = 0
        """So many of the newest are done, and nothing waits for them: no look has to begin before them again."""
        self._passed = 0
        """So many of the latest begun are among those."""

    @property
    def plan(self) -> UnwindPlan:
        """Where the unwind stands, of all candidates."""
        candidates = tuple(one for one, _ in self._look(0, 0))
        return UnwindPlan(candidates=candidates, in_flight=self._in_flight, milestone=self._milestone)

    def ready(self) -> tuple[Candidate, ...]:
        """``plan.ready``, for the price of what was undone since the last time and of what is ready now."""
        ready: list[Candidate] = []
        if self._in_flight:
            return ()
        for one, later in self._look(self._undone, self._passed):
            if later & _HOLDS:
                break
            if one.state is UndoState.READY:
                ready.append(one)
        return tuple(ready)

    def _look(self, begin: int, passed: int) -> Iterator[tuple[Candidate, AbstractSet[UndoState]]]:
        """Each candidate from there on, and the states of those that may rest on it. The set only grows."""
        states: dict[StepName, UndoState] = {}
        later: set[UndoState] = set()
        for at, row in enumerate(islice(self._newest_first, begin, None), begin):
            # What began after this one settled may rest on it. It also settled after it, so it has its state by now, or is undone.
            while passed < len(self._by_begin) and _begun(self._by_begin[passed]) > _settled(row):
                later.add(states.get(self._by_begin[passed].name, UndoState.DONE))
                passed += 1
            one = _candidate(row, self._steps.get(StepName(f"{row.name}{UNDO_SUFFIX}")), later, self._ends)
            states[row.name] = one.state
            if at == self._undone and one.state is UndoState.DONE:
                self._undone, self._passed = at + 1, passed
            yield one, later


def may_need_undoing(steps: Sequence[Step]) -> bool:
    """Whether stopping the run now has to go through an unwind.

    Something was begun that can be undone, a child is at work, or a milestone was reached.
    """
    return any(_leaves_a_mark(row) for row in steps)


def milestone_of(row: Step) -> str:
    """The name that the author gave to a milestone."""
    return row.name.removeprefix(MILESTONE_PREFIX).partition("#")[0]


def _leaves_a_mark(row: Step) -> bool:
    if row.kind is StepKind.MILESTONE:
        return row.status is StepStatus.SUCCEEDED
    if row.kind is StepKind.CHILD and not row.is_settled:
        return True
    if row.undo_task is None or row.status is StepStatus.CANCELLED:
        return False
    never_started = row.status in {StepStatus.PENDING, StepStatus.SCHEDULED} and row.attempt == 1
    return not never_started


def _latest_milestone(steps: Iterable[Step]) -> Step | None:
    reached = [row for row in steps if row.kind is StepKind.MILESTONE and row.status is StepStatus.SUCCEEDED]
    return max(reached, key=_settled, default=None)


def _is_candidate(row: Step, ends: Mapping[StepName, ChildEnd]) -> bool:
    if row.kind is not StepKind.CHILD:
        return row.status in {StepStatus.SUCCEEDED, StepStatus.FAILED}
    if row.status is StepStatus.FAILED:
        # It has unwound itself; what counts is whether that went all the way.
        return _own_end(row, ends) is not None
    return row.status is StepStatus.SUCCEEDED and row.child_run_id is not None


def _recovers(row: Step) -> str | None:
    """The failed step that a graph's recover node took over: it is done with, and not undone, nor are its items (spec 3.6)."""
    if row.status is StepStatus.CANCELLED or f'"{RECOVERS}"' not in row.options:
        return None
    recovered: str | None = json.loads(row.options).get(RECOVERS)
    return recovered


def _own_end(row: Step, ends: Mapping[StepName, ChildEnd]) -> UndoState | None:
    """How the unwind of a failed child leaves its parent, when it did not go all the way."""
    end = ends.get(row.name)
    if end is None or row.status is not StepStatus.FAILED:
        return None
    if end.status is RunStatus.COMPENSATION_FAILED:
        return UndoState.STUCK
    return UndoState.RESTED if end.rested_at is not None else None


def _candidate(
    row: Step, undo: Step | None, later: AbstractSet[UndoState], ends: Mapping[StepName, ChildEnd]
) -> Candidate:
    own = _own_end(row, ends) if row.kind is StepKind.CHILD else None
    if own is not None:
        end = ends[row.name]
        return Candidate(forward=row, undo=None, state=own, rested_at=end.rested_at)
    end_of_undo = None if undo is None else ends.get(undo.name)
    rested_at = None if end_of_undo is None else end_of_undo.rested_at
    state = _state(undo, later, rested=rested_at is not None)
    return Candidate(forward=row, undo=undo, state=state, rested_at=rested_at if state is UndoState.RESTED else None)


def _state(undo: Step | None, later: AbstractSet[UndoState], *, rested: bool) -> UndoState:
    if undo is not None and undo.status is StepStatus.SUCCEEDED:
        return UndoState.RESTED if rested else UndoState.DONE
    if undo is not None and undo.is_settled:
        return UndoState.STUCK
    if undo is not None and undo.status is StepStatus.SCHEDULED:
        return UndoState.RUNNING
    if later & _ENDS_HERE:
        return UndoState.BLOCKED
    return UndoState.WAITING if later & _OPEN else UndoState.READY


def _begun(row: Step) -> tuple[int, int]:
    return row.begun_no, row.seq


def _settled(row: Step) -> tuple[int, int]:
    return row.settled_no or 0, row.seq
