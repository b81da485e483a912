"""The sweeps for undispatched steps and for what is due (design 3.8, 4, spec 7, 13.10)."""

from __future__ import annotations

from pikkuflow.domain.act import StepMessage, Swept
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.run import ParentStep
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus, SuspendCode
from pikkuflow.domain.step import Place
from tests.contract.scene import BOOM, Scene, new_run, new_step

# --- undispatched steps -----------------------------------------------------------------------------------------------


def test_a_step_that_was_never_sent_is_found(scene: Scene) -> None:
    """Spec 16.5: the process died between the row and the message; the message is made of the row."""
    ref = scene.begin()
    scene.insert_steps(ref, "a", options='{"priority":3}')
    scene.park(ref)
    assert scene.undispatched() == []
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
    assert scene.undispatched() == [("a", 1)]
    assert scene.undispatched() == []
    scene.advance(31)
    assert scene.undispatched() == [("a", 1)]
    scene.advance(31)
    assert scene.undispatched() == []
    scene.advance(30)
    assert scene.undispatched() == [("a", 1)]


def test_the_startup_pass_sends_at_once(scene: Scene) -> None:
    """Design 3.8: threshold 0; next-send times are respected all the same."""
    scene.dispatch("a")
    assert scene.undispatched(0.0) == [("a", 1)]
    assert scene.undispatched(0.0) == []


def test_a_lapsed_claim_is_sent_again_and_stays_running(scene: Scene) -> None:
    """T6.5, T6.7, design 3.8: with the same attempt, so that the claim counts it."""
    scene.dispatch("a")
    scene.claimed()
    scene.advance(59)
    assert scene.undispatched() == []
    scene.advance(2)
    assert scene.undispatched() == [("a", 1)]
    assert (scene.step().status, scene.step().attempt) == (StepStatus.RUNNING, 1)
    assert scene.claimed(claim="c2").attempt == 2


def test_a_live_claim_is_left_alone(scene: Scene) -> None:
    """T6.8: nothing is sent for a step that is being worked."""
    scene.dispatch("a", lease_seconds=3600.0)
    scene.claimed()
    scene.advance(1800)
    assert scene.undispatched(0.0) == []


def test_a_step_that_moved_forgets_its_backoff(scene: Scene) -> None:
    """D13: a claim is a sign of life; when it lapses the message goes out at once."""
    scene.dispatch("a")
    scene.advance(31)
    for _ in range(4):
        scene.undispatched()
        scene.advance(301)
    scene.claimed()
    scene.advance(61)
    assert scene.undispatched() == [("a", 1)]


def test_rows_that_are_not_yet_due_are_left(scene: Scene) -> None:
    """D21: neither a countdown nor a retry's delay is cut short."""
    scene.dispatch("a", delay_seconds=300.0)
    scene.dispatch("b", run_id="r2")
    scene.claimed("b", run_id="r2")
    scene.try_again("b", delay_seconds=300.0, run_id="r2")
    scene.advance(60)
    assert scene.undispatched(0.0) == []


def test_rows_that_a_pass_or_a_child_works_are_never_sent(scene: Scene) -> None:
    """D1: the row says where its step is worked."""
    scene.sleeping(seconds=1.0)
    ref = scene.begin("r2", "p2")
    scene.write(ref, StepStatus.RUNNING)
    scene.store.start_child(
        ref,
        new_step("child", seq=1, kind=StepKind.CHILD, task="shop.invoice", place=Place.child("c"), queue=None),
        new_run("c", parent=ParentStep(run_id=RunId("r2"), step=StepName("child"))),
    )
    scene.park(ref)
    scene.advance(600)
    assert scene.undispatched(0.0) == []


def test_steps_of_a_run_that_is_over_are_not_sent(scene: Scene) -> None:
    """T10.6: neither waiting rows nor lapsed claims."""
    scene.dispatch("a", "b")
    scene.claimed("a")
    scene.open(by="p2")
    scene.close(scene.ref(by="p2"), status=RunStatus.FAILED, error=BOOM)
    scene.advance(3600)
    assert scene.undispatched(0.0) == []


def test_steps_come_in_pages(scene: Scene) -> None:
    """D12: over several runs, each row once, and a page never holds more than asked for."""
    names = [f"m[{index}]" for index in range(5)]
    for run_id in ("r1", "r2"):
        scene.dispatch(*names, run_id=run_id)
    scene.advance(31)
    pages = scene.pages(scene.store.sweep_undispatched, 30.0, 4)
    assert max(len(page.steps) for page in pages) <= 4
    found = sorted((message.run_id, message.name) for page in pages for message in page.steps)
    assert found == sorted((run_id, name) for run_id in ("r1", "r2") for name in names)


# --- scheduled rows ---------------------------------------------------------------------------------------------------


