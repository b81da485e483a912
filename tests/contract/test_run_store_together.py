"""Outcomes written together, of one run or of several: what ``record`` promises holds for each of them (issue C, Build 3 and 4)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.domain.act import Closing, EndedAttempt, PassNews, PassRef, StepWrite
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.run import ParentStep
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus
from pikkuflow.domain.step import Place
from tests.contract.scene import BOOM, Scene, new_run, new_step, race

_DONE = PassNews(news=1, status=RunStatus.RUNNING, written=True)


def _outcome(ref: PassRef, name: str = "a", attempt: int = 1, **more: Any) -> tuple[PassRef, StepWrite]:
    step = new_step(name, **{"place": Place.in_pass(ref.pass_id), "queue": None, **more.pop("step", {})})
    fields = {"status": StepStatus.SUCCEEDED, "result": f'"{name}"', **more}
    return ref, StepWrite(step=step, attempt=attempt, **fields)


def _statuses(scene: Scene, run_id: str = "r1") -> dict[str, StepStatus]:
    return {step.name: step.status for step in scene.store.list_steps(RunId(run_id))}


def test_outcomes_of_one_run_are_written_together(scene: Scene) -> None:
    """Issue C, Build 3: each row is as ``record`` would have made it, and the steps come in the order of their numbers."""
    ref = scene.begin()
    writes = [_outcome(ref, f"s{seq}", step={"seq": seq, "retries": 3}, started_seconds_ago=5.0) for seq in (2, 0, 1)]
    assert scene.store.record_all(writes) == (_DONE, _DONE, _DONE)
    steps = scene.store.list_steps(ref.run_id)
    assert [(step.name, step.seq, step.result) for step in steps] == [
        ("s0", 0, '"s0"'),
        ("s1", 1, '"s1"'),
        ("s2", 2, '"s2"'),
    ]
    for step in steps:
        assert (step.status, step.attempt, step.retries, step.args) == (StepStatus.SUCCEEDED, 1, 3, '{"args":[]}')
        assert (step.place, step.author) == (Place.in_pass("p1"), "p1")
        assert step.running_at is not None
        assert step.settled_at is not None
        assert 4 <= (step.settled_at - step.running_at).total_seconds() <= 6


def test_what_an_attempt_said_is_stored_with_its_success(scene: Scene) -> None:
    """T17.5, spec 3.1: the branch that a graph's node chose, with the outcome itself, alone and together with others."""
    ref = scene.begin()
    scene.write(ref, StepStatus.RUNNING)
    said = '{"branch":"yes"}'
    scene.write(ref, StepStatus.SUCCEEDED, result="1", override=said)
    scene.store.record_all([_outcome(ref, "b", override=said), _outcome(ref, "c")])

    assert [step.override for step in scene.store.list_steps(ref.run_id)] == [said, said, None]


def test_nothing_to_write_is_answered_by_nothing(scene: Scene) -> None:
    """An empty batch is no act."""
    assert scene.store.record_all([]) == ()


def test_the_same_outcomes_twice_are_written_once(scene: Scene) -> None:
    """Design 3.4: the answer was lost and the batch is sent again; each row finds its own author and counts as done."""
    ref = scene.begin()
    writes = [_outcome(ref, "a", step={"fan_id": "f"}), _outcome(ref, "b", state=("k", "1"))]
    assert scene.store.record_all(writes) == (_DONE, _DONE)
    before = scene.store.list_steps(ref.run_id)
    assert scene.store.record_all(writes) == (_DONE, _DONE)
    assert scene.store.list_steps(ref.run_id) == before


def test_a_batch_that_grew_is_written_whole(scene: Scene) -> None:
    """Design 3.4: what was written before its answer was lost stays, what came since is added."""
    ref = scene.begin()
    writes = [_outcome(ref, "a"), _outcome(ref, "b", step={"seq": 1})]
    scene.store.record_all(writes[:1])
    assert scene.store.record_all(writes) == (_DONE, _DONE)
    assert _statuses(scene) == {"a": StepStatus.SUCCEEDED, "b": StepStatus.SUCCEEDED}


def test_outcomes_of_several_runs_are_written_together(scene: Scene) -> None:
    """Issue C, Build 4: each run's own pass, each answer in the place of its write."""
    refs = [scene.begin(f"r{number}", f"p{number}") for number in (3, 1, 2)]
    assert scene.store.record_all([_outcome(ref) for ref in refs]) == (_DONE, _DONE, _DONE)
    for ref in refs:
        assert scene.step("a", ref.run_id).author == ref.pass_id


def test_a_fenced_pass_writes_nothing_and_the_others_do(scene: Scene) -> None:
    """Design 3.3, issue C, Build 4: each row reports for itself; a run that is gone, or another pass's, is fenced alone."""
    mine, other = scene.begin("r1", "p1"), scene.ref("r1", "stranger")
    theirs, gone = scene.begin("r2", "p2"), scene.ref("nowhere", "p3")
    writes = [_outcome(gone), _outcome(other, "b"), _outcome(theirs), _outcome(mine)]
    assert scene.store.record_all(writes) == (None, None, _DONE, _DONE)
    assert _statuses(scene, "r1") == {"a": StepStatus.SUCCEEDED}


