"""The simulation knows runs that are called off and undone, and finds what can be wrong with that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pikkuflow.domain.status import RunStatus
from tests.simulation.generate import plan_of
from tests.simulation.mutations import Mutation
from tests.simulation.plan import Act, CallOff, Child, Do, Fault, FaultKind, Map, Milestone, Part, Plan, Start
from tests.simulation.shrink import find
from tests.simulation.stop_mutations import STOP_MUTATIONS
from tests.simulation.world import World

_UNDO = Act(seconds=1.0)
_SAGA: tuple[Part, ...] = (
    Do("here", undo=_UNDO),
    Do("away", act=Act(seconds=1.0), dispatch="queue", undo=_UNDO),
    Child("below", (Do("a", undo=_UNDO), Map("m", (Act(), Act(seconds=1.0)), undo=_UNDO))),
    Do("kept", undo=_UNDO, compensate=False),
    Do("dead", act=Act(fails=9), retries=0),
)


@pytest.mark.parametrize("seed", range(10))
def test_undoing_needs_no_sweep_where_nothing_fails(seed: int) -> None:
    """Design 3.5, 3.7: a saga with a child is undone by messages alone, each step once."""
    world = World(Plan(seed=seed, starts=(Start(run="r0", parts=_SAGA, reads=True),), preempt=0.5))

    world.run()

    assert {run.status for run in world.store._tables.runs.values()} == {RunStatus.COMPENSATED}
    undone = [done.step for done in world.ledger.executions if done.step.endswith(":compensate")]
    assert sorted(undone) == [
        "a:compensate",
        "away:compensate",
        "here:compensate",
        "m[0]:compensate",
        "m[1]:compensate",
    ]


@pytest.mark.parametrize("at", range(0, 100, 10))
def test_a_cancel_needs_no_sweep_where_nothing_fails(at: int) -> None:
    """T11.37, T11.38: somebody calls a run off twice, anywhere on its way; it is undone once, and a settled run is left as it is."""
    called_off = Fault(FaultKind.CALL_OFF, at=at, seconds=0.5)

    failing = find(
        Plan(seed=at, starts=(Start(run="r0", parts=_SAGA[:-1], reads=True),), nodes=2, faults=(called_off,))
    )

    assert failing is None, f"{failing.violation}"


def test_everything_about_stopping_that_can_be_generated_is() -> None:
    """Compensations that fail, die and are opted out, milestones, bodies that call their run off, cancels said once and twice."""
    plans = [plan_of(seed) for seed in range(200)]
    parts = [part for plan in plans for start in plan.starts for part in start.parts]
    steps = [part for part in parts if isinstance(part, Do | Map)]
    undos = [part.undo for part in steps if part.undo is not None]
    cancels = [fault for plan in plans for fault in plan.faults if fault.kind is FaultKind.CALL_OFF]

    assert any(undo.fails for undo in undos)
    assert any(undo.dies for undo in undos)
    assert any(not part.compensate for part in parts if isinstance(part, Do | Map | Child))
    assert any(isinstance(part, Milestone) for part in parts)
    assert any(isinstance(part, CallOff) for part in parts)
    assert {bool(fault.seconds) for fault in cancels} == {True, False}


def test_schedules_end_in_every_way() -> None:
    """Spec 4.1: some of these runs are completed, failed, cancelled, compensated and stuck; children are undone with their parents."""
    ends: set[RunStatus] = set()
    undone = 0
    for seed in range(60):
        world = World(replace(plan_of(seed), faults=()))
        world.run()
        ends |= {run.status for run in world.store._tables.runs.values()}
        undone += len(world.ledger.stops.undone)

    assert ends == {
        RunStatus.COMPLETED,
        RunStatus.FAILED,
        RunStatus.CANCELLED,
        RunStatus.COMPENSATED,
        RunStatus.COMPENSATION_FAILED,
    }
    assert undone


@pytest.mark.faults
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mutation", STOP_MUTATIONS, ids=lambda one: one.name)
def test_a_deliberate_fault_of_stopping_is_found(mutation: Mutation) -> None:
    """Issue D, done when: among them a dropped re-read before an end, and a parent that is told twice."""
    with mutation.apply():
        assert any(find(plan_of(seed)) is not None for seed in range(5000))
