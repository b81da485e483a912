"""Passes that are previewed and never opened: a read, and one act that opens, inserts and closes (docs/decisions/unopened-passes.md)."""

from __future__ import annotations

from functools import partial

import pytest

from pikkuflow.domain.act import Advance, PassRef
from pikkuflow.domain.history import History
from pikkuflow.domain.ids import FanId, PassId, RunId, StepName
from pikkuflow.domain.status import RunStatus, StepStatus
from tests.contract.scene import Scene, new_step, race


def previewed(scene: Scene, run_id: str = "r1", by: str = "p2") -> History:
    """What a pass is shown, which must be something."""
    history = scene.store.preview_pass(RunId(run_id), PassId(by))
    assert history is not None
    return history


def advance(scene: Scene, news: int, *names: str, run_id: str = "r1", by: str = "p2", **more: object) -> bool:
    """All of a pass that sends these steps."""
    steps = tuple([new_step(name, seq=seq) for seq, name in enumerate(names)])
    act = Advance(news=news, steps=steps, sent=tuple(map(StepName, names)), **more)  # type: ignore[arg-type]
    return scene.store.advance(PassRef(run_id=RunId(run_id), pass_id=PassId(by)), act)


def test_a_preview_shows_what_an_opening_would(scene: Scene) -> None:
    """Design 3.2: steps in the body's order, news as seen, the moment of the read; nothing is written."""
    scene.dispatch("a", "b")
    scene.claimed("a")
    scene.succeed("a", result="1")
    before = scene.run()
    history = previewed(scene)
    assert (history.run.seen, history.run.news, history.run.status) == (2, 2, RunStatus.RUNNING)
    assert history.run.updated_at >= before.updated_at
    assert [(step.name, step.status) for step in history.steps] == [("a", "succeeded"), ("b", "scheduled")]
    assert scene.run() == before


def test_only_a_running_run_with_unseen_news_and_no_pass_is_previewed(scene: Scene) -> None:
    """A pass that lapsed has to be counted as lost, so it is for an opening; a delayed start is not reached; the rest has nothing to do."""
    shown = [scene.store.preview_pass(RunId("absent"), PassId("p2"))]
    ref = scene.begin("held")
    shown.append(scene.store.preview_pass(RunId("held"), PassId("p2")))
    scene.advance(31)
    shown.append(scene.store.preview_pass(RunId("held"), PassId("p2")))
    scene.park(ref)
    shown.append(scene.store.preview_pass(RunId("held"), PassId("p2")))
    scene.insert("delayed", delay_seconds=60.0)
    shown.append(scene.store.preview_pass(RunId("delayed"), PassId("p2")))
    scene.close(scene.begin("suspended"), status=RunStatus.SUSPENDED, raise_news=True)
    shown.append(scene.store.preview_pass(RunId("suspended"), PassId("p2")))
    assert shown == [None] * 6


def test_an_advance_is_a_whole_pass(scene: Scene) -> None:
    """Rows whose messages leave are scheduled, the news is seen, no pass has the run, and a worker may take them."""
    scene.insert()
    assert advance(scene, previewed(scene).run.news, "a", due_seconds=60.0)
    run, row = scene.run(), scene.step()
    assert (run.pass_id, run.seen, run.news, run.status, run.lost) == (None, 1, 1, RunStatus.RUNNING, False)
    assert run.due_at is not None
    assert (row.status, row.attempt, row.author, row.seq) == (StepStatus.SCHEDULED, 1, "p2", 0)
    assert None not in {row.scheduled_at, row.sent_at}
    scene.claimed()
    assert scene.succeed().wake


def test_rows_that_wait_for_their_time_stay_pending(scene: Scene) -> None:
    """No message leaves for them now."""
    scene.insert()
    act = Advance(news=1, steps=(new_step("a", delay_seconds=60.0),))
    assert scene.store.advance(scene.ref(by="p2"), act)
    assert (scene.step().status, scene.step().is_due, scene.step().sent_at) == (StepStatus.PENDING, False, None)


def test_what_an_advance_sent_is_sent_again_when_nobody_takes_it(scene: Scene) -> None:
    """Spec 7.2: like any row that was sent."""
    scene.insert()
    assert advance(scene, 1, "a")
    assert scene.undispatched() == []
    scene.advance(31)
    assert scene.undispatched() == [("a", 1)]


def test_a_fan_is_counted_by_its_rows(scene: Scene) -> None:
    """Design 2: the last of its members raises news, and none before."""
    scene.insert()
    steps = tuple([new_step(name, seq=seq, fan_id=FanId("a")) for seq, name in enumerate("ab")])
    assert scene.store.advance(scene.ref(by="p2"), Advance(news=1, steps=steps))
    scene.claimed("a")
    scene.claimed("b", claim="c2")
    assert not scene.succeed("a").wake
    assert scene.succeed("b", claim="c2").wake


@pytest.mark.parametrize("what", ["news", "opened", "closed", "stopped"])
def test_a_run_that_has_moved_is_not_advanced(scene: Scene, what: str) -> None:
    """I5: whatever came since the preview, and whoever had the run, the act writes nothing."""
    scene.dispatch("a", "b")
    scene.claimed("a")
    scene.succeed("a")
    news = previewed(scene).run.news
    if what == "news":
        scene.claimed("b", claim="c2")
        scene.succeed("b", claim="c2")
    elif what == "stopped":
        scene.stop()
    else:
        scene.open(by="p3")
        if what == "closed":
            scene.park(scene.ref(by="p3"))
    before = scene.run()
    assert not advance(scene, news, "c")
    assert scene.run() == before
    assert scene.store.get_step(RunId("r1"), StepName("c")) is None


def test_an_advance_whose_answer_was_lost_is_done_once(scene: Scene) -> None:
    """D24: asked for again it has been done; another pass's does not count as done."""
    scene.insert()
    assert advance(scene, 1, "a")
    assert advance(scene, 1, "a")
    assert not advance(scene, 1, "a", by="p3")
    assert len(scene.store.list_steps(RunId("r1"))) == 1


def test_one_of_many_concurrent_advances_lands(scene: Scene) -> None:
    """I1: however many previewed the run."""
    for turn in range(25):
        run_id = scene.insert(f"r{turn}")
        answers = race(*[partial(advance, scene, 1, f"by{n}", run_id=run_id, by=f"p{n}") for n in range(3)])
        assert sorted(answers) == [False, False, True]
        assert [step.name for step in scene.store.list_steps(run_id)] == [f"by{answers.index(True)}"]


def test_an_advance_and_an_opening_exclude_each_other(scene: Scene) -> None:
    """I1: whoever comes second finds what the first one left."""
    for turn in range(25):
        run_id = scene.insert(f"r{turn}")
        landed, opened = race(partial(advance, scene, 1, "a", run_id=run_id), partial(scene.open, run_id, "p3"))
        assert [step.name for step in opened.steps] == (["a"] if landed else [])
