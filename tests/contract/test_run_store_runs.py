"""Runs in a store: inserting, reading, listing, resuming, deleting (spec 9, 13.17)."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import timedelta
from functools import partial

import pytest

from pikkuflow.domain.act import PassRefusal
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.run import ParentStep, RunFilter, RunKey
from pikkuflow.domain.status import RunStatus, StepStatus
from tests.contract.scene import BOOM, Scene, new_run, race


def _ids(scene: Scene, where: RunFilter, *, limit: int = 50, after: RunKey | None = None) -> list[str]:
    return [run.id for run in scene.store.list_runs(where, limit=limit, after=after)]


def _settle(scene: Scene, run_id: str, status: RunStatus = RunStatus.COMPLETED, **more: object) -> None:
    scene.close(scene.begin(run_id, f"pass-{run_id}", **more), status=status)


def test_a_new_run_reads_back_as_it_was_given(scene: Scene) -> None:
    """T17.1: create and get; what is not given is empty, and there is unseen news from the start (design 3.8)."""
    parent = ParentStep(run_id=RunId("above"), step=StepName("child"))
    scene.insert(
        owner="u1", wire='{"trace":"t"}', planned_steps='["a"]', deterministic=True, parent=parent, handover="{}"
    )
    run = scene.run()
    assert (run.workflow, run.version, run.input, run.status) == (
        "shop.order",
        "v1",
        '{"args":[42]}',
        RunStatus.RUNNING,
    )
    assert (run.owner, run.wire, run.planned_steps, run.deterministic) == ("u1", '{"trace":"t"}', '["a"]', True)
    assert (run.parent, run.handover, run.delivered_at) == (parent, "{}", None)
    assert (run.news, run.seen, run.lost, run.passes_lost, run.pass_id) == (1, 0, False, 0, None)
    assert (run.output, run.error, run.code, run.due_at, run.finished_at) == (None, None, None, None, None)
    assert run.created_at.utcoffset() == timedelta(0)


def test_an_unknown_run_is_none(scene: Scene) -> None:
    """T17.1, T17.8: nothing is known of an unknown run, and asking for it is no error."""
    unknown = RunId("unknown")
    assert scene.store.get_run(unknown) is None
    assert scene.store.list_steps(unknown) == ()
    assert scene.store.list_attempts(unknown) == ()
    assert scene.store.get_step(unknown, StepName("a")) is None
    assert dict(scene.store.get_state(unknown)) == {}


def test_changing_an_unknown_run_is_harmless(scene: Scene) -> None:
    """T17.1: an update of an unknown run changes nothing."""
    unknown = RunId("unknown")
    scene.store.ask_pass(unknown, 1.0)
    scene.store.mark_delivered(unknown)
    assert scene.store.resume_run(unknown) is None
    assert scene.store.delete_run(unknown) is False
    assert scene.try_open("unknown") is PassRefusal.MISSING
    assert scene.store.get_run(unknown) is None


def test_the_same_id_twice_is_the_same_run(scene: Scene) -> None:
    """Spec 9.2: an id that is there is never touched; the answer has what is there."""
    scene.insert(owner="u1")
    (again,) = scene.store.insert_runs([new_run(owner="u2", workflow="shop.other", input="{}")])
    assert again.created is False
    assert (again.workflow, again.input, again.status) == ("shop.order", '{"args":[42]}', RunStatus.RUNNING)
    assert scene.run().owner == "u1"


def test_many_runs_go_in_together_and_answers_keep_their_order(scene: Scene) -> None:
    """Design 2, ``start_many``: one insert, with what was there before and what comes twice told apart."""
    scene.insert("b")
    inserted = scene.store.insert_runs([new_run("c"), new_run("b"), new_run("a"), new_run("c")])
    assert [(found.id, found.created) for found in inserted] == [("c", True), ("b", False), ("a", True), ("c", False)]
    assert scene.store.insert_runs([]) == ()


def test_one_of_many_concurrent_inserts_creates_the_run(scene: Scene) -> None:
    """The same run id from several callers at once is one run."""
    answers = race(*[lambda: scene.store.insert_runs([new_run()])[0].created] * 5)
    assert sorted(answers) == [False, False, False, False, True]


def test_several_inserts_of_the_same_runs_do_not_block_each_other(scene: Scene) -> None:
    """Several runs are locked in the order of their ids, whatever the order in which they were given."""
    for turn in range(10):
        ids = [f"{turn}-{index}" for index in range(6)]
        forth = [new_run(run_id) for run_id in ids]
        answers = race(
            partial(scene.store.insert_runs, forth),
            partial(scene.store.insert_runs, list(reversed(forth))),
        )
        created = [found.id for answer in answers for found in answer if found.created]
        assert sorted(created) == sorted(ids)


def test_what_a_store_hands_out_cannot_be_changed(scene: Scene) -> None:
    """D25: records are frozen and stay as they were read."""
    ref = scene.begin()
    before = scene.run()
    with pytest.raises(FrozenInstanceError):
        before.status = RunStatus.FAILED  # type: ignore[misc]
    scene.close(ref, status=RunStatus.COMPLETED, output="1")
    assert (before.status, before.output) == (RunStatus.RUNNING, None)


def test_status_with_output_and_status_with_error(scene: Scene) -> None:
    """T17.1: a settled run has its output or its error, and the time when it ended."""
    scene.close(scene.begin("r1"), status=RunStatus.COMPLETED, output='{"paid":true}')
    scene.close(scene.begin("r2"), status=RunStatus.FAILED, error=BOOM)
    done, failed = scene.run("r1"), scene.run("r2")
    assert (done.status, done.output, done.error) == (RunStatus.COMPLETED, '{"paid":true}', None)
    assert (failed.status, failed.output, failed.error) == (RunStatus.FAILED, None, BOOM)
    assert done.finished_at is not None
    assert done.is_settled
    assert done.pass_id is None


def test_payloads_survive_as_they_are(scene: Scene) -> None:
    """Text of any language and length, quotes, escapes and percent signs come back as they were."""
    awkward = '{"args":["\\u0000 \' \\" % %s :name {} \\\\ 日本 🎉", "' + "x" * 100_000 + '"]}'
    ref = scene.begin(input=awkward)
    scene.write(ref, StepStatus.SUCCEEDED, result=awkward, step={"args": awkward})
    assert scene.run().input == awkward
    assert (scene.step().result, scene.step().args) == (awkward, awkward)


def test_listing_is_newest_first_in_pages_by_key(scene: Scene) -> None:
    """T17.12, D12: pages go on after the last key and neither skip nor repeat, also among runs of the same moment."""
    for minute in range(3):
        scene.store.insert_runs([new_run(f"r{minute}{index}") for index in range(3)])
        scene.advance(60)
    every = _ids(scene, RunFilter())
    assert every == ["r22", "r21", "r20", "r12", "r11", "r10", "r02", "r01", "r00"]
    paged: list[str] = []
    after = None
    while page := scene.store.list_runs(RunFilter(), limit=2, after=after):
        paged += [run.id for run in page]
        after = RunKey(created_at=page[-1].created_at, id=page[-1].id)
    assert paged == every


def test_a_page_is_not_shifted_by_runs_that_come_meanwhile(scene: Scene) -> None:
    """D12: a new run between two pages makes no run appear twice."""
    scene.store.insert_runs([new_run(f"r{index}") for index in range(4)])
    first = scene.store.list_runs(RunFilter(), limit=2)
    scene.advance(1)
    scene.insert("newer")
    after = RunKey(created_at=first[-1].created_at, id=first[-1].id)
    # A moved clock shifts what is stored in a database, so the key is read again as it now is.
    after = RunKey(created_at=scene.run(after.id).created_at, id=after.id)
    assert _ids(scene, RunFilter(), limit=2, after=after) == ["r1", "r0"]


def test_listing_filters_by_what_is_asked(scene: Scene) -> None:
    """T17.12, D30: workflow, status, owner, code and time, alone and together."""
    scene.insert("r1", owner="u1")
    _settle(scene, "r2", owner="u1", workflow="shop.other")
    scene.close(scene.begin("r3", "p3", owner="u2"), status=RunStatus.SUSPENDED, code="TASK_NOT_FOUND", error=BOOM)
    assert _ids(scene, RunFilter(owner="u1")) == ["r2", "r1"]
    assert _ids(scene, RunFilter(workflow="shop.other")) == ["r2"]
    assert _ids(scene, RunFilter(status=RunStatus.RUNNING)) == ["r1"]
    assert _ids(scene, RunFilter(code="TASK_NOT_FOUND")) == ["r3"]
    assert _ids(scene, RunFilter(owner="u1", status=RunStatus.COMPLETED)) == ["r2"]
    assert _ids(scene, RunFilter(owner="nobody")) == []


def test_listing_filters_by_time(scene: Scene) -> None:
    """Design 1, issue A: ``since`` and ``until`` bound the creation."""
    scene.insert("old")
    scene.advance(3600)
    scene.insert("new")
    between = scene.run("new").created_at - timedelta(minutes=30)
    assert _ids(scene, RunFilter(since=between)) == ["new"]
    assert _ids(scene, RunFilter(until=between)) == ["old"]


def test_steps_come_in_the_order_of_the_body(scene: Scene) -> None:
    """A run's steps are listed by ``seq``, whatever the order of their writes."""
    ref = scene.begin()
    scene.write(ref, StepStatus.SUCCEEDED, "z", step={"seq": 0})
    scene.write(ref, StepStatus.SUCCEEDED, "b", step={"seq": 2})
    scene.write(ref, StepStatus.SUCCEEDED, "a", step={"seq": 1})
    assert [step.name for step in scene.store.list_steps(ref.run_id)] == ["z", "a", "b"]


