"""Opening a pass: who may hold a run, and what a lost pass leaves (design 2, 3.1, 3.2)."""

from __future__ import annotations

from functools import partial

from pikkuflow.domain.act import Closing, PassRefusal
from pikkuflow.domain.history import History
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.run import ParentStep
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus, SuspendCode
from pikkuflow.domain.step import Place
from tests.contract.scene import BOOM, Scene, new_run, new_step, race


def test_a_pass_opens_and_knows_the_run_and_its_steps(scene: Scene) -> None:
    """Design 3.2: holder and time are set, news is seen, the status stays, and the steps come in the body's order."""
    ref = scene.begin()
    scene.write(ref, StepStatus.SUCCEEDED, "b", step={"seq": 1}, result="2")
    scene.write(ref, StepStatus.SUCCEEDED, "a", step={"seq": 0}, result="1")
    scene.park(ref)
    history = scene.open(by="p2", holder="node:7")
    assert (history.pass_id, history.run.pass_id, history.run.pass_holder) == ("p2", "p2", "node:7")
    assert history.run.pass_until is not None
    assert history.run.seen == history.run.news
    assert history.run.status is RunStatus.RUNNING
    assert [(step.name, step.result) for step in history.steps] == [("a", "1"), ("b", "2")]


def test_a_live_pass_excludes_others(scene: Scene) -> None:
    """I1, design 3.1: the run's row decides, and nothing of it is changed by who is refused."""
    scene.begin()
    before = scene.run()
    assert scene.try_open(by="p2", holder="node:9") is PassRefusal.HELD
    assert scene.run() == before


def test_one_of_many_concurrent_openings_wins(scene: Scene) -> None:
    """I1: exactly one pass a run, round after round."""
    for turn in range(25):
        run_id = scene.insert(f"r{turn}")
        answers = race(*[partial(scene.try_open, run_id, f"p{n}") for n in range(4)])
        opened = [answer for answer in answers if isinstance(answer, History)]
        assert len(opened) == 1
        assert [answer for answer in answers if answer is not opened[0]] == [PassRefusal.HELD] * 3
        assert scene.run(run_id).pass_id == opened[0].pass_id


def test_a_closed_run_opens_again(scene: Scene) -> None:
    """A pass that closed leaves the run free, unmarked."""
    scene.park(scene.begin())
    history = scene.open(by="p2")
    assert (history.run.lost, history.run.passes_lost) == (False, 0)


def test_opening_again_with_the_same_pass_is_the_same_opening(scene: Scene) -> None:
    """D24: when the answer was lost the opening is asked for again, and counts no lost pass."""
    first = scene.begin()
    history = scene.open(by=first.pass_id)
    assert (history.pass_id, history.run.lost, history.run.passes_lost) == (first.pass_id, False, 0)


def test_a_lapsed_pass_is_taken_and_leaves_the_run_marked_lost(scene: Scene) -> None:
    """Design 2: a pass that ended without closing marks the run, and counts."""
    scene.begin()
    scene.advance(31)
    history = scene.open(by="p2")
    assert (history.run.lost, history.run.passes_lost) == (True, 1)
    assert (scene.run().lost, scene.run().pass_id) == (True, "p2")


def test_closing_does_not_clear_the_mark(scene: Scene) -> None:
    """Design 2: only an in-place outcome of this run clears the mark."""
    scene.begin()
    scene.advance(31)
    scene.open(by="p2")
    scene.park(scene.ref(by="p2"))
    assert (scene.open(by="p3").run.lost, scene.run().passes_lost) == (True, 1)


def test_passes_lost_count_over_passes_without_an_outcome(scene: Scene) -> None:
    """Design 2: unclosed passes in a row add up; a step's recorded start is no outcome and does not reset them."""
    scene.begin()
    for turn in range(3):
        scene.advance(31)
        history = scene.open(by=f"again-{turn}")
        assert history.run.passes_lost == turn + 1
        scene.write(scene.ref(by=f"again-{turn}"), StepStatus.RUNNING, f"s{turn}", step={"seq": turn})


def test_too_many_lost_passes_suspend_the_run(scene: Scene) -> None:
    """Design 2: a body that kills its process is stopped with PASS_LOST, and stays so until it is resumed."""
    scene.begin()
    scene.advance(31)
    scene.open(by="p2", limit=2)
    scene.advance(31)
    assert scene.try_open(by="p3", limit=2) is PassRefusal.LOST
    run = scene.run()
    assert (run.status, run.code, run.pass_id) == (RunStatus.SUSPENDED, SuspendCode.PASS_LOST, None)
    assert run.error is not None
    assert scene.try_open(by="p4", limit=2) is PassRefusal.LOST


def test_a_resumed_run_has_its_lost_passes_forgiven(scene: Scene) -> None:
    """D4: resume clears ``passes_lost``, so that the next lost pass does not suspend at once."""
    scene.begin()
    scene.advance(31)
    assert scene.try_open(by="p2", limit=1) is PassRefusal.LOST
    assert scene.store.resume_run(RunId("r1")) is not None
    history = scene.open(by="p3", limit=1)
    assert history.run.passes_lost == 0


def test_an_outcome_from_elsewhere_ends_a_row_of_lost_passes(scene: Scene) -> None:
    """Design 2: ten in a row *without a new outcome*; the mark stays until an outcome in place."""
    scene.dispatch("a")
    scene.claimed("a")
    scene.open(by="p2")
    scene.advance(31)
    assert scene.open(by="p3", limit=3).run.passes_lost == 1
    scene.succeed("a")
    assert (scene.run().passes_lost, scene.run().lost) == (0, True)
    scene.advance(31)
    assert scene.open(by="p4", limit=2).run.passes_lost == 1


