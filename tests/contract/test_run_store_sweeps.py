"""Sweeps: what bookkeeping and messages lost is found, in pages, and not again at once (design 3.8, spec 7, 13.10)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pikkuflow.domain.act import StepMessage, SweepRequest, Swept
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.run import ParentStep
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus, SuspendCode
from pikkuflow.domain.step import Place
from tests.contract.scene import BOOM, Scene, new_run, new_step, race


def _stalled(scene: Scene, older_than: float = 10.0) -> list[str]:
    return [ref.id for ref in scene.store.sweep_stalled(scene.sweep(older_than)).runs]


def _undispatched(scene: Scene, older_than: float = 30.0) -> list[tuple[str, int]]:
    return [
        (message.name, message.attempt) for message in scene.store.sweep_undispatched(scene.sweep(older_than)).steps
    ]


def _scheduled(scene: Scene, older_than: float = 0.0) -> Swept:
    return scene.store.sweep_scheduled(scene.sweep(older_than))


def _due(scene: Scene) -> list[str]:
    return [ref.id for ref in _scheduled(scene).runs]


def _pages(sweep: Callable[[SweepRequest], Swept], scene: Scene, older_than: float, limit: int) -> list[Swept]:
    pages = [sweep(scene.sweep(older_than, limit))]
    while pages[-1].last is not None:
        pages.append(sweep(scene.sweep(older_than, limit, after=pages[-1].last)))
    return pages


def _sleeping(scene: Scene, run_id: str = "r1", seconds: float = 60.0) -> None:
    ref = scene.begin(run_id)
    nap = new_step("nap", kind=StepKind.SLEEP, task=None, args=None, place=Place.in_pass("p1"), delay_seconds=seconds)
    scene.store.insert_steps(ref, [nap])
    scene.park(ref)


# --- stalled runs -----------------------------------------------------------------------------------------------------


def test_a_run_whose_first_wake_up_was_lost_is_found(scene: Scene) -> None:
    """T10.1, T10.3, spec 16.5: a run is inserted with unseen news; found once that is old enough, not before."""
    scene.insert()
    assert _stalled(scene) == []
    scene.advance(11)
    assert _stalled(scene) == ["r1"]


def test_the_startup_pass_finds_it_at_once(scene: Scene) -> None:
    """Design 3.8: thresholds 0 at startup."""
    scene.insert()
    assert _stalled(scene, 0.0) == ["r1"]


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
    assert _stalled(scene) == ["r1"]


def test_a_settled_run_is_left_alone(scene: Scene) -> None:
    """T10.6: whatever news it has."""
    scene.dispatch("a")
    scene.claimed()
    scene.open(by="p2")
    scene.succeed()
    scene.close(scene.ref(by="p2"), status=RunStatus.COMPLETED, output="1")
    scene.advance(3600)
    assert _stalled(scene, 0.0) == []


def test_a_healthy_run_is_left_alone(scene: Scene) -> None:
    """T10.2, T10.10: a run with a live pass, a run whose steps are in flight, and one that sleeps have nothing unseen."""
    scene.dispatch("a", run_id="in-flight")
    scene.claimed(run_id="in-flight", holder="node-b:1")
    _sleeping(scene, "asleep", 3600.0)
    scene.dispatch("a", run_id="held")
    scene.claimed(run_id="held")
    scene.open("held", "p2", lease=600.0)
    scene.succeed(run_id="held")
    scene.advance(55)
    assert _stalled(scene) == []


def test_a_lapsed_pass_is_found(scene: Scene) -> None:
    """Design 3.8, spec 16.5: the process died in the middle of a pass that had seen everything."""
    scene.begin()
    scene.advance(29)
    assert _stalled(scene) == []
    scene.advance(20)
    assert _stalled(scene) == ["r1"]


def test_a_delayed_run_is_not_woken_before_its_time(scene: Scene) -> None:
    """Design 1: a run with a countdown has unseen news from the start, and still waits."""
    scene.insert(delay_seconds=300.0)
    scene.advance(60)
    assert _stalled(scene, 0.0) == []
    assert _due(scene) == []
    scene.advance(250)
    assert _due(scene) == ["r1"]


def test_a_run_that_is_driven_in_vain_is_driven_less_and_less(scene: Scene) -> None:
    """T10.4, D13: 30 s, doubling, at most ten minutes; shared by the fleet as it is stored."""
    scene.insert()
    scene.advance(11)
    for seconds in (30, 60, 120, 240, 480, 600, 600):
        assert _stalled(scene, 0.0) == ["r1"]
        assert _stalled(scene, 0.0) == []
        scene.advance(seconds - 5)
        assert _stalled(scene, 0.0) == []
        scene.advance(6)


def test_a_run_that_moved_is_found_as_quickly_as_before(scene: Scene) -> None:
    """D13: the backoff is forgotten once a pass opened, so that the next loss does not wait for it."""
    scene.insert()
    scene.advance(11)
    for _ in range(3):
        _stalled(scene)
        scene.advance(601)
    scene.open()
    scene.insert_steps(scene.ref(), "a")
    scene.park(scene.ref(), sent=(StepName("a"),))
    scene.claimed()
    scene.succeed()
    scene.advance(11)
    assert _stalled(scene) == ["r1"]


def test_one_sweeper_drives_a_run(scene: Scene) -> None:
    """D13: two sweeps at once do not both drive the same run, though nobody else keeps them apart."""
    scene.store.insert_runs([new_run(f"r{index}") for index in range(10)])
    scene.advance(11)
    first, second = race(*[lambda: _stalled(scene)] * 2)
    assert sorted(first + second) == sorted(f"r{index}" for index in range(10))


def test_a_page_goes_on_after_the_last_key(scene: Scene) -> None:
    """D12: pages are bounded, skip nothing and repeat nothing."""
    scene.store.insert_runs([new_run(f"r{index}") for index in range(7)])
    scene.advance(11)
    pages = _pages(scene.store.sweep_stalled, scene, 10.0, 3)
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
    assert _stalled(scene, 0.0) == []
    scene.advance(20)
    assert _stalled(scene) == ["r1"]
    assert _stalled(scene) == []
    scene.advance(31)
    assert _stalled(scene) == ["r1"]


def test_a_compensating_run_that_nothing_will_move_gets_a_pass(scene: Scene) -> None:
    """Design 3.8: the backstop is for compensating runs, too, and not for suspended ones, which wait for a person."""
    _forgotten(scene)
    scene.stop()
    scene.insert("r2")
    scene.open("r2", "p2")
    scene.close(scene.ref("r2", "p2"), status=RunStatus.SUSPENDED, code=SuspendCode.WORKFLOW_SUSPENDED, error=BOOM)
    scene.advance(310)
    assert _stalled(scene) == ["r1"]


def test_what_will_move_by_itself_needs_no_backstop(scene: Scene) -> None:
    """Design 3.8: a live claim, an unsent row, a due time and a live child each bring the run on."""
    scene.dispatch("a", run_id="claimed", lease_seconds=3600.0)
    scene.claimed(run_id="claimed")
    scene.park(scene.begin("due"), due_seconds=3600.0)
    _sleeping(scene, "asleep", 3600.0)
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
    assert _stalled(scene) == []


def test_a_row_that_nobody_works_any_more_does_not_hold_the_backstop(scene: Scene) -> None:
    """A recorded start whose pass closed without its outcome is waited for by nobody."""
    ref = scene.begin()
    scene.write(ref, StepStatus.RUNNING)
    scene.park(ref)
    scene.advance(310)
    assert _stalled(scene) == ["r1"]


# --- undispatched steps -----------------------------------------------------------------------------------------------


def test_a_step_that_was_never_sent_is_found(scene: Scene) -> None:
    """Spec 16.5: the process died between the row and the message; the message is made of the row."""
    ref = scene.begin()
    scene.insert_steps(ref, "a", options='{"priority":3}')
    scene.park(ref)
    assert _undispatched(scene) == []
    scene.advance(31)
    swept = scene.store.sweep_undispatched(scene.sweep(30.0))
    assert swept.runs == ()
    assert swept.steps == (
        StepMessage(
            run_id=RunId("r1"),
            name=StepName("a"),
            attempt=1,
            task="shop.pack",
            queue="packers",
            options='{"priority":3}',
        ),
    )


def test_a_step_that_was_sent_and_not_picked_up_is_found(scene: Scene) -> None:
    """T10.8, spec 16.5: its message was lost; sent again once per backoff window."""
    scene.dispatch("a")
    scene.advance(31)
    assert _undispatched(scene) == [("a", 1)]
    assert _undispatched(scene) == []
    scene.advance(31)
    assert _undispatched(scene) == [("a", 1)]
    scene.advance(31)
    assert _undispatched(scene) == []
    scene.advance(30)
    assert _undispatched(scene) == [("a", 1)]


def test_the_startup_pass_sends_at_once(scene: Scene) -> None:
    """Design 3.8: threshold 0; next-send times are respected all the same."""
    scene.dispatch("a")
    assert _undispatched(scene, 0.0) == [("a", 1)]
    assert _undispatched(scene, 0.0) == []


def test_a_lapsed_claim_is_sent_again_and_stays_running(scene: Scene) -> None:
    """T6.5, T6.7, design 3.8: with the same attempt, so that the claim counts it."""
    scene.dispatch("a")
    scene.claimed()
    scene.advance(59)
    assert _undispatched(scene) == []
    scene.advance(2)
    assert _undispatched(scene) == [("a", 1)]
    assert (scene.step().status, scene.step().attempt) == (StepStatus.RUNNING, 1)
    assert scene.claimed(claim="c2").attempt == 2


def test_a_live_claim_is_left_alone(scene: Scene) -> None:
    """T6.8: nothing is sent for a step that is being worked."""
    scene.dispatch("a", lease_seconds=3600.0)
    scene.claimed()
    scene.advance(1800)
    assert _undispatched(scene, 0.0) == []


def test_a_step_that_moved_forgets_its_backoff(scene: Scene) -> None:
    """D13: a claim is a sign of life; when it lapses the message goes out at once."""
    scene.dispatch("a")
    scene.advance(31)
    for _ in range(4):
        _undispatched(scene)
        scene.advance(301)
    scene.claimed()
    scene.advance(61)
    assert _undispatched(scene) == [("a", 1)]


def test_rows_that_are_not_yet_due_are_left(scene: Scene) -> None:
    """D21: neither a countdown nor a retry's delay is cut short."""
    scene.dispatch("a", delay_seconds=300.0)
    scene.dispatch("b", run_id="r2")
    scene.claimed("b", run_id="r2")
    scene.try_again("b", delay_seconds=300.0, run_id="r2")
    scene.advance(60)
    assert _undispatched(scene, 0.0) == []


