"""What the ledger knows of runs that are stopped and undone, judged act by act (I6 and I10 of spec 16.6, spec 2.12, design 3.7).

What may rest on what is not read from the numbers that the planner goes by. It is what passes could know: a step may rest on what had
settled in the history that its pass loaded, in what the pass then settled itself, and in rows that it read again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pikkuflow.adapters.memory.tables import RunRow, StepRow, Tables
from pikkuflow.domain.graph_step import RECOVERS
from pikkuflow.domain.history import History
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.recorded_names import UNDO_SUFFIX
from pikkuflow.domain.status import OPEN_RUN, RunStatus, StepKind, StepStatus
from pikkuflow.domain.step import Place, Step
from pikkuflow.domain.stop import Cancellation, Stopped
from pikkuflow.domain.transitions import RUN_TRANSITIONS
from pikkuflow.domain.undo import Undo
from tests.simulation.limits import Limits

__all__ = ["Stops", "ends_unstarted", "outcome_of"]


class Stops:
    """Those of one schedule. ``broken`` makes a violation out of an invariant and what breaks it.

    Steps that are begun together know nothing of each other, though they may be worked one after the other: ``together`` names the group of
    a workflow's step.
    """

    is_quick = False
    """Outcomes of steps in place are kept for a moment: what was begun meanwhile may rest on one that a stop refused."""

    def __init__(
        self,
        tables: Tables,
        broken: Callable[[str, str], Exception],
        together: Mapping[tuple[str, str], str],
        limits: Limits,
    ) -> None:
        self._tables = tables
        self._broken = broken
        self._together = together
        self._limits = limits
        self.graphs: frozenset[str] = frozenset()
        """Workflows that are graphs."""
        self.asked: set[RunId] = set()
        """Runs that people wanted called off."""
        self.called_off: set[RunId] = set()
        """Runs that were stopped by a cancel, whoever asked for it; no run that its own body called off."""
        self.unwound: set[RunId] = set()
        """Runs that were compensating once."""
        self.outputs: dict[RunId, str | None] = {}
        """What runs had completed with."""
        self.undone: set[RunId] = set()
        """Runs that had completed and were undone with their parents."""
        self._begun_by: dict[RunId, RunId] = {}
        self._statuses: dict[RunId, RunStatus] = {}
        self._settled: dict[RunId, tuple[Any, ...] | None] = {}
        self._known: dict[str, set[str]] = {}
        """What a pass knows as settled."""
        self._rests_on: dict[tuple[RunId, str], frozenset[str]] = {}
        self._beyond: dict[RunId, frozenset[str]] = {}
        """What had settled before the latest milestone."""

    # --- acts -------------------------------------------------------------------------------------------------------
    def cancelled(self, args: tuple[Any, ...], answer: Stopped | None) -> None:
        """A run was called off: a parent before its children."""
        if answer is None or not answer.is_stopped:
            return
        request: Cancellation = args[0]
        if request.ending is RunStatus.FAILED:
            # Its time is over, which is judged as its status moves.
            return
        self.called_off.add(request.run_id)
        above = self._parent(self._tables.runs[request.run_id])
        if above is not None and above.status in OPEN_RUN and request.run_id not in self.asked:
            raise self._broken("a parent is stopped before its children", f"{request.run_id} of {above.id}")

    def opened(self, history: History) -> None:
        """A pass has loaded what had settled."""
        self._known.setdefault(history.pass_id, set()).update(step.name for step in history.steps if step.is_settled)

    def read_again(self, pass_id: str | None, step: Step | None) -> None:
        """A pass has read a row again."""
        if step is not None and step.is_settled and pass_id in self._known:
            self._known[pass_id].add(step.name)

    def is_cut(self, run_id: RunId) -> bool:
        """Whether the run was stopped from outside its body, which may not have come as far as its steps would let it."""
        return run_id in self.called_off or run_id in self._limits.timed_out

    def begun_by(self, run_id: RunId) -> RunId | None:
        """The run that began it, detached or not."""
        return self._begun_by.get(run_id)

    def told(self, run_id: RunId, step: str, undo: Undo) -> None:
        """A compensation is told how the step ended that it undoes."""
        forward = self._tables.steps_of(run_id)[undo.step]  # type: ignore[index]
        is_it = f"{forward.name}{UNDO_SUFFIX}" == step and undo.ok is (forward.status is StepStatus.SUCCEEDED)
        said = undo.output if undo.ok else undo.error
        happened = f"{run_id}/{undo.step}" if undo.ok else forward.error and forward.error.message
        if not is_it or (happened is not None and said != happened):
            raise self._broken("a compensation is told what it undoes", f"{run_id} {step}: {undo}")

    def began(self, run_id: RunId, step: str, kind: StepKind) -> None:
        """A start was stored, or a claim: forward steps begin in open runs, compensations in those that are undone (design 3.6)."""
        status = self._tables.runs[run_id].status
        if status is not RunStatus.COMPENSATING if kind is StepKind.COMPENSATION else status not in OPEN_RUN:
            raise self._broken("nothing begins in a stopped run", f"{run_id} {step}: it is {status}")

    def is_unseen(self, row: StepRow) -> bool:
        """A stop has ended the row of a retry that its pass began without a write: it learns of it by its outcome, which is refused.

        Only what may have to be undone, or must not run twice, is begun by a write (design 2, 3.7).
        """
        is_plain = row.undo_task is None and row.retries > 0 and not Place.is_queue(row.place)
        is_stopped = self._tables.runs[row.run_id].status not in OPEN_RUN
        return is_stopped and is_plain and row.status is not StepStatus.SUCCEEDED

    def unwanted(self, run_id: RunId, step: str, attempt: int) -> None:
        """An attempt was told that it works in vain. A run that was stopped goes on no more, nor does an attempt that is outdated."""
        run, row = self._tables.runs[run_id], self._tables.steps_of(run_id).get(step)  # type: ignore[call-overload]
        is_current = row is None or (row.attempt == attempt and not row.is_settled)
        is_undo = row is not None and row.kind is StepKind.COMPENSATION
        if is_current and (run.status is RunStatus.COMPENSATING if is_undo else run.status in OPEN_RUN):
            raise self._broken("only a stopped run's step works in vain", f"{run_id} {step}: it is {run.status}")

    def is_told(self, run_id: RunId, is_worked: Callable[[RunId], bool]) -> bool:
        """Whether somebody who has just begun the run for its parent, or ended a child of it, is about to wake it."""
        run = self._tables.runs[run_id]
        above = self.begun_by(run_id)
        if above is not None and run.seen == 0 and is_worked(above):
            return True
        children = (one for one in self._tables.runs.values() if self._parent(one) is run)
        return any(child.is_settled and is_worked(child.id) for child in children)

    # --- rows -------------------------------------------------------------------------------------------------------
    def look(self, run: RunRow) -> None:
        """A run as it is after an act."""
        was, settled = self._statuses.get(run.id), (run.status, run.output, run.error) if run.is_settled else None
        is_undone = was is RunStatus.COMPLETED and run.status is RunStatus.COMPENSATING
        before = self._settled.get(run.id)
        if before is not None and settled != before and not is_undone:
            raise self._broken("I6 a settled run does not change", f"{run.id}: {before} -> {settled or run.status}")
        self._settled[run.id] = settled
        if was is not run.status:
            self._moved(run, was)

    def _moved(self, run: RunRow, was: RunStatus | None) -> None:
        self._statuses[run.id] = run.status
        above = self._parent(run)
        if was is None:
            if above is not None and above.status not in OPEN_RUN:
                raise self._broken(
                    "nothing begins in a stopped run", f"{run.id} of {above.id}, which is {above.status}"
                )
            return
        if run.status not in RUN_TRANSITIONS[was].values():
            raise self._broken("a run moves as its table says", f"{run.id}: {was} -> {run.status}")
        self._limits.moved(run, was)
        if was is RunStatus.COMPLETED:
            if above is None or above.status is not RunStatus.COMPENSATING:
                raise self._broken("I6 only a parent undoes what has completed", run.id)
            self.undone.add(run.id)
        if run.status is RunStatus.COMPENSATING:
            self.unwound.add(run.id)
        if run.status is RunStatus.COMPLETED:
            self.outputs[run.id] = run.output

    def appeared(self, run: RunRow, row: StepRow) -> None:
        """A row is there that was not."""
        known = frozenset(self._known.get(row.author, ()))
        if row.child_run_id is not None and row.kind is StepKind.CHILD:
            self._begun_by[row.child_run_id] = run.id
        if row.kind is StepKind.COMPENSATION:
            self._check_undo(run, row)
            return
        self._rests_on[run.id, row.name] = known - self._beside(run, row)
        if row.kind is StepKind.MILESTONE:
            self._beyond[run.id] = known
        is_begun = not row.is_settled or row.kind is StepKind.CHILD
        if run.status not in OPEN_RUN and row.attempt == 1 and is_begun:
            raise self._broken("nothing begins in a stopped run", f"{run.id} {row.name} is {row.status}")

    def settled(self, row: StepRow, pass_id: str | None) -> None:
        """A row has its outcome; when the pass that wrote it is at work, it knows."""
        if row.author == pass_id and row.kind is not StepKind.CHILD:
            self._known.setdefault(row.author, set()).add(row.name)

    def _beside(self, run: RunRow, row: StepRow) -> set[str]:
        if run.workflow in self.graphs:
            # Planned together: which is by their numbers, and those are judged by what leads to what (``expect_graph``).
            rows = self._tables.steps_of(run.id).values()
            return {one.name for one in rows if one.settled_no is None or one.settled_no > row.begun_no}
        group = self._together.get((run.workflow, row.name))
        if group is None:
            return set()
        return {
            name for (workflow, name), other in self._together.items() if (workflow, other) == (run.workflow, group)
        }

    # --- undoing ----------------------------------------------------------------------------------------------------
    def _check_undo(self, run: RunRow, undo: StepRow) -> None:
        """I10: what is undone did happen, and whatever may rest on it is undone."""
        where = f"{run.id} {undo.name}"
        rows = self._tables.steps_of(run.id)
        forward = rows[undo.from_step or undo.name]
        if run.status is not RunStatus.COMPENSATING:
            raise self._broken("I10 only a stopped run is undone", f"{where}: it is {run.status}")
        if forward.undo_task is None or forward.status not in {StepStatus.SUCCEEDED, StepStatus.FAILED}:
            raise self._broken("I10 only what happened is undone", f"{where}: it is {forward.status}")
        if forward.name in self._beyond.get(run.id, ()):
            raise self._broken("I10 nothing before a milestone is undone", where)
        for row in rows.values():
            if row.undo_task is None or row.kind is StepKind.COMPENSATION:
                continue
            if not row.is_settled:
                raise self._broken(
                    "I10 nothing is undone while something works", f"{where}: {row.name} is {row.status}"
                )
            if forward.name in self._rests_on[run.id, row.name] and self._stays(row):
                raise self._broken("I10 what rests on a step is undone before it", f"{where}: {row.name} is not undone")

    def _stays(self, row: StepRow) -> bool:
        """Whether a step happened, and is not undone."""
        if row.status is StepStatus.CANCELLED or (row.kind is StepKind.CHILD and row.status is StepStatus.FAILED):
            return False
        rows = self._tables.steps_of(row.run_id)
        if any(f'"{RECOVERS}": "{name}"' in one.options for one in rows.values() for name in (row.name, row.group)):
            return False
        undo = rows.get(f"{row.name}{UNDO_SUFFIX}")  # type: ignore[call-overload]
        return undo is None or undo.status is not StepStatus.SUCCEEDED

    def _parent(self, run: RunRow) -> RunRow | None:
        return None if run.parent is None else self._tables.runs[run.parent.run_id]


def outcome_of(row: StepRow) -> tuple[Any, ...]:
    """What stays once it is there."""
    return (row.status, row.attempt, row.result, row.error)


def ends_unstarted(run: RunRow, was: StepStatus, row: StepRow) -> bool:
    """One that its worker gave back unstarted, to a run that has ended: it waits and is cancelled in one act."""
    moves = was is StepStatus.RUNNING and row.status is StepStatus.CANCELLED
    return run.is_settled and moves and row.attempt == 1 and row.claim_id is None
