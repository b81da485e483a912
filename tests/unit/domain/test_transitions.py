"""Statuses move through two literal tables only (spec 4.1, 4.3, D23)."""

from __future__ import annotations

import pickle

import pytest

from pikkuflow.domain.status import SETTLED_RUN, SETTLED_STEP, RunStatus, StepStatus
from pikkuflow.domain.transitions import (
    RUN_TRANSITIONS,
    STEP_TRANSITIONS,
    ForbiddenTransition,
    RunEvent,
    next_run_status,
)


@pytest.mark.parametrize("status", RunStatus)
@pytest.mark.parametrize("event", RunEvent)
def test_every_cell_of_the_run_table_leads_somewhere_or_raises(status: RunStatus, event: RunEvent) -> None:
    """A move that the table has is answered by it; any other raises and names status and event."""
    after = RUN_TRANSITIONS[status].get(event)
    if after is not None:
        assert next_run_status(status, event) is after
        return
    with pytest.raises(ForbiddenTransition, match=f"{status} run cannot {event}"):
        next_run_status(status, event)


def test_a_settled_run_is_left_only_to_undo_a_completed_child() -> None:
    """I6, D23: out of the terminal statuses only completed -> compensating exists; cancelled is never left."""
    moves = {(status, event) for status in SETTLED_RUN for event in RUN_TRANSITIONS[status]}

    assert moves == {(RunStatus.COMPLETED, RunEvent.UNWIND)}


def test_a_settled_step_is_never_left() -> None:
    """I4: succeeded is final, and failed always means exhausted (D2)."""
    assert not [event for status in SETTLED_STEP for event in STEP_TRANSITIONS[status]]


def test_the_tables_cannot_be_written_to() -> None:
    """A lookup that raises changes nothing, and nothing else can change the tables either."""
    with pytest.raises(TypeError):
        RUN_TRANSITIONS[RunStatus.FAILED] = {}  # type: ignore[index]
    with pytest.raises(TypeError):
        STEP_TRANSITIONS[StepStatus.FAILED] = {}  # type: ignore[index]


def test_a_forbidden_transition_pickles() -> None:
    """It may travel through Celery as any error may."""
    error = pickle.loads(pickle.dumps(ForbiddenTransition("A failed run cannot park.")))  # noqa: S301 - our own bytes

    assert str(error) == "A failed run cannot park."