def test_rows_that_a_pass_or_a_child_works_are_never_sent(scene: Scene) -> None:
    """D1: the row says where its step is worked."""
    _sleeping(scene, seconds=1.0)
    ref = scene.begin("r2", "p2")
    scene.write(ref, StepStatus.RUNNING)
    scene.store.start_child(
        ref,
        new_step("child", seq=1, kind=StepKind.CHILD, task="shop.invoice", place=Place.child("c"), queue=None),
        new_run("c", parent=ParentStep(run_id=RunId("r2"), step=StepName("child"))),
    )
    scene.park(ref)
    scene.advance(600)
    assert _undispatched(scene, 0.0) == []


def test_steps_of_a_run_that_is_over_are_not_sent(scene: Scene) -> None:
    """T10.6: neither waiting rows nor lapsed claims."""
    scene.dispatch("a", "b")
    scene.claimed("a")
    scene.open(by="p2")
    scene.close(scene.ref(by="p2"), status=RunStatus.FAILED, error=BOOM)
    scene.advance(3600)
    assert _undispatched(scene, 0.0) == []


def test_steps_come_in_pages(scene: Scene) -> None:
    """D12: over several runs, each row once, and a page never holds more than asked for."""
    names = [f"m[{index}]" for index in range(5)]
    for run_id in ("r1", "r2"):
        scene.dispatch(*names, run_id=run_id)
    scene.advance(31)
    pages = _pages(scene.store.sweep_undispatched, scene, 30.0, 4)
    assert max(len(page.steps) for page in pages) <= 4
    found = sorted((message.run_id, message.name) for page in pages for message in page.steps)
    assert found == sorted((run_id, name) for run_id in ("r1", "r2") for name in names)


