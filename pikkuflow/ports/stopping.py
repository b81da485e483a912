"""The store's acts that stop a run: cancelling it, and asking its children to undo themselves."""

from __future__ import annotations

from typing import Protocol

from pikkuflow.domain.act import PassNews, PassRef
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.run import Run
from pikkuflow.domain.step import NewStep
from pikkuflow.domain.stop import Beat, Cancellation, StepStanding, Stopped

__all__ = ["StoppingStore"]


class StoppingStore(Protocol):
    """Stopping is one status write in one transaction, and every status write names the status that it leaves (design 3.7)."""

    def cancel_run(self, request: Cancellation) -> Stopped | None:
        """Call a run off.

        An open run becomes ``compensating`` when a pass is open or anything may have to be undone (``domain.unwind.may_need_undoing``),
        else ``ending`` (``cancelled``), which tells the parent. Rows that never started become ``cancelled``, rows with a past attempt
        ``failed``, but for a retry in place of the pass that is open: it may be at work, and its outcome counts. ``compensating`` also
        forgets the fans' counters and raises news. Error and code are the request's. Any other run is
        left as it is. None: there is no such run.
        """
        ...

    def overdue_runs(self, limit: int) -> tuple[Run, ...]:
        """Open runs whose ``deadline_at`` is past by the database's clock, held or not, those overdue longest first; ``limit`` at most."""
        ...

    def unwind_child(self, ref: PassRef, step: NewStep, child: RunId) -> PassNews | None:
        """A pass that undoes its run asks a completed child to undo itself, in one transaction, child locked before parent.

        The child becomes ``compensating`` with the parent's error and code, its news is raised, and ``step`` waits for it (running,
        ``child:<run>``). A child that is gone, or did not complete, has nothing to undo: the row has succeeded at once. Idempotent by
        step. ``written`` is False when the run does not unwind. None: fenced.
        """
        ...

    def beat(self, beat: Beat) -> StepStanding:
        """Say how an attempt that is at work stands, and keep its details on the step's row.

        A heartbeat (``lives``) begins the row's ``heartbeat_seconds`` anew. The act waits for nobody: the run's row is read and not locked.
        A step in place that has no row yet works while its run is open.
        """
        ...