def test_a_failed_attempt_with_attempts_left_ends_no_row_of_lost_passes(scene: Scene) -> None:
    """Design 2: it raises no news and is no outcome yet."""
    scene.dispatch("a")
    scene.claimed("a")
    scene.open(by="p2")
    scene.advance(31)
    scene.open(by="p3", limit=3)
    scene.try_again("a")
    assert scene.run().passes_lost == 1


def test_a_childs_end_ends_its_parents_row_of_lost_passes(scene: Scene) -> None:
    """Design 2, D9: the outcome of a child run is one of the parent's."""
    ref = scene.begin()
    scene.store.start_child(
        ref,
        new_step("kid", kind=StepKind.CHILD, place=Place.child("child"), queue=None),
        new_run("child", parent=ParentStep(run_id=RunId("r1"), step=StepName("kid"))),
    )
    scene.advance(31)
    scene.open(by="p2", limit=3)
    scene.open("child", "p9")
    scene.close(scene.ref("child", "p9"), status=RunStatus.COMPLETED, output="1")
    assert scene.run().passes_lost == 0


def test_a_lapsed_pass_that_nobody_took_may_still_write_and_close(scene: Scene) -> None:
    """Design 3.1: a healthy pass whose time ran out is fenced by a taker, not by the clock."""
    ref = scene.begin()
    scene.advance(120)
    news = scene.write(ref, StepStatus.SUCCEEDED)
    assert news is not None
    assert news.written
    scene.park(ref)


def test_a_pass_that_was_taken_over_writes_nothing(scene: Scene) -> None:
    """I5, design 3.3: every write of the old pass is fenced."""
    old = scene.begin()
    scene.advance(31)
    scene.open(by="p2")
    assert scene.write(old, StepStatus.SUCCEEDED) is None
    assert scene.write(old, StepStatus.RUNNING) is None
    assert scene.insert_steps(old, "b") is None
    assert scene.store.close_pass(old, Closing(status=RunStatus.COMPLETED, output="1")) is None
    assert scene.store.list_steps(old.run_id) == ()
    run = scene.run()
    assert (run.status, run.pass_id) == (RunStatus.RUNNING, "p2")


def test_a_delayed_run_does_not_open_before_its_time(scene: Scene) -> None:
    """Design 1: ``countdown`` keeps the first pass back; nothing is written meanwhile."""
    scene.insert(delay_seconds=60.0)
    before = scene.run()
    assert before.due_at is not None
    assert scene.try_open() is PassRefusal.NOT_DUE
    assert scene.run() == before
    scene.advance(61)
    assert isinstance(scene.try_open(), History)


def test_a_settled_run_does_not_open(scene: Scene) -> None:
    """Spec 16.3, I6: a message for a settled run is answered without a pass."""
    for index, status in enumerate((RunStatus.COMPLETED, RunStatus.FAILED)):
        scene.close(scene.begin(f"r{index}"), status=status)
        before = scene.run(f"r{index}")
        assert scene.try_open(f"r{index}", "p2") is PassRefusal.SETTLED
        assert scene.run(f"r{index}") == before


def test_a_suspended_run_opens_and_stays_suspended(scene: Scene) -> None:
    """T8.5, D3: a stray message may open a suspended run; the opening itself changes no status."""
    scene.close(scene.begin(), status=RunStatus.SUSPENDED, code=SuspendCode.WORKFLOW_SUSPENDED, error=BOOM)
    history = scene.open(by="p2")
    assert (history.run.status, history.run.code) == (RunStatus.SUSPENDED, SuspendCode.WORKFLOW_SUSPENDED)


def test_a_compensating_run_opens(scene: Scene) -> None:
    """Design 3.7: an unwind is a pass, too."""
    scene.park(scene.begin())
    scene.stop()
    assert scene.open(by="p2").run.status is RunStatus.COMPENSATING


def test_an_opening_judges_each_row_by_the_stores_clock(scene: Scene) -> None:
    """``is_due``, ``is_lapsed`` and ``due_in_seconds`` are judged in the statement that reads (design 3.1)."""
    scene.dispatch("a", "b", lease_seconds=60.0)
    scene.claimed("a")
    scene.claimed("b", claim="c2")
    scene.try_again("b", claim="c2", delay_seconds=100.0)
    early = {str(step.name): step for step in scene.open(by="p2").steps}
    scene.park(scene.ref(by="p2"))
    assert (early["a"].is_lapsed, early["b"].is_due) == (False, False)
    assert early["b"].due_in_seconds is not None
    assert 90 < early["b"].due_in_seconds <= 100
    scene.advance(101)
    late = {str(step.name): step for step in scene.open(by="p3").steps}
    assert (late["a"].is_lapsed, late["b"].is_due) == (True, True)


def test_an_opening_reads_what_came_with_its_news(scene: Scene) -> None:
    """Design 3.2: lock first, read second; news that is seen never goes with steps that are older (seen 851 times in 1,500)."""
    for turn in range(25):
        run_id = f"r{turn}"
        scene.dispatch("a", run_id=run_id)
        scene.claimed("a", run_id=run_id)
        _, opened = race(
            partial(scene.succeed, "a", run_id=run_id),
            partial(scene.open, run_id, "p2"),
        )
        is_seen = opened.run.seen > 1
        assert opened.steps[0].status is (StepStatus.SUCCEEDED if is_seen else StepStatus.RUNNING)
        assert scene.park(scene.ref(run_id, "p2")).wake is not is_seen