# --- scheduled rows ---------------------------------------------------------------------------------------------------


def test_a_sleep_that_is_due_wakes_its_run(scene: Scene) -> None:
    """T10.7, design 4: a lost hint costs at most one sweep interval; a sleep is never cut short."""
    _sleeping(scene, seconds=60.0)
    scene.advance(50)
    assert _due(scene) == []
    scene.advance(20)
    assert _due(scene) == ["r1"]
    assert _due(scene) == []
    scene.advance(31)
    assert _due(scene) == ["r1"]


def test_a_threshold_keeps_what_became_due_just_now(scene: Scene) -> None:
    """Spec 7.3: only what is due for longer than the threshold."""
    _sleeping(scene, seconds=60.0)
    scene.advance(65)
    assert _scheduled(scene, 30.0).runs == ()
    scene.advance(30)
    assert [ref.id for ref in _scheduled(scene, 30.0).runs] == ["r1"]


def test_a_run_that_asked_to_be_tried_again_is_woken(scene: Scene) -> None:
    """Design 3.10: a suspended run with a ``due_at`` is tried again like a timer."""
    scene.close(
        scene.begin(), status=RunStatus.SUSPENDED, code=SuspendCode.VERSION_CONFLICT, error=BOOM, due_seconds=30.0
    )
    scene.advance(35)
    assert _due(scene) == ["r1"]