def test_a_sleep_that_is_due_wakes_its_run(scene: Scene) -> None:
    """T10.7, design 4: a lost hint costs at most one sweep interval; a sleep is never cut short."""
    scene.sleeping(seconds=60.0)
    scene.advance(50)
    assert scene.due() == []
    scene.advance(20)
    assert scene.due() == ["r1"]
    assert scene.due() == []
    scene.advance(31)
    assert scene.due() == ["r1"]


def test_a_run_that_is_due_is_not_driven_for_its_rows_as_well(scene: Scene) -> None:
    """T10.5, D12: a sleeper whose run has the time too is found once, whatever the page; a row due before its run counts by itself."""
    ref = scene.begin()
    nap = {"kind": StepKind.SLEEP, "task": None, "args": None, "place": Place.in_pass("p1"), "queue": None}
    scene.store.insert_steps(ref, [new_step("nap", delay_seconds=60.0, **nap)])
    scene.park(ref, due_seconds=60.0)
    scene.advance(61)
    pages = scene.pages(scene.store.sweep_scheduled, 0.0, 1)
    assert [run.id for page in pages for run in page.runs] == ["r1"]

    scene.advance(31)
    scene.open(by="p2")
    scene.park(scene.ref(by="p2"), due_seconds=3600.0)
    assert scene.due() == ["r1"]


def test_a_threshold_keeps_what_became_due_just_now(scene: Scene) -> None:
    """Spec 7.3: only what is due for longer than the threshold."""
    scene.sleeping(seconds=60.0)
    scene.advance(65)
    assert scene.store.sweep_scheduled(scene.sweep(30.0)).runs == ()
    scene.advance(30)
    assert [ref.id for ref in scene.store.sweep_scheduled(scene.sweep(30.0)).runs] == ["r1"]


def test_a_run_that_asked_to_be_tried_again_is_woken(scene: Scene) -> None:
    """Design 3.10: a suspended run with a ``due_at`` is tried again like a timer."""
    scene.close(
        scene.begin(), status=RunStatus.SUSPENDED, code=SuspendCode.VERSION_CONFLICT, error=BOOM, due_seconds=30.0
    )
    scene.advance(35)
    assert scene.due() == ["r1"]


def test_an_in_place_retry_that_is_due_wakes_its_run(scene: Scene) -> None:
    """Design 3.8: in-place rows are the run's to work."""
    ref = scene.begin()
    scene.write(ref, StepStatus.PENDING, attempt=2, delay_seconds=20.0)
    scene.park(ref)
    scene.advance(25)
    swept = scene.store.sweep_scheduled(scene.sweep(0.0))
    assert ([found.id for found in swept.runs], swept.steps) == (["r1"], ())


def test_a_dispatched_retry_that_is_due_is_sent(scene: Scene) -> None:
    """Design 3.8, D2: as a message with the attempt that waits; a pass has nothing to do for it."""
    scene.dispatch("a")
    scene.claimed()
    scene.try_again(delay_seconds=20.0)
    scene.advance(10)
    assert scene.store.sweep_scheduled(scene.sweep(0.0)) == Swept()
    scene.advance(15)
    swept = scene.store.sweep_scheduled(scene.sweep(0.0))
    assert [(message.name, message.attempt) for message in swept.steps] == [("a", 2)]
    assert swept.runs == ()


def test_a_due_row_is_not_driven_by_two_kinds_of_sweep(scene: Scene) -> None:
    """T10.5: the next-send time is shared by all who drive the row."""
    scene.dispatch("a")
    scene.claimed()
    scene.try_again(delay_seconds=1.0)
    scene.advance(60)
    assert len(scene.store.sweep_scheduled(scene.sweep(0.0)).steps) == 1
    assert scene.undispatched(0.0) == []


def test_a_held_run_is_not_woken_for_what_is_due(scene: Scene) -> None:
    """T10.10: the pass that has it looks by itself, and its closing says when to look again."""
    scene.sleeping(seconds=1.0)
    scene.open(by="p2", lease=600.0)
    scene.advance(60)
    assert scene.due() == []


def test_a_settled_run_has_nothing_due(scene: Scene) -> None:
    """T10.6: its due times went with it."""
    scene.sleeping(seconds=1.0)
    scene.store.ask_pass(RunId("r1"), 1.0)
    scene.open(by="p2")
    scene.close(scene.ref(by="p2"), status=RunStatus.COMPLETED, output="1")
    scene.advance(60)
    assert scene.store.sweep_scheduled(scene.sweep(0.0)) == Swept()


def test_due_runs_come_in_pages(scene: Scene) -> None:
    """D12: a hundred thousand sleepers are no reason for a large page."""
    for index in range(7):
        scene.sleeping(f"r{index}", 1.0)
    scene.advance(5)
    pages = scene.pages(scene.store.sweep_scheduled, 0.0, 3)
    assert max(len(page.runs) + len(page.steps) for page in pages) <= 3
    assert sorted({ref.id for page in pages for ref in page.runs}) == [f"r{index}" for index in range(7)]