def test_a_refused_row_reports_for_itself(scene: Scene) -> None:
    """Issue C, Build 4: a row with another outcome stays as it is; the writes beside it are written."""
    ref = scene.begin()
    scene.write(ref, StepStatus.FAILED, "b", error=BOOM)
    answers = scene.store.record_all([_outcome(ref, "a"), _outcome(ref, "b"), _outcome(ref, "c", step={"seq": 2})])
    assert [answer is not None and answer.written for answer in answers] == [True, False, True]
    assert _statuses(scene) == {
        "a": StepStatus.SUCCEEDED,
        "b": StepStatus.FAILED,
        "c": StepStatus.SUCCEEDED,
    }


def test_a_stopped_run_takes_outcomes_and_no_starts(scene: Scene) -> None:
    """Design 2, 3.7: work that is done is recorded whatever became of the run; its status comes back with it."""
    ref = scene.begin()
    scene.stop()
    answers = scene.store.record_all([_outcome(ref, "a"), _outcome(ref, "b", status=StepStatus.RUNNING, result=None)])
    assert answers == (
        PassNews(news=1, status=RunStatus.COMPENSATING, written=True),
        PassNews(news=1, status=RunStatus.COMPENSATING, written=False),
    )
    assert _statuses(scene) == {"a": StepStatus.SUCCEEDED}


def test_outcomes_over_recorded_starts_keep_the_time_of_the_start(scene: Scene) -> None:
    """Design 2: a start that the watch recorded meanwhile is the same attempt's."""
    ref = scene.begin()
    scene.write(ref, StepStatus.RUNNING, "a", started_seconds_ago=1.0)
    started = scene.step("a")
    assert scene.store.record_all([_outcome(ref, "a"), _outcome(ref, "b", step={"seq": 1})]) == (_DONE, _DONE)
    assert (scene.step("a").status, scene.step("a").running_at) == (StepStatus.SUCCEEDED, started.running_at)


def test_retries_failures_and_successes_may_be_written_together(scene: Scene) -> None:
    """Issue C, Build 4: whatever outcome waits is taken along, also one that opens the next attempt."""
    first, second = scene.begin("r1", "p1"), scene.begin("r2", "p2")
    ended = EndedAttempt(attempt=1, status=StepStatus.FAILED, error=BOOM)
    answers = scene.store.record_all(
        [
            _outcome(second, "b", status=StepStatus.FAILED, result=None, error=BOOM),
            _outcome(first, "a", 2, status=StepStatus.PENDING, result=None, expects=1, delay_seconds=60.0, ended=ended),
        ]
    )
    assert answers == (_DONE, _DONE)
    assert (scene.step("a").status, scene.step("a").attempt) == (StepStatus.PENDING, 2)
    assert [(old.attempt, old.error) for old in scene.store.list_attempts(RunId("r1"))] == [(1, BOOM)]
    assert scene.step("b", "r2").error == BOOM


def test_the_last_of_several_sets_of_a_key_counts(scene: Scene) -> None:
    """Design 1: ``wf.state`` shows what was set last, however the sets were stored."""
    ref = scene.begin()
    writes = [
        _outcome(ref, name, step={"seq": seq}, state=("k" if name != "other" else "o", str(seq)))
        for seq, name in enumerate(("__state:k", "other", "__state:k#1", "__state:k#2"))
    ]
    scene.store.record_all(writes)
    assert scene.store.get_state(ref.run_id) == {"k": "3", "o": "1"}


def test_an_outcome_among_others_clears_the_mark_of_a_lost_pass(scene: Scene) -> None:
    """Design 2: for the runs that have one among them, and for no other."""
    scene.begin("r1", "old")
    scene.begin("r2", "older")
    scene.advance(31)
    scene.open("r1", "p1")
    scene.open("r2", "p2")
    scene.store.record_all(
        [
            _outcome(scene.ref("r1", "p1")),
            _outcome(scene.ref("r2", "p2"), status=StepStatus.RUNNING, result=None),
        ]
    )
    assert (scene.run("r1").lost, scene.run("r1").passes_lost) == (False, 0)
    assert (scene.run("r2").lost, scene.run("r2").passes_lost) == (True, 1)


def test_members_of_a_fan_are_counted_each(scene: Scene) -> None:
    """Design 2: members of a fan that were taken back here take the counter down by their number; the last one outside is told."""
    ref = scene.begin()
    scene.insert_steps(ref, "m[0]", "m[1]", "m[2]", joined=True, fan_id="m")
    scene.store.record_all([_outcome(ref, f"m[{n}]", step={"seq": n, "fan_id": "m"}) for n in (0, 1)])
    scene.park(ref, sent=(StepName("m[2]"),))
    scene.claimed("m[2]")
    assert scene.succeed("m[2]").wake


