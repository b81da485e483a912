"""The simulation finds what can be wrong with gates."""

from __future__ import annotations

import pytest

from tests.simulation.gate_mutations import GATE_MUTATIONS
from tests.simulation.generate import plan_of
from tests.simulation.mutations import Mutation
from tests.simulation.plan import Act, Do, Gate, GateKind, Part, Plan, Spread, Start
from tests.simulation.shrink import find

_BESIDE = Spread(
    "x",
    Do("s", act=Act(seconds=5.0), dispatch="queue"),
    (
        Gate("papers", GateKind.SUSPEND),
        Gate("letter", GateKind.SIGNAL, timeout=30.0),
        Gate("nothing", GateKind.SIGNAL, timeout=4.0, after=None),
        Gate("release", GateKind.APPROVAL, timeout=30.0, after=3.0),
    ),
)
_PARTS: tuple[Part, ...] = (_BESIDE, Do("after", leaves=True))


@pytest.mark.parametrize("seed", range(20))
def test_gates_need_no_sweep_where_nothing_fails(seed: int) -> None:
    """Scenario 12, and design 3.10: steps beside a gate and after one are taken by workers at once; no answer waits for a sweep."""
    failing = find(Plan(seed=seed, starts=(Start(run="r0", parts=_PARTS),), preempt=0.5))

    assert failing is None, f"{failing.violation}"


@pytest.mark.faults
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mutation", GATE_MUTATIONS, ids=lambda one: one.name)
def test_a_deliberate_fault_of_gates_is_found(mutation: Mutation) -> None:
    """Issue D, done when: among them a suspension that counts as passed before a resume."""
    with mutation.apply():
        assert any(find(plan_of(seed)) is not None for seed in range(5000))
