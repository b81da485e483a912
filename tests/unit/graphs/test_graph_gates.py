"""Nodes that wait for people and for the world (spec 2.6, 2.7, 3.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from pikkuflow import Decider, current_step, ref
from tests.unit.graphs.stage import ON_WORKERS, Stage, staged


def test_a_suspend_node_waits_for_an_explicit_resume(stage: Stage) -> None:
    """Spec 2.6, 3.3: a suspended run makes no progress until it is resumed."""
    stage.play(a="b", b={"suspend": "waiting for stock", "next": "c"}, c=None)
    assert (stage.status, stage.code) == ("suspended", "WORKFLOW_SUSPENDED")
    stage.go_on()
    assert stage.diary == ["a"]

    stage.run.resume("waiting for stock")
    stage.go_on()

    assert stage.status == "completed"
    assert stage.begun()[-1] == ("c", "__workflow_suspend:waiting for stock")


def test_an_approval_node_gives_its_decision_and_chooses_a_branch(stage: Stage) -> None:
    """Spec 2.7: decided or expired are its branches; the data are its output."""
    stage.play(
        a={"approval": "release", "approvers": "any", "next": {"decided": "b", "expired": "c"}},
        b={"input": [ref("a", "data.ok"), ref("a", "decidedBy.user")]},
        c=None,
    )
    assert (stage.status, stage.code) == ("suspended", "WAITING_FOR_APPROVAL")

    stage.run.approve("release", {"ok": True}, by=Decider("u2"))
    stage.go_on()

    assert stage.value("b") == [True, "u2"]
    assert "c" not in stage.diary


@dataclass
class Release:
    """What a decision must be."""

    ok: bool


def test_an_approvals_data_may_have_a_schema_by_name(stage: Stage) -> None:
    """Spec 2.7: invalid data are refused with their place, and the gate stays closed."""
    stage.play(a={"approval": "release", "schema": f"{__name__}:Release", "next": "b"}, b={"input": ref("a", "data")})
    stage.run.approve("release", {"ok": "perhaps"})
    stage.go_on()
    assert stage.status == "suspended"
    error = stage.step("__workflow_approval:release").error
    assert error is not None
    assert "ok" in error.message

    stage.run.approve("release", {"ok": True})
    stage.go_on()

    assert stage.value("b") == [{"ok": True}]


@pytest.mark.parametrize("stage", ON_WORKERS, indirect=True)
def test_an_approval_that_expires_takes_its_other_branch(stage: Stage) -> None:
    """Spec 2.7: nobody decided in time."""
    stage.play(a={"approval": "release", "expiry": "3d", "next": {"decided": "b", "expired": "c"}}, b=None, c=None)
    stage.world.advance("4d")

    assert stage.diary == ["c"]
    assert stage.status == "completed"


def test_a_signal_node_gives_its_payload(stage: Stage) -> None:
    """Design 1: a signal is kept until somebody waits."""
    stage.play(a={"wait_for": "courier", "next": "b"}, b={"input": [ref("a", "name")]})
    assert (stage.status, stage.code) == ("suspended", "WAITING_FOR_SIGNAL")

    stage.run.signal("courier", {"name": "Bob"})
    stage.go_on()

    assert stage.value("b") == ["Bob"]


@pytest.mark.parametrize("stage", ON_WORKERS, indirect=True)
def test_a_signal_that_does_not_come_may_be_recovered(stage: Stage) -> None:
    """Spec 3.6: a wait that is over is a failed node."""
    stage.play(a={"wait_for": "courier", "timeout": "1d", "recover": "b"}, b=None)
    stage.world.advance("2d")

    assert stage.diary == ["b"]
    assert stage.status == "completed"


def test_gates_beside_each_other_are_all_reached(stage: Stage) -> None:
    """Each may be opened first; what follows one goes on while the other is closed."""
    stage.play(["a", "b"], a={"suspend": "one", "next": "c"}, b={"approval": "two", "next": "d"}, c=None, d=None)
    assert stage.status == "suspended"
    assert [step.status.value for step in stage.steps()] == ["suspended", "suspended"]

    stage.run.approve("two", None)
    stage.go_on()
    assert stage.diary == ["d"]
    assert (stage.status, stage.code) == ("suspended", "WORKFLOW_SUSPENDED")
    stage.run.resume("one")
    stage.go_on()

    assert stage.diary == ["d", "c"]
    assert stage.status == "completed"


def test_a_closed_gate_does_not_stop_the_other_branch() -> None:
    """Design 3.10: a run with a step in flight is running, so that its worker may take it."""
    with staged("away") as stage:
        flow = stage.graph(["a", "b"], a={"suspend": "one"}, b={"sleep": "1h", "next": "c"}, c=None)
        stage.run = flow.using(run_id="r1").start(None)
        stage.world.work()
        assert stage.status == "running"

        stage.world.advance("2h")

        assert stage.diary == ["c"]
        assert stage.status == "suspended"


def test_an_approval_in_a_cycle_is_asked_for_again(stage: Stage) -> None:
    """A decision is addressed by its reason, so each round has its own."""
    rounds = []

    def judge(*_: Any) -> None:
        rounds.append(1)
        current_step().branch("again" if len(rounds) == 1 else "out")

    stage.says = {"b": judge}
    stage.play(a={"approval": "release", "next": "b"}, b={"next": {"again": "a", "out": []}})
    stage.run.approve("release", "no")
    stage.go_on()
    assert stage.status == "suspended"
    stage.run.approve("release 2", "yes")
    stage.go_on()

    assert stage.status == "completed"
    assert [name for name, _ in stage.begun()] == [
        "__workflow_approval:release",
        "b",
        "__workflow_approval:release 2",
        "b#1",
    ]


def test_a_list_that_a_gate_gave_is_gone_through_when_the_gate_gives_another(stage: Stage) -> None:
    """Spec 3.4, docs/graphs.md: the items are those of the time at which the node began, whatever its gate is told meanwhile."""

    def each(order: int) -> int:
        if order == 1:
            stage.run.signal("orders", [9])
        return order

    def again() -> None:
        if current_step().step == "again":
            current_step().branch("more")

    stage.says = {"each": each, "again": again}
    stage.play(
        "orders",
        orders={"wait_for": "orders", "next": ["again", "each"]},
        again={"next": {"more": "orders"}},
        each={"for_each": ref("orders"), "mode": "sequential"},
    )
    stage.run.signal("orders", [1, 2, 3])
    stage.go_on()

    assert stage.value("__workflow_signal:orders#1") == [9]
    assert stage.value("each") == [1, 2, 3]
    assert stage.status == "completed"
