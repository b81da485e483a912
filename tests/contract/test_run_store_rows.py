"""Rows that a pass sends elsewhere: dispatched steps, sleeps and child runs (design 2, 3.7)."""

from __future__ import annotations

from functools import partial

import pytest

from pikkuflow.domain.act import PassNews
from pikkuflow.domain.ids import FanId, RunId, StepName
from pikkuflow.domain.run import NewRun, ParentStep
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus
from pikkuflow.domain.step import NewStep, Place
from tests.contract.scene import BOOM, Scene, new_run, new_step, race


def _child(run_id: str = "r1", step: str = "invoice", child_id: str = "child") -> tuple[NewStep, NewRun]:
    row = new_step(step, kind=StepKind.CHILD, task="shop.invoice", retries=0, place=Place.child(child_id), queue=None)
    child = new_run(child_id, workflow="shop.invoice", parent=ParentStep(run_id=RunId(run_id), step=StepName(step)))
    return row, child


def test_dispatched_rows_wait_at_their_first_attempt(scene: Scene) -> None:
    """T17.2: pending, attempt 1, with retries, and the delay of retries as text."""
    ref = scene.begin()
    news = scene.insert_steps(ref, "a", "b", retries=2, retry_delay="exponential", from_step=StepName("z"), group="g")
    assert news == PassNews(news=1, status=RunStatus.RUNNING, written=True)
    first, second = scene.store.list_steps(ref.run_id)
    assert (first.name, second.name) == ("a", "b")
    assert (first.status, first.attempt, first.retries, first.retry_delay) == (StepStatus.PENDING, 1, 2, "exponential")
    assert (first.queue, first.from_step, first.group, first.author) == ("packers", "z", "g", "p1")
    assert (first.is_due, first.is_expired, first.is_lapsed, first.sent_at) == (True, False, False, None)
    assert Place.is_queue(first.place)


def test_a_sleep_is_scheduled_with_its_time(scene: Scene) -> None:
    """T17.3, design 4: a sleep is a due row from the start."""
    ref = scene.begin()
    nap = new_step("nap", kind=StepKind.SLEEP, task=None, args=None, place=Place.in_pass("p1"), delay_seconds=60.0)
    scene.store.insert_steps(ref, [nap])
    step = scene.step("nap")
    assert (step.status, step.is_due) == (StepStatus.SCHEDULED, False)
    assert step.due_in_seconds == pytest.approx(60, abs=5)
    assert step.scheduled_at is not None
    scene.advance(61)
    assert scene.step("nap").is_due


def test_a_due_sleep_is_settled_by_the_pass_that_meets_it(scene: Scene) -> None:
    """Spec 2.5: the outcome lands on the scheduled row and takes its time off the sweeps."""
    ref = scene.begin()
    nap = new_step("nap", kind=StepKind.SLEEP, task=None, args=None, place=Place.in_pass("p1"), delay_seconds=1.0)
    scene.store.insert_steps(ref, [nap])
    scene.advance(20)
    news = scene.write(ref, StepStatus.SUCCEEDED, "nap", result="null")
    assert news is not None
    assert news.written
    scene.park(ref)
    assert scene.step("nap").status is StepStatus.SUCCEEDED
    assert scene.store.sweep_scheduled(scene.sweep(0)).runs == ()


def test_inserting_again_changes_nothing(scene: Scene) -> None:
    """D24: rows of this pass count as done, and the fan's counter is not set twice."""
    ref = scene.begin()
    fan = FanId("f1")
    scene.insert_steps(ref, "a", "b", joined=True, fan_id=fan)
    scene.claimed("a")
    scene.succeed("a")
    assert scene.insert_steps(ref, "a", "b", joined=True, fan_id=fan) is not None
    assert scene.step("a").status is StepStatus.SUCCEEDED
    scene.park(ref)
    scene.claimed("b", claim="c2")
    assert scene.succeed("b", claim="c2").wake is True