def test_resume_opens_a_suspended_run(scene: Scene) -> None:
    """D4: ``suspended -> running`` under a guard, with code and error cleared and news raised; a second time finds nothing to do."""
    ref = scene.begin()
    scene.close(ref, status=RunStatus.SUSPENDED, code="WORKFLOW_SUSPENDED", error=BOOM, due_seconds=60.0)
    before = scene.run()
    resumed = scene.store.resume_run(ref.run_id)
    assert resumed is not None
    assert (resumed.id, resumed.workflow) == ("r1", "shop.order")
    after = scene.run()
    assert (after.status, after.code, after.error, after.due_at) == (RunStatus.RUNNING, None, None, None)
    assert after.news == before.news + 1
    assert scene.store.resume_run(ref.run_id) is None


def test_resume_leaves_a_run_alone_that_is_not_suspended(scene: Scene) -> None:
    """D4: the guard names the status that it leaves."""
    scene.insert("running")
    _settle(scene, "done")
    assert scene.store.resume_run(RunId("running")) is None
    assert scene.store.resume_run(RunId("done")) is None
    assert scene.run("done").status is RunStatus.COMPLETED


def test_asking_for_a_pass_keeps_the_earlier_time(scene: Scene) -> None:
    """D11: without Redis a hint is the run's ``due_at``; the earlier one stays and no news is raised."""
    scene.park(scene.begin())
    for seconds in (60.0, 10.0, 30.0):
        scene.store.ask_pass(RunId("r1"), seconds)
    run = scene.run()
    assert run.due_at is not None
    assert run.news == run.seen
    scene.advance(15)
    assert [ref.id for ref in scene.store.sweep_scheduled(scene.sweep(0)).runs] == ["r1"]