@pytest.mark.parametrize("store_bench", ["sqlite", "postgres", "mysql"], indirect=True)
def test_batches_over_the_same_runs_in_any_order_do_not_block_each_other(scene: Scene) -> None:
    """Issue C, Build 4: runs are locked in one order, whatever the order of the writes, so that no two batches wait for each other."""
    refs = [scene.begin(f"r{number}", f"p{number}") for number in range(6)]

    def batch(turn: int, order: int) -> Any:
        return scene.store.record_all([_outcome(ref, f"s{turn}-{order}") for ref in refs[::order]])

    for turn in range(10):
        answers = race(lambda turn=turn: batch(turn, 1), lambda turn=turn: batch(turn, -1))  # type: ignore[misc]
        assert all(answer is not None and answer.written for both in answers for answer in both)
    assert len(scene.store.list_steps(RunId("r0"))) == 20


# --- with the end of the run --------------------------------------------------------------------------------------------


def test_a_run_may_end_with_its_last_outcomes(scene: Scene) -> None:
    """Issue C, Build 3: one act records them and settles the run; asked again, it answers as before."""
    ref = scene.begin()
    outcomes = tuple(write for _, write in (_outcome(ref, "a"), _outcome(ref, "b", step={"seq": 1}, state=("k", "1"))))
    for _ in range(2):
        closed = scene.close(ref, status=RunStatus.COMPLETED, output="7", outcomes=outcomes)
        assert (closed.status, closed.wake) == (RunStatus.COMPLETED, False)
    assert _statuses(scene) == {"a": StepStatus.SUCCEEDED, "b": StepStatus.SUCCEEDED}
    assert (scene.run().status, scene.run().output) == (RunStatus.COMPLETED, "7")
    assert scene.store.get_state(ref.run_id) == {"k": "1"}


def test_outcomes_at_the_end_tell_the_parent_as_any_end_does(scene: Scene) -> None:
    """Issue C, Build 3, D9: a child run's last outcomes, its end and its parent's step are one transaction."""
    parent = scene.begin("r1", "p1")
    child = new_run("r2", parent=ParentStep(run_id=parent.run_id, step=StepName("child")))
    step = new_step("child", kind=StepKind.CHILD, task="shop.order", place=Place.child("r2"), child_run_id=child.id)
    scene.store.start_child(parent, step, child)
    scene.park(parent)
    scene.open("r2", "p2")
    ref = scene.ref("r2", "p2")
    closed = scene.close(ref, status=RunStatus.COMPLETED, output="7", outcomes=(_outcome(ref)[1],))
    assert closed.parent is not None
    assert scene.step("child").result == "7"
    assert _statuses(scene, "r2") == {"a": StepStatus.SUCCEEDED}


def test_a_fenced_pass_neither_ends_its_run_nor_records_outcomes(scene: Scene) -> None:
    """Issue C, Build 3, design 3.3."""
    scene.begin()
    ref = scene.ref(by="stranger")
    closing = Closing(status=RunStatus.COMPLETED, output="7", outcomes=(_outcome(ref)[1],))
    assert scene.store.close_pass(ref, closing) is None
    assert (scene.run().status, _statuses(scene)) == (RunStatus.RUNNING, {})


def test_a_stopped_run_records_the_last_outcomes_and_does_not_end(scene: Scene) -> None:
    """Issue C, Build 3, design 3.7: work that is done is recorded; the stop counts."""
    ref = scene.begin()
    scene.stop()
    closed = scene.close(ref, status=RunStatus.COMPLETED, output="7", outcomes=(_outcome(ref)[1],))
    assert closed.status is RunStatus.COMPENSATING
    assert (scene.run().output, scene.run().pass_id) == (None, None)
    assert _statuses(scene) == {"a": StepStatus.SUCCEEDED}


def test_a_run_does_not_end_over_an_outcome_that_was_refused(scene: Scene) -> None:
    """Issue C, Build 3: the pass is released with news, so that another meets what is there."""
    ref = scene.begin()
    scene.write(ref, StepStatus.FAILED, "a", error=BOOM)
    closed = scene.close(ref, status=RunStatus.COMPLETED, output="7", outcomes=(_outcome(ref)[1],))
    assert (closed.status, closed.wake) == (RunStatus.RUNNING, True)
    run = scene.run()
    assert (run.status, run.output, run.pass_id) == (RunStatus.RUNNING, None, None)
    assert _statuses(scene) == {"a": StepStatus.FAILED}


def test_the_mark_of_a_lost_pass_is_cleared_by_an_outcome_at_the_end(scene: Scene) -> None:
    """Issue C, Build 3, design 2: an outcome is an outcome, whichever act records it."""
    scene.begin(by="old")
    scene.advance(31)
    scene.open(by="p1")
    ref = scene.ref()
    scene.close(ref, status=RunStatus.COMPLETED, output="7", outcomes=(_outcome(ref)[1],))
    assert (scene.run().lost, scene.run().passes_lost) == (False, 0)