def test_nothing_is_inserted_into_a_stopped_run(scene: Scene) -> None:
    """Design 3.7: a stopped run gets no new work."""
    ref = scene.begin()
    scene.stop()
    assert scene.insert_steps(ref, "a") == PassNews(news=1, status=RunStatus.COMPENSATING, written=False)
    assert scene.store.list_steps(ref.run_id) == ()


def test_many_rows_go_in_at_once(scene: Scene) -> None:
    """Design 2: a wide map is one insert."""
    ref = scene.begin()
    scene.insert_steps(ref, *[f"a[{index}]" for index in range(500)], joined=True, fan_id=FanId("f"))
    names = [step.name for step in scene.store.list_steps(ref.run_id)]
    assert names == [f"a[{index}]" for index in range(500)]


def test_a_child_run_and_its_parents_row_go_in_together(scene: Scene) -> None:
    """Design 2, D1: the row is running at ``child:<run>``, the child waits for its first pass."""
    ref = scene.begin()
    news = scene.store.start_child(ref, *_child())
    assert news == PassNews(news=1, status=RunStatus.RUNNING, written=True)
    row = scene.step("invoice")
    assert (row.status, row.place, row.child_run_id, row.attempt) == (
        StepStatus.RUNNING,
        Place.child("child"),
        "child",
        1,
    )
    assert row.is_lapsed is False
    child = scene.run("child")
    assert (child.status, child.workflow, child.news, child.seen) == (RunStatus.RUNNING, "shop.invoice", 1, 0)
    assert child.parent == ParentStep(run_id=RunId("r1"), step=StepName("invoice"))


def test_starting_a_child_again_is_the_same_start(scene: Scene) -> None:
    """D1: idempotent by step, also when the second attempt made up another child id."""
    ref = scene.begin()
    scene.store.start_child(ref, *_child())
    news = scene.store.start_child(ref, *_child(child_id="another"))
    assert news is not None
    assert scene.step("invoice").child_run_id == "child"
    assert scene.store.get_run(RunId("another")) is None


def test_a_stopped_parent_starts_no_child(scene: Scene) -> None:
    """Design 3.7: inserting a child locks the parent and is refused once it is stopped."""
    ref = scene.begin()
    scene.stop()
    assert scene.store.start_child(ref, *_child()) == PassNews(news=1, status=RunStatus.COMPENSATING, written=False)
    assert scene.store.get_run(RunId("child")) is None
    assert scene.store.list_steps(ref.run_id) == ()


def test_a_fenced_parent_starts_no_child(scene: Scene) -> None:
    """I5: a pass that was taken over leaves no orphan behind."""
    old = scene.begin()
    scene.advance(31)
    scene.open(by="p2")
    assert scene.store.start_child(old, *_child()) is None
    assert scene.store.get_run(RunId("child")) is None


@pytest.mark.parametrize(
    ("status", "expected"),
    [(RunStatus.COMPLETED, StepStatus.SUCCEEDED), (RunStatus.FAILED, StepStatus.FAILED)],
)
def test_a_childs_end_is_its_parents_step(scene: Scene, status: RunStatus, expected: StepStatus) -> None:
    """D9: child and parent's step settle in one transaction, the parent gets news, and a wake-up as nothing else will give it one."""
    parent = scene.begin()
    scene.store.start_child(parent, *_child())
    scene.park(parent)
    before = scene.run()
    scene.open("child", "pc")
    closed = scene.close(
        scene.ref("child", "pc"), status=status, output='"inv-1"', error=BOOM if status is RunStatus.FAILED else None
    )
    assert closed.parent is not None
    assert (closed.parent.id, closed.parent.workflow) == ("r1", "shop.order")
    assert closed.wake is False
    row = scene.step("invoice")
    assert row.status is expected
    assert (row.result, row.error) == (('"inv-1"', None) if expected is StepStatus.SUCCEEDED else (None, BOOM))
    assert scene.run().news == before.news + 1