def test_a_settled_run_is_not_asked_for(scene: Scene) -> None:
    """Nothing moves a settled run."""
    _settle(scene, "r1")
    scene.store.ask_pass(RunId("r1"), 0.0)
    scene.advance(5)
    assert scene.store.sweep_scheduled(scene.sweep(0)).runs == ()


def test_a_settled_run_can_be_deleted_with_all_it_had(scene: Scene) -> None:
    """T17.12: delete answers True once, cascades, and the deleted run reads as none."""
    ref = scene.begin()
    scene.write(ref, StepStatus.SUCCEEDED, result="1", state=("k", "1"))
    assert scene.store.delete_run(ref.run_id) is False
    scene.close(ref, status=RunStatus.COMPLETED)
    assert scene.store.delete_run(ref.run_id) is True
    assert scene.store.get_run(ref.run_id) is None
    assert scene.store.list_steps(ref.run_id) == ()
    assert dict(scene.store.get_state(ref.run_id)) == {}
    assert scene.store.delete_run(ref.run_id) is False


def test_a_settled_run_with_a_handover_waits_to_be_delivered(scene: Scene) -> None:
    """Design 7: at least once, marked delivered, repeated until then."""
    _settle(scene, "r1", handover='{"chord":1}')
    _settle(scene, "r2")
    scene.insert("r3", handover="{}")
    assert [run.id for run in scene.store.undelivered_runs(10)] == ["r1"]
    scene.store.mark_delivered(RunId("r1"))
    scene.store.mark_delivered(RunId("r1"))
    assert scene.store.undelivered_runs(10) == ()
    assert scene.run("r1").delivered_at is not None


