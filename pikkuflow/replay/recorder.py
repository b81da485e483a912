"""Gives every durable call its identity, and matches it with what the history has recorded.

A call's identity is its physical name (the name, with ``#1``, ``#2`` for repeats in call order) and its ``seq``, the index among the
durable calls of the body. Both depend on the body alone, never on which step ended first, so any pass finds the same rows (spec 1.2).

A recorded row must meet the very call that made it (D17). A row without its call, or another call in its place, is a body that changed:
the run is suspended with VERSION_CONFLICT and nothing is guessed. A call without a row *before* recorded rows is no conflict: members of a
windowed map start out of order, and a call whose arguments were refused leaves no row.

A patch (``wf.patched``) is a call like any other in a run that has its mark or stands where it may get one. A run that has recorded calls
from here on and no mark went past this place with the code before the patch: for it the call does not exist, and takes no place.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any, Final

from pikkuflow.domain.command import PlannedCall, Reach, Recorded, StepCall, Waiting
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.history import History
from pikkuflow.domain.ids import StepName, numbered_name
from pikkuflow.domain.recorded_names import PATCH_PREFIX, UNDO_SUFFIX, check_derived_name
from pikkuflow.domain.status import StepKind, StepStatus, SuspendCode
from pikkuflow.domain.step import Step
from pikkuflow.errors import (
    LeaseLost,
    NoLeaseService,
    PikkuFlowError,
    SchemaOutdated,
    StoreUnavailable,
    VersionConflict,
)
from pikkuflow.replay.park import Parked, ParkReason

__all__ = ["SURROUNDINGS", "Perform", "Recorder", "recorded_failure"]

SURROUNDINGS: Final = (StoreUnavailable, LeaseLost, NoLeaseService, SchemaOutdated, ConnectionError)
"""What ``perform`` may raise that says nothing of the body: it ends the pass whatever the body does with it (design 3.4).
A ``ConnectionError`` is a codec hook whose service is away."""

_NAMED_BY_TASK: Final = frozenset({StepKind.TASK, StepKind.CHILD})

Answer = Recorded | Waiting
Perform = Callable[[Reach], tuple[Answer, ...]]


class Recorder:
    """One pass' view of the recorded calls.

    ``halt`` is what ended the pass (a ``Parked``, or an error of the surroundings): from then on every call raises it again.
    """

    def __init__(self, history: History, perform: Perform, decode: Callable[[str], Any]) -> None:
        self.run = history.run
        self.halt: BaseException | None = None
        self.previous: StepName | None = None
        self._rows = {row.seq: row for row in history.steps if not row.name.endswith(UNDO_SUFFIX)}
        self._end = max(self._rows, default=-1) + 1
        self._seq_by_name: dict[StepName, int] | None = None
        self._ordinals: dict[str, int] = {}
        self._map_ordinals: dict[str, int] = {}
        self._next_seq = 0
        self._thread = get_ident()
        self._is_asking = False
        self._perform = perform
        self._decode = decode

    def guard(self) -> None:
        """Refuse a call that must not be made: after a park, from another thread, or from inside a step."""
        if self._thread != get_ident():
            raise PikkuFlowError(
                "wf was used from another thread than its workflow's, or after its pass was over.",
                hint="Use wf.submit, wf.gather or wf.map for parallel work; other threads cannot be replayed.",
            )
        if self._is_asking:
            raise PikkuFlowError(
                "wf was used inside a step.", hint="Call wf in the workflow, and hand the values to the step."
            )
        if self.halt is not None:
            raise self.halt

    def close(self) -> None:
        """The pass is over: no call is taken any more."""
        self._thread = -1

    def is_named(self, name: str) -> bool:
        """The name was used in this pass."""
        return name in self._ordinals

    def name_of(self, name: str) -> str:
        """The physical name of the next use of a name. Raises ``StepNameError`` for a name that could be taken for another's repeat."""
        return _next_name(self._ordinals, name)

    def map_name_of(self, name: str) -> str:
        """The same for a map, whose members add ``[i]``: maps of a name are counted apart from its single steps."""
        return _next_name(self._map_ordinals, name)

    def place(self, call: StepCall, name: StepName, after: StepName | None) -> PlannedCall:
        """Give a call the next place in order, with the row recorded there. Parks with VERSION_CONFLICT when it does not fit."""
        seq = self._next_seq
        self._next_seq = seq + 1
        return PlannedCall(call=call, name=name, seq=seq, from_step=after, row=self._row_at(seq, call, name))

    def takes_patch(self, name: StepName) -> bool:
        """Whether this run has the patch's mark, or gets it here: nothing is recorded from this place on. The answer never changes."""
        return self._next_seq >= self._end or name in self._seqs()

    def settle(self, call: StepCall) -> Recorded:
        """One call whose outcome the body needs now: recorded, performed, or the pass parks."""
        name = StepName(self.name_of(call.name))
        after = self.previous
        self.previous = name
        seq = self._next_seq
        self._next_seq = seq + 1
        row = self._row_at(seq, call, name)
        if row is not None and row.is_settled:
            return self.recorded(row)
        planned = PlannedCall(call=call, name=name, seq=seq, from_step=after, row=row)
        (answer,) = self.ask(Reach(calls=(planned,)))
        if isinstance(answer, Waiting):
            raise self.parked()
        return answer

    def recorded(self, row: Step) -> Recorded:
        """The outcome of a settled row. A result that cannot be read here ends the pass, not the run."""
        if row.status is not StepStatus.SUCCEEDED:
            return Recorded(failure=recorded_failure(row), attempts=row.attempt)
        if row.result is None:
            return Recorded(attempts=row.attempt)
        try:
            value = self._decode(row.result)
        except BaseException as error:
            self.halt = error
            raise
        return Recorded(value=value, attempts=row.attempt)

    def ask(self, reach: Reach) -> tuple[Answer, ...]:
        """Hand calls to the engine. What the arguments of a call caused is raised in the body; anything else ends the pass."""
        self._is_asking = True
        try:
            return self._perform(reach)
        except SURROUNDINGS as error:
            self.halt = error
            raise
        except Exception:
            raise
        except BaseException as error:
            self.halt = error
            raise
        finally:
            self._is_asking = False

    def parked(self) -> Parked:
        """The park of a body that needs what is still in flight."""
        parked = Parked(ParkReason.WAITING)
        self.halt = parked
        return parked

    def check_all_met(self) -> None:
        """At the end of the body: every recorded call was made. Parks with VERSION_CONFLICT otherwise."""
        if self._next_seq < self._end:
            left = self._rows[min(seq for seq in self._rows if seq >= self._next_seq)]
            raise self._conflict(left, "the end of the workflow")

    def _row_at(self, seq: int, call: StepCall, name: StepName) -> Step | None:
        row = self._rows.get(seq)
        if row is None:
            if seq < self._end:
                self._check_not_later(seq, call, name)
            return None
        if row.name != name or row.kind is not call.kind or (call.kind in _NAMED_BY_TASK and row.task != call.task):
            raise self._conflict(row, _described(name, call.kind, call.task))
        return row

    def _check_not_later(self, seq: int, call: StepCall, name: StepName) -> None:
        if name in self._seqs():
            following = self._rows[min(later for later in self._rows if later > seq)]
            raise self._conflict(following, _described(name, call.kind, call.task))

    def _seqs(self) -> dict[StepName, int]:
        if self._seq_by_name is None:
            self._seq_by_name = {row.name: row.seq for row in self._rows.values()}
        return self._seq_by_name

    def _conflict(self, row: Step, found: str) -> Parked:
        run = self.run
        expected = _described(row.name, row.kind, row.task)
        message = (
            f"The code of workflow {run.workflow!r} does not fit what run {run.id} recorded: "
            f"expected {expected}, found {found} (call {row.seq})."
        )
        failure = Failure(type=VersionConflict.__name__, message=message, code=VersionConflict.code)
        # The engine decides when another worker, with code that may fit, is worth a try (design 3.10).
        parked = Parked(ParkReason.SUSPENDED, code=SuspendCode.VERSION_CONFLICT, failure=failure)
        self.halt = parked
        return parked


def _next_name(ordinals: dict[str, int], name: str) -> str:
    ordinal = ordinals.get(name)
    if ordinal is None:
        check_derived_name(name)
        ordinal = 0
    ordinals[name] = ordinal + 1
    return numbered_name(name, ordinal)


def recorded_failure(row: Step) -> Failure:
    """Why a settled row did not succeed."""
    if row.error is not None:
        return row.error
    if row.status is StepStatus.CANCELLED:
        return Failure(type="Cancelled", message="it was cancelled before it ran")
    return Failure(type="Error", message="Unknown error")


def _described(name: StepName, kind: StepKind, task: str | None) -> str:
    if name.startswith(PATCH_PREFIX):
        return f"patch {name.removeprefix(PATCH_PREFIX)!r}"
    detail = f"{kind} {task}" if task is not None and task != name else str(kind)
    return f"step {name!r} ({detail})"
