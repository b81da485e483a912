"""Two writers at the same moment on PostgreSQL: what design 3 says of each pair, many rounds, with deadlocks counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pytest

from pikkuflow.domain.act import Closing, PassRefusal, StepWrite
from pikkuflow.domain.history import History
from pikkuflow.domain.ids import Holder
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.domain.step import Place
from tests.contract.scene import Scene, new_step, race


def _rounds(one: Callable[[str], None], count: int = 25) -> None:
    """The same race over many runs."""
    for number in range(count):
        one(f"r{number}")


@pytest.fixture
def scene(postgres_scene: Scene) -> Iterator[Scene]:
    """A scene in which no two acts may have deadlocked."""
    yield postgres_scene
    database = postgres_scene.store.database  # type: ignore[attr-defined]
    found = database.autocommit(
        lambda db: db.first("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()", {})
    )
    assert found["deadlocks"] == 0


def test_an_opening_knows_the_outcomes_that_its_news_count(scene: Scene) -> None:
    """Design 3.2: an outcome from elsewhere is either in the history or unseen news; never seen and missing."""

    def one(run_id: str) -> None:
        scene.dispatch("a", run_id=run_id)
        scene.claimed("a", run_id=run_id)
        opened, settled = race(lambda: scene.open(run_id, "p2"), lambda: scene.succeed("a", run_id=run_id))
        assert settled.accepted == (True,)
        knows = opened.steps[0].is_settled
        closed = scene.park(scene.ref(run_id, "p2"))
        assert knows or closed.wake

    _rounds(one)


def test_a_closing_and_an_outcome_wake_the_run_at_least_once(scene: Scene) -> None:
    """Design 3.5: whoever comes second sees the other."""

    def one(run_id: str) -> None:
        scene.dispatch("a", run_id=run_id)
        scene.claimed("a", run_id=run_id)
        scene.open(run_id, "p2")
        closed, settled = race(lambda: scene.park(scene.ref(run_id, "p2")), lambda: scene.succeed("a", run_id=run_id))
        assert closed.wake + settled.wake == 1

    _rounds(one)


def test_the_last_of_many_members_tells_the_run_once(scene: Scene) -> None:
    """Design 2: a counter on a locked row; "am I the last" has one answer, however they end together."""
    names = [f"m[{i}]" for i in range(8)]

    def one(run_id: str) -> None:
        scene.dispatch(*names, run_id=run_id, joined=True, fan_id="m")
        for name in names:
            scene.claimed(name, run_id=run_id, claim=f"c-{name}")
        settled = race(*(lambda n=name: scene.succeed(n, run_id=run_id, claim=f"c-{n}") for name in names))
        assert sum(settlement.wake for settlement in settled) == 1
        run = scene.run(run_id)
        assert run.news - run.seen == 1

    _rounds(one, 12)


def test_a_pass_that_is_taken_over_writes_nothing_afterwards(scene: Scene) -> None:
    """Design 3.3: the write of the old pass comes before the take-over and is in its history, or it is refused."""

    def one(run_id: str) -> None:
        old = scene.begin(run_id)
        scene.store.expire_holder(Holder("node:1"))
        written, opened = race(
            lambda: scene.write(old, StepStatus.SUCCEEDED, result='"old"'), lambda: scene.open(run_id, "p2")
        )
        assert (written is not None) == bool(opened.steps)

    _rounds(one)


def test_outcomes_together_beside_news_and_a_take_over_are_written_or_fenced(scene: Scene) -> None:
    """Issue C, Build 4, design 3.3: a batch that waited for a run judges it as it is by then; the mark of a lost pass is cleared by it."""

    def one(run_id: str) -> None:
        other = f"{run_id}-other"
        scene.dispatch("far", run_id=run_id)
        scene.claimed("far", run_id=run_id)
        for pass_id in ("lost", "mine"):
            scene.open(run_id, pass_id)
            scene.store.expire_holder(Holder("node:1"))
        taken = scene.begin(other)
        scene.store.expire_holder(Holder("node:1"))
        writes = [
            (
                ref,
                StepWrite(
                    step=new_step(name, place=Place.in_pass(ref.pass_id)), attempt=1, status=StepStatus.SUCCEEDED
                ),
            )
            for ref, name in ((taken, "a"), (scene.ref(run_id, "mine"), "b"), (taken, "c"))
        ]
        answers, settled, opened = race(
            lambda: scene.store.record_all(writes),
            lambda: scene.succeed("far", run_id=run_id),
            lambda: scene.open(other, "p2"),
        )
        assert settled.accepted == (True,)
        assert answers[1] is not None
        assert not scene.run(run_id).lost
        assert (answers[0] is not None) == (answers[2] is not None) == (len(opened.steps) == 2)

    _rounds(one)


def test_one_of_two_passes_opens(scene: Scene) -> None:
    """I1: one pass a run, judged on the locked row."""

    def one(run_id: str) -> None:
        scene.insert(run_id)
        answers = race(*(lambda p=i: scene.try_open(run_id, f"p{p}") for i in range(4)))
        assert sum(isinstance(answer, History) for answer in answers) == 1
        assert {answer for answer in answers if not isinstance(answer, History)} == {PassRefusal.HELD}

    _rounds(one)


def test_a_step_of_a_settled_run_is_claimed_or_cancelled(scene: Scene) -> None:
    """Design 3.6, 3.7: a claim that lands keeps its row from being cancelled; one that comes late is refused."""

    def one(run_id: str) -> None:
        scene.dispatch("a", run_id=run_id)
        scene.open(run_id, "p2")
        claims, _ = race(
            lambda: scene.claim("a", run_id=run_id),
            lambda: scene.close(scene.ref(run_id, "p2"), status=RunStatus.FAILED),
        )
        expected = StepStatus.RUNNING if claims.claimed else StepStatus.CANCELLED
        assert scene.step("a", run_id).status is expected

    _rounds(one)


def test_a_retry_beside_the_end_of_its_run_leaves_no_row_waiting(scene: Scene) -> None:
    """Design 3.7: the waiting rows of an ending are read after its lock."""

    def one(run_id: str) -> None:
        scene.dispatch("a", run_id=run_id)
        scene.claimed("a", run_id=run_id)
        scene.open(run_id, "p2")
        race(
            lambda: scene.try_again("a", run_id=run_id),
            lambda: scene.close(scene.ref(run_id, "p2"), status=RunStatus.FAILED),
        )
        row = scene.step("a", run_id)
        assert row.status is StepStatus.FAILED or (row.status, row.attempt) == (StepStatus.PENDING, 2)
        assert scene.undispatched(0.0) == []

    _rounds(one)


def _work_members(scene: Scene, run_id: str, names: Sequence[str]) -> None:
    for name in names:
        if scene.claim(name, run_id=run_id, claim=f"c-{name}").claimed:
            scene.succeed(name, run_id=run_id, claim=f"c-{name}")


def _work_passes(scene: Scene, run_id: str) -> None:
    for turn in range(8):
        if isinstance(scene.try_open(run_id, f"p-{turn}"), History):
            ref = scene.ref(run_id, f"p-{turn}")
            scene.write(ref, StepStatus.SUCCEEDED, f"in-place-{turn}", result="1")
            scene.store.close_pass(ref, Closing(status=RunStatus.RUNNING))


def _repair(scene: Scene) -> None:
    for _ in range(4):
        scene.store.renew_holders([Holder("node:1"), Holder("node:2")], 30.0)
        scene.stalled(0.0)
        scene.undispatched(0.0)
        scene.due()


def test_everything_at_once_neither_deadlocks_nor_fails(scene: Scene) -> None:
    """One lock order: passes, claims, outcomes, renewals and sweeps over the same few runs."""
    names = [f"m[{i}]" for i in range(6)]
    runs = [f"r{i}" for i in range(4)]
    calls: list[Callable[[], None]] = [partial(_repair, scene)]
    for run_id in runs:
        scene.dispatch(*names, run_id=run_id, joined=True, fan_id="m")
        calls += [partial(_work_members, scene, run_id, names[:3]), partial(_work_members, scene, run_id, names[3:])]
        calls.append(partial(_work_passes, scene, run_id))

    race(*calls)

    for run_id in runs:
        assert all(scene.step(name, run_id).status is StepStatus.SUCCEEDED for name in names)
