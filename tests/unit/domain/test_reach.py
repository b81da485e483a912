"""What a pass does about a call that the body reached: the table of spec 16.1, as D1, D2 and D15 have it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.reach import Move, move_for_new, move_for_row, needs_recorded_start, stays_here
from pikkuflow.domain.status import Dispatch, StepKind, StepStatus
from pikkuflow.domain.step import Place, Step

_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_QUEUE = Place.QUEUE
_WORKER = Place.worker("node:2")
_PASS = Place.in_pass("p0")
_CHILD = Place.child("c1")


def a_row(**fields: Any) -> Step:
    """A pending, due, dispatched row of a task with five retries, but for what is given."""
    values: dict[str, Any] = {
        "run_id": RunId("r1"),
        "name": StepName("a"),
        "seq": 0,
        "kind": StepKind.TASK,
        "task": "pack",
        "status": StepStatus.PENDING,
        "attempt": 1,
        "retries": 5,
        "retry_delay": "exponential",
        "place": _QUEUE,
        "options": "{}",
        "lease_seconds": 60.0,
        "is_due": True,
        "is_lapsed": False,
        "is_expired": False,
        "created_at": _NOON,
    }
    absent = dict.fromkeys(Step.__dataclass_fields__)
    return Step(**{**absent, **values, **fields})


@pytest.mark.parametrize(
    ("fields", "move"),
    [
        ({"status": StepStatus.PENDING, "place": _QUEUE}, Move.SEND),
        ({"status": StepStatus.PENDING, "place": _QUEUE, "attempt": 2, "is_due": False}, Move.WAIT),
        ({"status": StepStatus.PENDING, "place": _QUEUE, "attempt": 2}, Move.SEND),
        ({"status": StepStatus.SCHEDULED, "place": _QUEUE}, Move.WAIT),
        ({"status": StepStatus.SCHEDULED, "place": _QUEUE, "is_expired": True}, Move.OVERDUE),
        ({"status": StepStatus.PENDING, "place": _QUEUE, "is_expired": True, "is_due": False}, Move.OVERDUE),
        ({"status": StepStatus.RUNNING, "place": _WORKER, "is_expired": True}, Move.WAIT),
        ({"status": StepStatus.RUNNING, "place": _WORKER}, Move.WAIT),
        ({"status": StepStatus.RUNNING, "place": _WORKER, "is_lapsed": True}, Move.SEND),
        ({"status": StepStatus.RUNNING, "place": _CHILD}, Move.WAIT),
        ({"status": StepStatus.RUNNING, "place": _CHILD, "is_lapsed": True}, Move.WAIT),
        ({"status": StepStatus.PENDING, "place": _PASS, "attempt": 2}, Move.WORK),
        ({"status": StepStatus.PENDING, "place": _PASS, "attempt": 2, "is_due": False}, Move.WAIT),
        ({"status": StepStatus.RUNNING, "place": _PASS}, Move.TAKE_BACK),
        ({"status": StepStatus.RUNNING, "place": _PASS, "attempt": 6}, Move.EXHAUST),
        ({"status": StepStatus.RUNNING, "place": _PASS, "retries": 0}, Move.EXHAUST),
        ({"status": StepStatus.SCHEDULED, "place": _PASS, "kind": StepKind.SLEEP}, Move.WAKE),
        ({"status": StepStatus.SCHEDULED, "place": _PASS, "kind": StepKind.SLEEP, "is_due": False}, Move.WAIT),
        ({"status": StepStatus.SUCCEEDED, "place": _QUEUE}, Move.KNOWN),
        ({"status": StepStatus.FAILED, "place": _PASS}, Move.KNOWN),
        ({"status": StepStatus.CANCELLED, "place": _QUEUE}, Move.KNOWN),
    ],
)
def test_a_row_is_treated_by_its_own_place_and_status(fields: dict[str, Any], move: Move) -> None:
    """Spec 16.1 row by row; T6.7 (lapsed: sent again), T6.8 (live: left alone), T6.16 (taken back), D1 (a child works it: send nothing)."""
    assert move_for_row(a_row(**fields)) is move


def test_a_message_that_left_for_a_missing_task_is_sent_again() -> None:
    """D5: the worker that took it did not know the task."""
    assert move_for_row(a_row(status=StepStatus.SCHEDULED), resend=True) is Move.SEND


@pytest.mark.parametrize(
    ("wish", "leaves", "together", "inline", "here"),
    [
        (Dispatch.AUTO, None, False, False, True),
        (Dispatch.AUTO, "queue", False, False, False),
        (Dispatch.AUTO, "limit", False, False, False),
        (Dispatch.AUTO, "unknown", False, False, False),
        (Dispatch.AUTO, None, True, False, False),
        (Dispatch.QUEUE, None, False, False, False),
        (Dispatch.INLINE, "queue", False, False, True),
        (Dispatch.INLINE, "limit", True, False, True),
        (Dispatch.INLINE, "unknown", False, False, False),
        (Dispatch.AUTO, "queue", True, True, True),
        (Dispatch.QUEUE, None, False, True, True),
        (Dispatch.QUEUE, "unknown", False, True, False),
    ],
)
def test_a_new_task_stays_unless_there_is_a_reason_to_leave(
    *, wish: Dispatch, leaves: str | None, together: bool, inline: bool, here: bool
) -> None:
    """Design 2 and T1.5: only a reason to leave makes it leave; an inline run keeps everything that it can work."""
    assert stays_here(StepKind.TASK, wish, leaves, together=together, inline=inline) is here


@pytest.mark.parametrize("kind", [StepKind.FUNCTION, StepKind.STATE])
def test_a_callable_has_nowhere_to_go(kind: StepKind) -> None:
    """Whatever is wished, it is worked here."""
    assert stays_here(kind, Dispatch.QUEUE, None, together=True, inline=False)


@pytest.mark.parametrize(
    ("kind", "here", "move"),
    [
        (StepKind.TASK, True, Move.WORK),
        (StepKind.TASK, False, Move.DISPATCH),
        (StepKind.FUNCTION, True, Move.WORK),
        (StepKind.SLEEP, True, Move.SLEEP),
        (StepKind.CHILD, True, Move.START_CHILD),
    ],
)
def test_a_call_without_a_row_is_placed_by_its_kind(*, kind: StepKind, here: bool, move: Move) -> None:
    """T4.8: a step that names a workflow is a child run, whatever dispatch says."""
    assert move_for_new(kind, here=here) is move


def test_a_start_is_recorded_first_only_where_it_must_be() -> None:
    """Design 2: retries=0, a compensation, the author's wish, or a run that is marked lost."""
    plain: dict[str, Any] = {"retries": 5, "compensable": False, "asked": False, "lost": False}

    assert not needs_recorded_start(**plain)
    changes: tuple[dict[str, Any], ...] = ({"retries": 0}, {"compensable": True}, {"asked": True}, {"lost": True})
    for one in changes:
        assert needs_recorded_start(**{**plain, **one})
