"""What a pass does about a call that the body has reached: one pure table (spec 16.1 as D1, D2, D15 and design 2 have it).

A call without a row is placed by its kind, the wish of its author and the reasons to leave. A row is treated by where *it* says it is
worked, never by today's routing (design 2).
"""

from __future__ import annotations

from enum import StrEnum

from pikkuflow.domain.status import GATE, Dispatch, StepKind, StepStatus
from pikkuflow.domain.step import Place, Step

__all__ = ["Move", "move_for_new", "move_for_row", "needs_recorded_start", "stays_here"]


class Move(StrEnum):
    """What to do next."""

    WORK = "work"
    """Work the attempt here, in place."""
    TAKE_BACK = "take_back"
    """An earlier pass died over it: work the next attempt here."""
    EXHAUST = "exhaust"
    """An earlier pass died over its last attempt: record that."""
    DISPATCH = "dispatch"
    """Insert its row and send its message."""
    SEND = "send"
    """Its row is there; send its message (again), with the attempt of the row."""
    SLEEP = "sleep"
    """Insert a sleep."""
    WAKE = "wake"
    """A sleep is over: record that."""
    GATE = "gate"
    """Reach a gate: it is open, or the pass ends here."""
    START_CHILD = "start_child"
    """Insert the child run and the row that it works."""
    OVERDUE = "overdue"
    """A worker has it for longer than one attempt may take: record that, and what follows."""
    WAIT = "wait"
    """In flight elsewhere, or not due: leave it alone."""
    KNOWN = "known"
    """Its row has the final outcome."""


def stays_here(kind: StepKind, wish: Dispatch, leaves: str | None, *, together: bool, inline: bool) -> bool:
    """Whether a new task or function may be worked in this pass (design 2).

    ``leaves`` is the route's reason to leave; ``wish`` the author's (step, else workflow, else setting); ``together`` says that it is
    one of several submitted together; ``inline`` that the run is an inline one. A callable has nowhere to go, and a task that is known
    by name only cannot be worked here whatever anyone wishes.
    """
    if kind is not StepKind.TASK:
        return True
    if leaves == "unknown":
        return False
    if inline or wish is Dispatch.INLINE:
        return True
    return wish is Dispatch.AUTO and leaves is None and not together


def move_for_new(kind: StepKind, *, here: bool) -> Move:
    """The move for a call without a row; ``here`` is ``stays_here``."""
    if kind is StepKind.SLEEP:
        return Move.SLEEP
    if kind in GATE:
        return Move.GATE
    if kind is StepKind.CHILD:
        return Move.START_CHILD
    return Move.WORK if here else Move.DISPATCH


def move_for_row(row: Step, *, resend: bool = False) -> Move:
    """The move for a call with a row.

    ``resend`` is True in the first pass after a suspension for code that was not there: messages that left are sent again, since the
    worker that took them did not know the task, or found the run suspended (D5, D17).
    """
    if row.is_settled:
        return Move.KNOWN
    if row.kind in GATE:
        return Move.GATE
    if Place.is_child(row.place):
        return Move.WAIT
    if Place.is_queue(row.place):
        return _move_for_dispatched(row, resend=resend)
    return _move_in_place(row)


def _move_for_dispatched(row: Step, *, resend: bool) -> Move:
    if row.is_waiting and row.is_expired:
        # No claim can take it any more, so nobody else need see it (design 1).
        return Move.OVERDUE
    if row.status is StepStatus.PENDING:
        return Move.SEND if row.is_due else Move.WAIT
    if row.is_overdue:
        return Move.OVERDUE
    if row.status is StepStatus.RUNNING and row.is_lapsed:
        # The row stays running: the claim counts another attempt, or finds that none is left.
        return Move.SEND
    if row.status is StepStatus.SCHEDULED and resend:
        return Move.SEND
    return Move.WAIT


def _move_in_place(row: Step) -> Move:
    if row.status is StepStatus.RUNNING:
        # Holding the run is the claim of a step in place, so whoever started it is gone (D15).
        return Move.TAKE_BACK if row.attempt < row.attempts_allowed else Move.EXHAUST
    if not row.is_due:
        return Move.WAIT
    return Move.WAKE if row.kind is StepKind.SLEEP else Move.WORK


def needs_recorded_start(*, retries: int, compensable: bool, asked: bool, lost: bool) -> bool:
    """Whether the start is recorded before the work (design 2).

    It must not run twice, or something may have to be undone though no outcome was stored, or its author asked for it, or the run is
    marked lost.
    """
    return retries == 0 or compensable or asked or lost