def test_an_in_place_retry_that_is_due_wakes_its_run(scene: Scene) -> None:
    """Design 3.8: in-place rows are the run's to work."""
    ref = scene.begin()
    scene.write(ref, StepStatus.PENDING, attempt=2, delay_seconds=20.0)
    scene.park(ref)
    scene.advance(25)
    swept = _scheduled(scene)
    assert ([found.id for found in swept.runs], swept.steps) == (["r1"], ())


def test_a_dispatched_retry_that_is_due_is_sent(scene: Scene) -> None:
    """Design 3.8, D2: as a message with the attempt that waits; a pass has nothing to do for it."""
    scene.dispatch("a")
    scene.claimed()
    scene.try_again(delay_seconds=20.0)
    scene.advance(10)
    assert _scheduled(scene) == Swept()
    scene.advance(15)
    swept = _scheduled(scene)
    assert [(message.name, message.attempt) for message in swept.steps] == [("a", 2)]
    assert swept.runs == ()


def test_a_due_row_is_not_driven_by_two_kinds_of_sweep(scene: Scene) -> None:
    """T10.5: the next-send time is shared by all who drive the row."""
    scene.dispatch("a")
    scene.claimed()
    scene.try_again(delay_seconds=1.0)
    scene.advance(60)
    assert len(_scheduled(scene).steps) == 1
    assert _undispatched(scene, 0.0) == []


def test_a_held_run_is_not_woken_for_what_is_due(scene: Scene) -> None:
    """T10.10: the pass that has it looks by itself, and its closing says when to look again."""
    _sleeping(scene, seconds=1.0)
    scene.open(by="p2", lease=600.0)
    scene.advance(60)
    assert _due(scene) == []


def test_a_settled_run_has_nothing_due(scene: Scene) -> None:
    """T10.6: its due times went with it."""
    _sleeping(scene, seconds=1.0)
    scene.store.ask_pass(RunId("r1"), 1.0)
    scene.open(by="p2")
    scene.close(scene.ref(by="p2"), status=RunStatus.COMPLETED, output="1")
    scene.advance(60)
    assert _scheduled(scene) == Swept()


def test_due_runs_come_in_pages(scene: Scene) -> None:
    """D12: a hundred thousand sleepers are no reason for a large page."""
    for index in range(7):
        _sleeping(scene, f"r{index}", 1.0)
    scene.advance(5)
    pages = _pages(scene.store.sweep_scheduled, scene, 0.0, 3)
    assert max(len(page.runs) + len(page.steps) for page in pages) <= 3
    assert sorted({ref.id for page in pages for ref in page.runs}) == [f"r{index}" for index in range(7)]