def test_undelivered_runs_are_bounded(scene: Scene) -> None:
    """A sweep takes a page, not everything."""
    for run_id in ("r1", "r2", "r3"):
        _settle(scene, run_id, handover="{}")
    assert len(scene.store.undelivered_runs(2)) == 2


def test_an_outcome_that_was_put_off_comes_later_and_later(scene: Scene) -> None:
    """Design 7, D13: 30 s, then 60 s, at most 10 min; the others come meanwhile, and only what is due is put off."""
    for run_id in ("r1", "r2"):
        _settle(scene, run_id, handover="{}")
    assert scene.store.put_off_delivery(RunId("r1"))
    assert not scene.store.put_off_delivery(RunId("r1"))
    assert [run.id for run in scene.store.undelivered_runs(10)] == ["r2"]
    scene.advance(31)
    assert [run.id for run in scene.store.undelivered_runs(10)] == ["r2", "r1"]
    waits = []
    for _ in range(6):
        assert scene.store.put_off_delivery(RunId("r1"))
        waited = 0
        while len(scene.store.undelivered_runs(10)) == 1:
            scene.advance(31)
            waited += 1
        waits.append(waited)
    assert waits == [2, 4, 8, 16, 20, 20]


def test_an_outcome_that_was_handed_on_is_not_put_off(scene: Scene) -> None:
    """Design 7: marked delivered is the end of it, also for a run that asked for nothing, goes on, or is unknown."""
    _settle(scene, "r1", handover="{}")
    _settle(scene, "r2")
    scene.insert("r3", handover="{}")
    scene.store.mark_delivered(RunId("r1"))
    for run_id in ("r1", "r2", "r3", "unknown"):
        assert not scene.store.put_off_delivery(RunId(run_id))
    assert scene.store.undelivered_runs(10) == ()


def test_the_ages_of_sweeps_are_known(scene: Scene) -> None:
    """Design 3.8: the fallback finds out how long no sweep has run."""
    assert dict(scene.store.sweep_ages()) == {}
    scene.store.note_sweep("stalled")
    scene.advance(30)
    scene.store.note_sweep("scheduled")
    ages = scene.store.sweep_ages()
    assert set(ages) == {"stalled", "scheduled"}
    assert ages["stalled"] == pytest.approx(30, abs=5)
    assert ages["scheduled"] == pytest.approx(0, abs=5)
    scene.store.note_sweep("stalled")
    assert scene.store.sweep_ages()["stalled"] == pytest.approx(0, abs=5)


def test_a_closed_store_can_be_used_again(scene: Scene) -> None:
    """Closing gives back connections, no rows (D25; the memory store forgets by ``clear``, T17.9)."""
    scene.insert()
    scene.store.close()
    assert scene.run().id == "r1"


def test_the_state_of_a_run_is_written_key_by_key(scene: Scene) -> None:
    """T17.6, T17.14: keys are literal, texts are kept as they are, a later write replaces, an empty run has none."""
    ref = scene.begin()
    assert dict(scene.store.get_state(ref.run_id)) == {}
    values = {"a.b": "null", 'quo"te': "[]", "it's": '{"nested":{"deep":[1,null]}}', "%s": "1"}
    for index, (key, value) in enumerate(values.items()):
        scene.write(ref, StepStatus.SUCCEEDED, f"__state:{index}", state=(key, value), step={"seq": index})
    assert dict(scene.store.get_state(ref.run_id)) == values
    scene.write(ref, StepStatus.SUCCEEDED, "__state:again", state=("a.b", "2"))
    assert scene.store.get_state(ref.run_id)["a.b"] == "2"


def test_runs_do_not_share_their_state(scene: Scene) -> None:
    """T17.14: the same key of two runs, written at once, is two entries."""
    refs = [scene.begin(f"r{index}", f"p{index}") for index in range(4)]
    race(
        *[partial(scene.write, ref, StepStatus.SUCCEEDED, "__state:k", state=("k", f'"{ref.run_id}"')) for ref in refs]
    )
    assert [dict(scene.store.get_state(ref.run_id)) for ref in refs] == [{"k": f'"r{index}"'} for index in range(4)]
