"""The sweep for stalled runs: unseen news, lost passes, and what bookkeeping missed (design 3.8, spec 7, 13.10)."""

from __future__ import annotations

import pytest

from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.run import ParentStep
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus, SuspendCode
from pikkuflow.domain.step import Place
from tests.contract.scene import BOOM, Scene, new_run, new_step, race


def test_a_run_whose_first_wake_up_was_lost_is_found(scene: Scene) -> None:
    """T10.1, T10.3, spec 16.5: a run is inserted with unseen news; found once that is old enough, not before."""
    scene.insert()
    assert scene.stalled() == []
    scene.advance(11)
    assert scene.stalled() == ["r1"]


def test_the_startup_pass_finds_it_at_once(scene: Scene) -> None:
    """Design 3.8: thresholds 0 at startup."""
    scene.insert()
    assert scene.stalled(0.0) == ["r1"]


def test_news_that_nobody_saw_is_found(scene: Scene) -> None:
    """Spec 16.5: the worker died between the outcome and the wake-up."""
    scene.dispatch("a")
    scene.claimed()
    scene.succeed()
    scene.advance(11)
    (ref,) = scene.store.sweep_stalled(scene.sweep()).runs
    assert (ref.id, ref.workflow) == ("r1", "shop.order")


@pytest.mark.parametrize("status", [RunStatus.SUSPENDED, RunStatus.COMPENSATING])
def test_every_run_that_is_not_settled_is_looked_after(scene: Scene, status: RunStatus) -> None:
    """D14, design 3.8: suspended and compensating included."""
    scene.dispatch("a")
    scene.claimed()
    scene.succeed()
    scene.stop(status=status)
    scene.advance(11)
    assert scene.stalled() == ["r1"]


def test_a_settled_run_is_left_alone(scene: Scene) -> None:
    """T10.6: whatever news it has."""
    scene.dispatch("a")
    scene.claimed()
    scene.open(by="p2")
    scene.succeed()
    scene.close(scene.ref(by="p2"), status=RunStatus.COMPLETED, output="1")
    scene.advance(3600)
    assert scene.stalled(0.0) == []


def test_a_healthy_run_is_left_alone(scene: Scene) -> None:
    """T10.2, T10.10: a run with a live pass, a run whose steps are in flight, and one that sleeps have nothing unseen."""
    scene.dispatch("a", run_id="in-flight")
    scene.claimed(run_id="in-flight", holder="node-b:1")
    scene.sleeping("asleep", 3600.0)
    scene.dispatch("a", run_id="held")
    scene.claimed(run_id="held")
    scene.open("held", "p2", lease=600.0)
    scene.succeed(run_id="held")
    scene.advance(55)
    assert scene.stalled() == []


def test_a_lapsed_pass_is_found(scene: Scene) -> None:
    """Design 3.8, spec 16.5: the process died in the middle of a pass that had seen everything."""
    scene.begin()
    scene.advance(29)
    assert scene.stalled() == []
    scene.advance(20)
    assert scene.stalled() == ["r1"]


def test_a_delayed_run_is_not_woken_before_its_time(scene: Scene) -> None:
    """Design 1: a run with a countdown has unseen news from the start, and still waits."""
    scene.insert(delay_seconds=300.0)
    scene.advance(60)
    assert scene.stalled(0.0) == []
    assert scene.due() == []
    scene.advance(250)
    assert scene.due() == ["r1"]


def test_a_run_that_is_driven_in_vain_is_driven_less_and_less(scene: Scene) -> None:
    """T10.4, D13: 30 s, doubling, at most ten minutes; shared by the fleet as it is stored."""
    scene.insert()
    scene.advance(11)
    for seconds in (30, 60, 120, 240, 480, 600, 600):
        assert scene.stalled(0.0) == ["r1"]
        assert scene.stalled(0.0) == []
        scene.advance(seconds - 5)
        assert scene.stalled(0.0) == []
        scene.advance(6)


def test_a_run_that_moved_is_found_as_quickly_as_before(scene: Scene) -> None:
    """D13: the backoff is forgotten once a pass opened, so that the next loss does not wait for it."""
    scene.insert()
    scene.advance(11)
    for _ in range(3):
        scene.stalled()
        scene.advance(601)
    scene.open()
    scene.insert_steps(scene.ref(), "a")
    scene.park(scene.ref(), sent=(StepName("a"),))
    scene.claimed()
    scene.succeed()
    scene.advance(11)
    assert scene.stalled() == ["r1"]