def test_a_parent_with_a_live_pass_is_not_woken_by_its_child(scene: Scene) -> None:
    """Design 3.5: the parent's closer sees the news."""
    parent = scene.begin()
    scene.store.start_child(parent, *_child())
    scene.open("child", "pc")
    closed = scene.close(scene.ref("child", "pc"), status=RunStatus.COMPLETED, output="1")
    assert closed.parent is None
    assert scene.park(parent).wake is True


def test_a_parent_with_unseen_news_is_not_woken_again(scene: Scene) -> None:
    """Design 3.5: whoever raised the first unseen news published the wake-up."""
    parent = scene.begin()
    scene.store.start_child(parent, *_child(step="one", child_id="c1"))
    scene.store.start_child(parent, *_child(step="two", child_id="c2"))
    scene.park(parent)
    for child, expected in (("c1", True), ("c2", False)):
        scene.open(child, f"p-{child}")
        closed = scene.close(scene.ref(child, f"p-{child}"), status=RunStatus.COMPLETED, output="1")
        assert (closed.parent is not None) is expected


def test_a_childs_end_commits_without_its_parent(scene: Scene) -> None:
    """D9, design 3.7: the parent's half may touch no row."""
    scene.insert("child", parent=ParentStep(run_id=RunId("gone"), step=StepName("x")))
    scene.open("child", "pc")
    closed = scene.close(scene.ref("child", "pc"), status=RunStatus.COMPLETED, output="1")
    assert (closed.status, closed.parent) == (RunStatus.COMPLETED, None)
    assert scene.run("child").is_settled


def test_a_childs_end_leaves_a_settled_parent_as_it_is(scene: Scene) -> None:
    """I6: a parent that ended while its child worked on gets neither news nor a wake-up."""
    parent = scene.begin()
    scene.store.start_child(parent, *_child())
    scene.close(parent, status=RunStatus.FAILED, error=BOOM)
    before = scene.run()
    scene.open("child", "pc")
    assert scene.close(scene.ref("child", "pc"), status=RunStatus.COMPLETED, output="1").parent is None
    assert scene.run() == before


def test_closing_a_child_again_answers_as_before(scene: Scene) -> None:
    """D24: the answer was lost; the parent is still named, so that it is still woken."""
    parent = scene.begin()
    scene.store.start_child(parent, *_child())
    scene.park(parent)
    scene.open("child", "pc")
    first = scene.close(scene.ref("child", "pc"), status=RunStatus.COMPLETED, output="1")
    news = scene.run().news
    assert scene.close(scene.ref("child", "pc"), status=RunStatus.COMPLETED, output="1") == first
    assert scene.run().news == news


def test_children_that_end_at_once_wake_their_parent_once(scene: Scene) -> None:
    """D9, lock order: 15 races of two children's ends and their parent's closing; nothing blocks, and exactly one wakes the parent."""
    for turn in range(15):
        parent = scene.begin(f"r{turn}")
        children = [f"c{turn}-{index}" for index in range(2)]
        for child in children:
            scene.store.start_child(parent, *_child(parent.run_id, child, child))
            scene.open(child, f"p-{child}")
        ends = [
            partial(scene.close, scene.ref(child, f"p-{child}"), status=RunStatus.COMPLETED, output="1")
            for child in children
        ]
        closed, *ended = race(partial(scene.park, parent), *ends)
        assert [closed.wake, *(end.parent is not None for end in ended)].count(True) == 1
        assert all(scene.step(child, parent.run_id).status is StepStatus.SUCCEEDED for child in children)


def test_a_child_does_not_slip_into_a_run_that_ends(scene: Scene) -> None:
    """Design 3.7: 15 races of a child's insert and its parent's end; the child is there only with its row, and then before the end."""
    for turn in range(15):
        parent = scene.begin(f"r{turn}")
        child = f"c{turn}"
        started, _ = race(
            partial(scene.store.start_child, parent, *_child(parent.run_id, child, child)),
            partial(scene.close, parent, status=RunStatus.FAILED, error=BOOM),
        )
        assert (scene.store.get_run(RunId(child)) is not None) is (started is not None and started.written)
        assert (scene.store.get_step(parent.run_id, StepName(child)) is not None) is (started is not None)
