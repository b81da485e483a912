"""The unwind planner: what of a stopped run is undone now (spec 2.12, 13.12)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pikkuflow.domain.failure import Failure
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus
from pikkuflow.domain.step import Step
from pikkuflow.domain.unwind import ChildEnd, UndoState, Unwinding, UnwindPlan, may_need_undoing

_THEN = datetime(2026, 1, 1, tzinfo=UTC)
_BOOM = Failure(type="ValueError", message="boom")


def row(name: str, begun: int, settled: int | None, *, seq: int = 0, **more: Any) -> Step:
    """A succeeded step with a compensation, unless told otherwise."""
    fields: dict[str, Any] = {
        "run_id": RunId("r1"),
        "name": StepName(name),
        "seq": seq,
        "kind": StepKind.TASK,
        "task": "shop.work",
        "args": None,
        "status": StepStatus.RUNNING if settled is None else StepStatus.SUCCEEDED,
        "result": None,
        "error": None,
        "attempt": 1,
        "retries": 5,
        "retry_delay": "exponential",
        "place": "pass:p1",
        "queue": None,
        "options": "{}",
        "claim_id": None,
        "lease_seconds": 60.0,
        "lease_until": None,
        "due_at": None,
        "due_in_seconds": None,
        "is_due": True,
        "is_lapsed": False,
        "is_expired": False,
        "sent_at": None,
        "override": None,
        "child_run_id": None,
        "fan_id": None,
        "from_step": None,
        "group": None,
        "author": None,
        "undo_task": "shop.unwork",
        "begun_no": begun,
        "settled_no": settled,
        "created_at": _THEN,
        "running_at": _THEN,
        "scheduled_at": None,
        "settled_at": None if settled is None else _THEN,
    }
    return Step(**{**fields, **more})


def undo(name: str, status: StepStatus = StepStatus.SUCCEEDED, **more: Any) -> Step:
    """The compensation of a step."""
    more = {"kind": StepKind.COMPENSATION, "undo_task": None, "status": status, "seq": 1000, **more}
    return row(f"{name}:compensate", 1000, 1001, **more)


def milestone(name: str, no: int, **more: Any) -> Step:
    """A milestone that was reached."""
    return row(f"__milestone:{name}", no, no, **{"kind": StepKind.MILESTONE, "undo_task": None, "task": None, **more})


def child(name: str, begun: int, settled: int | None, **more: Any) -> Step:
    """A child run as a step."""
    more = {"kind": StepKind.CHILD, "child_run_id": RunId(f"run-of-{name}"), **more}
    return row(name, begun, settled, **more)


A, B, C = row("a", 1, 2), row("b", 3, 4, seq=1), row("c", 5, 6, seq=2)
"""One after the other."""

SIBLINGS = (row("a", 1, 2), row("b", 3, 6, seq=1), row("c", 4, 5, seq=2))
"""``b`` and ``c`` overlapped, after ``a``."""


def plan_unwind(steps: Sequence[Step], ends: Mapping[StepName, ChildEnd] | None = None) -> UnwindPlan:
    """What a pass that has just loaded these rows finds."""
    return Unwinding({row.name: row for row in steps}, ends or {}).plan


def ready(plan: UnwindPlan) -> list[str]:
    """What may be undone now."""
    return [one.name for one in plan.ready]


def is_compensated(plan: UnwindPlan) -> bool:
    """Something had to be undone, and all of it was, down to where it rests."""
    return plan.is_settled and bool(plan.candidates) and not plan.stuck


def states(plan: UnwindPlan) -> dict[str, UndoState]:
    """How far each candidate is."""
    return {one.name: one.state for one in plan.candidates}


def test_a_run_without_steps_has_nothing_to_undo() -> None:
    """T12.1: settled, and not compensated."""
    plan = plan_unwind([])
    assert plan.is_settled
    assert not is_compensated(plan)


def test_steps_one_after_another_are_undone_newest_first_one_at_a_time() -> None:
    """T12.2."""
    plan = plan_unwind([A, B, C])
    assert ready(plan) == ["c"]
    assert [one.name for one in plan.candidates] == ["c", "b", "a"]


def test_after_the_newest_comes_the_next() -> None:
    """T12.3."""
    assert ready(plan_unwind([A, B, C, undo("c")])) == ["b"]
    assert ready(plan_unwind([A, B, C, undo("c"), undo("b")])) == ["a"]


def test_overlapping_siblings_are_undone_together_before_what_came_before_them() -> None:
    """T12.4."""
    assert ready(plan_unwind(SIBLINGS)) == ["b", "c"]
    assert ready(plan_unwind([*SIBLINGS, undo("c")])) == ["b"]
    assert ready(plan_unwind([*SIBLINGS, undo("c"), undo("b")])) == ["a"]


def test_a_stuck_compensation_keeps_what_came_before_and_not_its_siblings() -> None:
    """T12.5: and it is listed with its row, which has the error."""
    plan = plan_unwind([*SIBLINGS, undo("b", StepStatus.FAILED, error=_BOOM)])
    assert states(plan) == {"b": UndoState.STUCK, "c": UndoState.READY, "a": UndoState.BLOCKED}
    (stuck,) = plan.stuck
    assert stuck.undo is not None
    assert stuck.undo.error == _BOOM


def test_it_is_settled_when_everything_that_can_be_reached_is_done_or_stuck() -> None:
    """T12.6."""
    plan = plan_unwind([*SIBLINGS, undo("b", StepStatus.FAILED, error=_BOOM), undo("c")])
    assert plan.is_settled
    assert not is_compensated(plan)


def test_a_running_compensation_keeps_the_plan_open_and_is_ready_again() -> None:
    """T12.7: its process may be lost."""
    plan = plan_unwind([A, undo("a", StepStatus.RUNNING)])
    assert not plan.is_settled
    assert ready(plan) == ["a"]


def test_the_failed_step_itself_is_undone_first() -> None:
    """T12.8."""
    assert ready(plan_unwind([A, B, replace(C, status=StepStatus.FAILED, error=_BOOM)])) == ["c"]


def test_a_step_that_is_still_at_work_holds_everything() -> None:
    """T12.9: pending, scheduled or running alike."""
    for status in (StepStatus.PENDING, StepStatus.SCHEDULED, StepStatus.RUNNING):
        plan = plan_unwind([A, B, row("c", 5, None, status=status)])
        assert plan.in_flight == ("c",)
        assert ready(plan) == []
        assert not plan.is_settled


def test_only_steps_with_a_compensation_count() -> None:
    """T12.10, T12.11: also in flight; a step that was opted out has none recorded."""
    bare = row("bare", 7, None, undo_task=None)
    plan = plan_unwind([A, replace(B, undo_task=None), bare])
    assert ready(plan) == ["a"]
    assert [one.name for one in plan.candidates] == ["a"]


def test_the_latest_milestone_is_the_bound() -> None:
    """T12.12: one that is not reached bounds nothing."""
    plan = plan_unwind([A, milestone("first", 3), replace(B, begun_no=4, settled_no=5), milestone("second", 6)])
    assert plan.is_settled
    assert plan.milestone == "second"
    plan = plan_unwind([A, milestone("paid", 3), replace(B, begun_no=4, settled_no=5)])
    assert ready(plan) == ["b"]
    assert plan.milestone == "paid"


def test_milestones_and_compensations_are_never_undone_themselves() -> None:
    """T12.13."""
    plan = plan_unwind([A, undo("a", undo_task="shop.what"), milestone("paid", 0)])
    assert [one.name for one in plan.candidates] == ["a"]


def test_equal_numbers_are_told_apart_by_record_order() -> None:
    """T12.14: as rows from before revision 0003, which have none."""
    old = [row(name, 0, None, status=StepStatus.SUCCEEDED, seq=seq) for seq, name in enumerate("abc")]
    assert ready(plan_unwind(old)) == ["c"]
    assert ready(plan_unwind([*old, undo("c")])) == ["b"]


def test_record_order_also_says_on_which_side_of_a_milestone_a_step_is() -> None:
    """T12.15."""
    before, after = row("a", 0, 5, seq=0), row("b", 0, 5, seq=2)
    assert [one.name for one in plan_unwind([before, milestone("paid", 5, seq=1), after]).candidates] == ["b"]


def test_a_failed_child_has_unwound_itself() -> None:
    """T12.16."""
    failed = child("below", 3, 4, status=StepStatus.FAILED, error=_BOOM)
    ends = {failed.name: ChildEnd(status=RunStatus.COMPENSATED)}
    assert ready(plan_unwind([A, failed])) == ["a"]
    assert ready(plan_unwind([A, failed], ends)) == ["a"]


def test_a_failed_child_that_is_stuck_or_rests_keeps_what_came_before() -> None:
    """T11.31, T11.32 in the plan: nothing before it is undone."""
    failed = child("below", 3, 4, status=StepStatus.FAILED, error=_BOOM)
    plan = plan_unwind([A, failed], {failed.name: ChildEnd(status=RunStatus.COMPENSATION_FAILED)})
    assert states(plan) == {"below": UndoState.STUCK, "a": UndoState.BLOCKED}
    plan = plan_unwind([A, failed], {failed.name: ChildEnd(status=RunStatus.COMPENSATED, rested_at="paid")})
    assert states(plan) == {"below": UndoState.RESTED, "a": UndoState.BLOCKED}
    assert is_compensated(plan)
    assert plan.rested_at == "paid"


def test_a_completed_child_is_undone_like_a_step() -> None:
    """T12.17."""
    assert ready(plan_unwind([A, child("below", 3, 4)])) == ["below"]


def test_a_child_that_rests_at_its_milestone_ends_the_unwind_there() -> None:
    """T12.18: rested, what came before stays, and the run is compensated all the same."""
    below = child("below", 3, 4)
    rested = undo("below")
    plan = plan_unwind([A, below, rested], {rested.name: ChildEnd(status=RunStatus.COMPENSATED, rested_at="paid")})
    assert states(plan) == {"below": UndoState.RESTED, "a": UndoState.BLOCKED}
    assert plan.is_settled
    assert is_compensated(plan)
    assert plan.rested_at == "paid"


def test_when_all_is_undone_the_run_is_compensated() -> None:
    """T12.19."""
    plan = plan_unwind([A, B, undo("a"), undo("b")])
    assert plan.is_settled
    assert is_compensated(plan)
    assert plan.rested_at is None


def test_a_compensation_that_was_handed_over_is_waited_for() -> None:
    """T12.20, T12.21: scheduled is running; pending is ready, for it never left."""
    plan = plan_unwind([A, B, undo("b", StepStatus.SCHEDULED)])
    assert states(plan) == {"b": UndoState.RUNNING, "a": UndoState.WAITING}
    assert ready(plan) == []
    assert ready(plan_unwind([A, B, undo("b", StepStatus.PENDING)])) == ["b"]


def test_what_never_started_needs_no_unwind() -> None:
    """Design 3.7: the question that a cancel asks."""
    waiting: dict[str, Any] = {"status": StepStatus.SCHEDULED}
    assert not may_need_undoing([row("a", 1, None, **waiting), replace(A, undo_task=None)])
    assert may_need_undoing([row("a", 1, None, **waiting, attempt=2)])
    assert may_need_undoing([row("a", 1, None)])
    assert may_need_undoing([A])
    assert may_need_undoing([milestone("paid", 1)])
    assert may_need_undoing([child("below", 1, None, undo_task=None)])
    assert not may_need_undoing([child("below", 1, 2, undo_task=None)])


# --- against a model ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interval:
    """When a step was at work, and what its compensation will come to."""

    begun: int
    settled: int
    end: StepStatus


@st.composite
def histories(draw: st.DrawFn) -> list[Interval]:
    """Steps that overlap in any way, each number used once."""
    count = draw(st.integers(min_value=0, max_value=7))
    numbers = draw(st.permutations(range(1, 2 * count + 1)))
    pairs = [numbers[2 * at : 2 * at + 2] for at in range(count)]
    ends = draw(
        st.lists(st.sampled_from([StepStatus.SUCCEEDED] * 4 + [StepStatus.FAILED]), min_size=count, max_size=count)
    )
    return [Interval(min(pair), max(pair), end) for pair, end in zip(pairs, ends, strict=True)]


def undone_by_the_model(steps: Sequence[Interval]) -> tuple[set[int], set[int]]:
    """Which steps are undone and which are stuck: by trying, for each step, whether everything that began after its end was undone."""
    undone: set[int] = set()
    stuck: set[int] = set()
    moved = True
    while moved:
        moved = False
        for at, step in enumerate(steps):
            later = {other for other, one in enumerate(steps) if one.begun > step.settled}
            if at not in undone | stuck and later <= undone:
                (undone if step.end is StepStatus.SUCCEEDED else stuck).add(at)
                moved = True
    return undone, stuck


def unwound(steps: Sequence[Interval], pick: Mapping[int, int]) -> tuple[UnwindPlan, list[int]]:
    """Undo one ready step after another, in the order that ``pick`` chooses, until the plan is settled."""
    rows = {one.name: one for one in (row(str(at), one.begun, one.settled, seq=at) for at, one in enumerate(steps))}
    unwinding = Unwinding(rows, {})
    order: list[int] = []
    for turn in range(len(steps) + 1):
        plan = plan_unwind(list(rows.values()))
        assert unwinding.ready() == plan.ready, "what moved since is all that has to be looked at"
        assert unwinding.plan == plan
        if plan.is_settled:
            return plan, order
        chosen = plan.ready[pick.get(turn, 0) % len(plan.ready)]
        order.append(int(chosen.name))
        rows[chosen.undo_name] = undo(chosen.name, steps[int(chosen.name)].end)
    raise AssertionError("the plan is never settled")


@given(histories(), st.dictionaries(st.integers(0, 7), st.integers(0, 7)))
def test_an_unwind_reaches_what_a_model_reaches_in_any_order_of_the_ready_ones(
    steps: list[Interval], pick: dict[int, int]
) -> None:
    """I8, T12.2 to T12.6: never twice, never before what may rest on it, and as far as it can get."""
    plan, order = unwound(steps, pick)

    undone, stuck = undone_by_the_model(steps)
    assert set(order) == undone | stuck
    assert len(order) == len(set(order))
    assert {int(one.name) for one in plan.stuck} == stuck
    assert is_compensated(plan) == (bool(steps) and not stuck)
    for at, number in enumerate(order):
        later = {other for other, one in enumerate(steps) if one.begun > steps[number].settled}
        assert later <= set(order[:at]), "something that may rest on it was not undone yet"


@given(histories(), st.randoms())
def test_a_plan_depends_on_the_rows_and_not_on_their_order(steps: list[Interval], random: Any) -> None:
    """I8: the planner is pure."""
    rows: Iterable[Step] = [row(str(at), one.begun, one.settled, seq=at) for at, one in enumerate(steps)]
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert plan_unwind(shuffled) == plan_unwind(list(rows))