def test_one_sweeper_drives_a_run(scene: Scene) -> None:
    """D13: two sweeps at once do not both drive the same run, though nobody else keeps them apart."""
    scene.store.insert_runs([new_run(f"r{index}") for index in range(10)])
    scene.advance(11)
    first, second = race(*[scene.stalled] * 2)
    assert sorted(first + second) == sorted(f"r{index}" for index in range(10))


def test_a_page_goes_on_after_the_last_key(scene: Scene) -> None:
    """D12: pages are bounded, skip nothing and repeat nothing."""
    scene.store.insert_runs([new_run(f"r{index}") for index in range(7)])
    scene.advance(11)
    pages = scene.pages(scene.store.sweep_stalled, 10.0, 3)
    assert max(len(page.runs) for page in pages) <= 3
    assert sorted(ref.id for page in pages for ref in page.runs) == [f"r{index}" for index in range(7)]


# --- the backstop -----------------------------------------------------------------------------------------------------


def _forgotten(scene: Scene) -> None:
    """A run that bookkeeping lost: running, everything seen, nothing in flight."""
    ref = scene.begin()
    scene.write(ref, StepStatus.SUCCEEDED)
    scene.park(ref)


def test_a_run_that_nothing_will_move_gets_a_pass(scene: Scene) -> None:
    """I7, design 3.8: untouched for five minutes, with backoff."""
    _forgotten(scene)
    scene.advance(290)
    assert scene.stalled(0.0) == []
    scene.advance(20)
    assert scene.stalled() == ["r1"]
    assert scene.stalled() == []
    scene.advance(31)
    assert scene.stalled() == ["r1"]


def test_a_run_that_only_the_backstop_found_is_named_once(scene: Scene) -> None:
    """Design 3.8: what is warned of is not what had unseen news or a lapsed pass, nor the same message sent again."""
    _forgotten(scene)
    scene.insert("news")
    scene.begin("lapsed")
    scene.advance(310)
    page = scene.store.sweep_stalled(scene.sweep())
    assert sorted(ref.id for ref in page.runs) == ["lapsed", "news", "r1"]
    assert page.forgotten == ("r1",)
    scene.advance(31)
    page = scene.store.sweep_stalled(scene.sweep())
    assert "r1" in [ref.id for ref in page.runs]
    assert page.forgotten == ()


def test_a_compensating_run_that_nothing_will_move_gets_a_pass(scene: Scene) -> None:
    """Design 3.8: the backstop is for compensating runs, too, and not for suspended ones, which wait for a person."""
    _forgotten(scene)
    scene.stop()
    scene.insert("r2")
    scene.open("r2", "p2")
    scene.close(scene.ref("r2", "p2"), status=RunStatus.SUSPENDED, code=SuspendCode.WORKFLOW_SUSPENDED, error=BOOM)
    scene.advance(310)
    assert scene.stalled() == ["r1"]


def test_what_will_move_by_itself_needs_no_backstop(scene: Scene) -> None:
    """Design 3.8: a live claim, an unsent row, a due time and a live child each bring the run on."""
    scene.dispatch("a", run_id="claimed", lease_seconds=3600.0)
    scene.claimed(run_id="claimed")
    scene.park(scene.begin("due"), due_seconds=3600.0)
    scene.sleeping("asleep", 3600.0)
    unsent = scene.begin("unsent")
    scene.insert_steps(unsent, "a")
    scene.park(unsent)
    above = scene.begin("above")
    row = new_step("child", kind=StepKind.CHILD, task="shop.invoice", place=Place.child("below"), queue=None)
    child = new_run("below", parent=ParentStep(run_id=RunId("above"), step=StepName("child")))
    scene.store.start_child(above, row, child)
    scene.park(above)
    scene.open("below", "pb", lease=3600.0)
    scene.advance(310)
    assert scene.stalled() == []


def test_a_row_that_nobody_works_any_more_does_not_hold_the_backstop(scene: Scene) -> None:
    """A recorded start whose pass closed without its outcome is waited for by nobody."""
    ref = scene.begin()
    scene.write(ref, StepStatus.RUNNING)
    scene.park(ref)
    scene.advance(310)
    assert scene.stalled() == ["r1"]
