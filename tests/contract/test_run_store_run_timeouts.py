"""How long a whole run may take: fixed by its insert, judged by the store's clock (issue D, Build 7)."""

from __future__ import annotations

from pikkuflow.domain import loss
from pikkuflow.domain.act import PassRefusal
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.run import ParentStep
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus
from pikkuflow.domain.step import Place
from pikkuflow.domain.stop import Cancellation, Stopped
from tests.contract.scene import Scene, new_run, new_step


def overdue(scene: Scene, limit: int = 10) -> list[str]:
    """The ids of the runs whose time is over."""
    return [run.id for run in scene.store.overdue_runs(limit)]


def end(scene: Scene, run_id: str = "r1") -> Stopped:
    """Stop a run whose time is over, as the engine does."""
    error = loss.run_timed_out(10.0)
    stopped = scene.store.cancel_run(Cancellation(run_id=RunId(run_id), error=error, ending=RunStatus.FAILED))
    assert stopped is not None
    return stopped


def test_a_deadline_is_counted_from_the_moment_at_which_a_run_may_begin(scene: Scene) -> None:
    """A run without a timeout has none, and the same id twice leaves what is there."""
    scene.insert("r1", timeout_seconds=10.0)
    scene.insert("r2", timeout_seconds=10.0, delay_seconds=60.0)
    scene.insert("r3")
    runs = [scene.run(run_id) for run_id in ("r1", "r2", "r3")]
    assert [run.timeout_seconds for run in runs] == [10.0, 10.0, None]
    spans = [run.deadline_at and (run.deadline_at - run.created_at).total_seconds() for run in runs]
    assert [span and round(span, 2) for span in spans] == [10.0, 70.0, None]
    scene.store.insert_runs([new_run("r1", timeout_seconds=99.0)])
    assert scene.run("r1") == runs[0]


def test_a_child_run_has_a_deadline_as_any_other(scene: Scene) -> None:
    """Its parent's is not its own."""
    ref = scene.begin(timeout_seconds=100.0)
    child = new_run("c1", timeout_seconds=10.0, parent=ParentStep(run_id=RunId("r1"), step=new_step("below").name))
    scene.store.start_child(ref, new_step("below", kind=StepKind.CHILD, place=Place.child("c1")), child)
    scene.advance(11)
    assert overdue(scene) == ["c1"]


def test_open_runs_past_their_deadline_are_found_those_overdue_longest_first(scene: Scene) -> None:
    """Held, suspended and delayed ones as well; ended ones, those being undone, and those in time are not."""
    scene.insert("late", timeout_seconds=30.0)
    scene.begin("held", timeout_seconds=10.0)
    suspended = scene.begin("suspended", timeout_seconds=20.0)
    scene.close(suspended, status=RunStatus.SUSPENDED, code="PASS_LOST")
    scene.close(scene.begin("done", timeout_seconds=10.0), status=RunStatus.COMPLETED, output="1")
    scene.begin("undone", timeout_seconds=10.0)
    scene.stop("undone")
    scene.insert("in time", timeout_seconds=500.0)
    scene.insert("without")
    assert overdue(scene) == []
    scene.advance(31)
    assert overdue(scene) == ["held", "suspended", "late"]
    assert overdue(scene, 2) == ["held", "suspended"]


def test_a_run_that_is_stopped_by_its_deadline_has_failed_and_tells_its_parent(scene: Scene) -> None:
    """Nothing is to be undone: its waiting rows end, its error is the parent's step's."""
    ref = scene.begin("p0")
    child = new_run("r1", timeout_seconds=10.0, parent=ParentStep(run_id=RunId("p0"), step=new_step("below").name))
    scene.store.start_child(ref, new_step("below", kind=StepKind.CHILD, place=Place.child("r1")), child)
    scene.park(ref)
    scene.advance(11)
    stopped = end(scene)
    assert (stopped.status, stopped.is_stopped, stopped.wake) == (RunStatus.FAILED, True, False)
    assert stopped.parent is not None
    run = scene.run()
    assert (run.status, run.code, run.error) == (RunStatus.FAILED, "RUN_TIMEOUT", loss.run_timed_out(10.0))
    assert run.finished_at is not None
    told = scene.step("below", run_id="p0")
    assert (told.status, told.error) == (StepStatus.FAILED, loss.run_timed_out(10.0))
    assert overdue(scene) == []
    assert scene.try_open(by="p9") is PassRefusal.SETTLED
    assert not end(scene).is_stopped


def test_a_run_that_is_held_at_its_deadline_is_compensating(scene: Scene) -> None:
    """Its pass sees it with its next write; nobody's act moves the deadline."""
    ref = scene.begin(timeout_seconds=10.0)
    scene.advance(11)
    fixed = scene.run().deadline_at
    assert end(scene).status is RunStatus.COMPENSATING
    news = scene.write(ref, StepStatus.SUCCEEDED, result="1")
    assert news is not None
    assert news.status is RunStatus.COMPENSATING
    scene.close(ref, status=RunStatus.COMPLETED, output="1")
    assert (scene.run().status, scene.run().deadline_at) == (RunStatus.COMPENSATING, fixed)


def test_an_opening_answers_with_its_own_moment(scene: Scene) -> None:
    """What is left of a run's time is told by the store's clock alone: the deadline less the moment of the opening."""
    scene.insert(timeout_seconds=100.0)
    scene.advance(40)
    run = scene.open().run
    assert run.deadline_at is not None
    assert 59 <= (run.deadline_at - run.updated_at).total_seconds() <= 60
