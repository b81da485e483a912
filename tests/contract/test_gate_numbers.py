"""The place of gates in the order of a run, in every store (``pikkuflow.domain.step.first_no``)."""

from __future__ import annotations

from typing import Any

from pikkuflow.domain.act import PassRef
from pikkuflow.domain.gate import gate_name
from pikkuflow.domain.gate_act import GateVerdict, NewSignal
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import StepKind, StepStatus
from pikkuflow.domain.step import Step, first_no
from tests.contract.scene import Scene, new_step

R1 = RunId("r1")


def _reach(scene: Scene, ref: PassRef, kind: StepKind, text: str = "x", **more: Any) -> Step:
    gate = new_step(gate_name(kind, text), kind=kind, task=text, args=None, retries=0, queue=None, **more)
    reached = scene.store.reach_gate(ref, gate)
    assert reached is not None
    assert reached.row is not None
    return reached.row


def test_a_suspension_settles_as_what_comes_from_outside(scene: Scene) -> None:
    """Spec 3.3: what a later pass takes for known when a step began goes by these numbers, of gates as of any step."""
    waiting = _reach(scene, scene.begin(), StepKind.SUSPEND, begun_no=7)
    outside = first_no(scene.run().news + 1)

    scene.store.resume_run(R1)

    assert (scene.step(str(waiting.name)).begun_no, scene.step(str(waiting.name)).settled_no) == (7, outside)


def test_a_wait_settles_at_the_reach_that_found_its_signal_or_its_time_over(scene: Scene) -> None:
    """As above: also when the row was there before, with a number of its own."""
    ref = scene.begin()
    _reach(scene, ref, StepKind.SIGNAL, begun_no=7)
    scene.store.send_signal(R1, NewSignal(id="s1", name="x", payload="1"))

    found = _reach(scene, ref, StepKind.SIGNAL, begun_no=8)
    over = _reach(scene, ref, StepKind.SIGNAL, "late", begun_no=9, delay_seconds=0.0)

    assert (found.status, found.begun_no, found.settled_no) == (StepStatus.SUCCEEDED, 7, 8)
    assert (over.status, over.begun_no, over.settled_no) == (StepStatus.FAILED, 9, 9)


def test_an_approval_settles_as_its_verdict_says(scene: Scene) -> None:
    """As above."""
    ref = scene.begin()
    waiting = _reach(scene, ref, StepKind.APPROVAL, begun_no=9)

    scene.store.settle_gate(ref, GateVerdict(step=waiting.name, no=10, result='"yes"'))

    assert (scene.step(str(waiting.name)).begun_no, scene.step(str(waiting.name)).settled_no) == (9, 10)
