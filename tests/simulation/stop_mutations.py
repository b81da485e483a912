"""Deliberate faults of stopping and undoing. The simulation must find each (issue D)."""

from __future__ import annotations

from typing import Final

from pikkuflow.adapters.memory import endings
from pikkuflow.adapters.memory.run_store import MemoryRunStore
from pikkuflow.adapters.memory.tables import RunRow, StepRow
from pikkuflow.domain.act import Closing
from pikkuflow.domain.status import SETTLED_RUN, RunStatus
from pikkuflow.domain.step import Step
from pikkuflow.domain.stop import Cancellation, Stopped
from pikkuflow.engine.open_pass import OpenPass
from tests.simulation.mutations import Mutation, patched

__all__ = ["STOP_MUTATIONS"]


_moves = Closing.moves


def _ends_anything(self: Closing, status: RunStatus) -> bool:
    """A pass ends its run as it found it, though it may have been stopped since."""
    is_end = self.status in SETTLED_RUN and status is RunStatus.COMPENSATING
    return is_end or _moves(self, status)


def _waits_though_told(row: StepRow | None, run: RunRow) -> bool:
    """Whoever ends a run tells its parent, also one that was told before."""
    return row is not None and row.child_run_id == run.id


def _go_on_beside(_self: OpenPass, _row: Step) -> None:
    """What follows a child of an inline run counts as if it had begun beside it."""


_cancel_run = MemoryRunStore.cancel_run


def _cancel_below_first(self: MemoryRunStore, request: Cancellation) -> Stopped | None:
    """The children are stopped while their parent still goes on."""
    run = self._tables.runs.get(request.run_id)
    if run is not None and not run.is_settled:
        for child in self._live_children(run):
            _cancel_run(self, Cancellation(run_id=child, error=request.error))
    return _cancel_run(self, request)


STOP_MUTATIONS: Final = (
    Mutation("drop the re-read before an end", patched((Closing, "moves", _ends_anything))),
    Mutation("tell the parent twice", patched((endings, "_waits_for", _waits_though_told))),
    Mutation("begin beside a child that was waited for", patched((OpenPass, "goes_on_after", _go_on_beside))),
    Mutation("stop children before their parent", patched((MemoryRunStore, "cancel_run", _cancel_below_first))),
)
