"""The simulation knows times that are over and children that outlive their parents, and finds what can be wrong with them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pikkuflow.domain.status import RunStatus, StepStatus
from tests.simulation.generate import plan_of
from tests.simulation.limit_mutations import LIMIT_MUTATIONS
from tests.simulation.mutations import Mutation
from tests.simulation.plan import Act, Child, Do, Map, Plan, Sleep, Start
from tests.simulation.shrink import find
from tests.simulation.world import World

_HANGS = Do("s", act=Act(hangs=25.0), dispatch="queue", retries=1)


def _worked(seed: int, start: Start) -> World:
    world = World(Plan(seed=seed, starts=(start,), nodes=2, preempt=0.5))
    world.run()
    assert not world.stage.is_disturbed
    return world


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("step", [replace(_HANGS, timeout=3.0), replace(_HANGS, heartbeat=3.0)])
def test_an_attempt_that_hangs_is_ended_in_time_and_its_late_outcome_refused(seed: int, step: Do) -> None:
    """Scenario 08: a hint leads a pass to it, no sweep; the next attempt's outcome counts, and the history has both (I5, I9)."""
    world = _worked(seed, Start("r0", (step,)))

    (row,) = world.store._tables.steps_of(next(iter(world.store._tables.runs))).values()
    first = world.store._tables.attempts[row.run_id][row.name, 1]
    assert (row.status, row.attempt, first.status) == (StepStatus.SUCCEEDED, 2, StepStatus.FAILED)
    assert first.settled_at is not None
    assert first.running_at is not None
    assert 3.0 <= (first.settled_at - first.running_at).total_seconds() < 4.0
    assert [done.attempt for done in sorted(world.ledger.executions, key=lambda done: done.until or 0.0)] == [2, 1]


@pytest.mark.parametrize("seed", range(5))
def test_an_attempt_that_gives_heartbeats_is_left_alone(seed: int) -> None:
    """The time without a heartbeat begins again with each."""
    step = Do("s", act=Act(seconds=25.0, beats=2.0, says=True), dispatch="queue", retries=1, heartbeat=3.0)
    world = _worked(seed, Start("r0", (step,)))

    assert not world.ledger.limits.ended
    assert len(world.ledger.executions) == 1


@pytest.mark.parametrize("seed", range(5))
def test_a_run_that_takes_too_long_ends_in_time_with_its_children(seed: int) -> None:
    """Issue D, Build 7: what waits past the run's timeout is ended by a hint, undone, and its children are called off with it."""
    child = Child("c", (Sleep("z", 100.0),))
    world = _worked(seed, Start("r0", (Do("s", undo=Act()), child), timeout=5.0))

    above, below = world.store._tables.runs.values()
    assert (above.status, above.code) == (RunStatus.COMPENSATED, "RUN_TIMEOUT")
    assert below.status is RunStatus.CANCELLED
    assert above.finished_at is not None
    assert 5.0 <= (above.finished_at - above.created_at).total_seconds() < 7.0


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_a_detached_child_outlives_its_parent(seed: int, *, inline: bool) -> None:
    """It is not stopped and not undone with it, and needs no sweep where nothing fails."""
    child = Child("c", (Do("below", undo=Act()), Sleep("z", 3.0)), detached=True)
    dead = Do("dead", act=Act(fails=9), retries=0)
    world = _worked(seed, Start("r0", (Do("s", undo=Act()), child, dead), inline=inline))

    above, below = world.store._tables.runs.values()
    assert (above.status, below.status) == (RunStatus.COMPENSATED, RunStatus.COMPLETED)
    assert [done.step for done in world.ledger.executions if done.step.endswith(":compensate")] == ["s:compensate"]


def test_everything_about_limits_that_can_be_generated_is() -> None:
    """Limits of steps, maps, runs and children, attempts that hang, give heartbeats or hang once, children that are detached."""
    plans = [plan_of(seed) for seed in range(200)]
    starts = [start for plan in plans for start in plan.starts]
    parts = [part for start in starts for part in start.parts]
    steps = [part for part in parts if isinstance(part, Do)]
    children = [part for part in parts if isinstance(part, Child)]

    assert {(step.timeout is None, step.heartbeat is None) for step in steps} == {
        (timed, beating) for timed in (True, False) for beating in (True, False)
    }
    assert any(step.act.hangs for step in steps)
    assert any(step.act.beats and step.act.says for step in steps)
    assert any(part.timeout for part in parts if isinstance(part, Map))
    assert any(start.timeout for start in starts)
    assert any(child.timeout for child in children)
    assert {child.detached for child in children} == {True, False}


def test_schedules_run_out_of_time_in_every_way() -> None:
    """Attempts by their time and by their silence, in place and at a worker; runs that have to be undone and runs that have not."""
    ends: set[str] = set()
    for seed in range(250):
        plan = plan_of(seed)
        if not any(start.timeout or "timeout=" in str(start.parts) for start in plan.starts):
            continue
        world = World(plan)
        world.run()
        rows = [row for rows in world.store._tables.steps.values() for row in rows.values()]
        ends |= {"silent" if "heartbeat" in text else "slow" for text in world.ledger.limits.ended.values()}
        ends |= {"in place" for row in rows if row.error and (row.error.type, row.error.code) == ("TimeoutError", None)}
        ends |= {str(world.store._tables.runs[run].status) for run in world.ledger.limits.timed_out}

    assert {"silent", "slow", "in place", "failed", "compensated"} <= ends


@pytest.mark.faults
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mutation", LIMIT_MUTATIONS, ids=lambda one: one.name)
def test_a_deliberate_fault_of_limits_is_found(mutation: Mutation) -> None:
    """Issue D, Build 10: among them an outdated attempt whose outcome is taken."""
    with mutation.apply():
        assert any(find(plan_of(seed)) is not None for seed in range(5000))
