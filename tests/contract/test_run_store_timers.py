"""What hints are made of and lead to: times that are coming, and runs by their ids (design 3.8, 4)."""

from __future__ import annotations

import pytest

from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import RunStatus
from tests.contract.scene import Scene


def test_runs_are_found_by_their_ids_in_one_read(scene: Scene) -> None:
    """Design 4: the workflow says where a wake-up goes; settled and unknown runs need none, and no one is named twice."""
    for run_id in ("r1", "r2", "r3"):
        scene.insert(run_id)
    scene.open("r3")
    scene.close(scene.ref("r3"), status=RunStatus.COMPLETED, output="1")

    found = scene.store.find_runs([RunId(run_id) for run_id in ("r2", "nobody", "r3", "r1", "r2")])

    assert sorted((one.ref.id, one.ref.workflow) for one in found) == [("r1", "shop.order"), ("r2", "shop.order")]
    assert scene.store.find_runs([]) == ()


def test_a_run_that_is_held_is_found_with_how_long_and_how_much_longer(scene: Scene) -> None:
    """D11, H11: a wake-up of it would be turned away; by the database's clock."""
    scene.begin("r1")
    scene.advance(20)
    (found,) = scene.store.find_runs([RunId("r1")])
    assert found.held_seconds == pytest.approx(20, abs=3)
    assert found.left_seconds == pytest.approx(10, abs=3)

    scene.advance(11)
    (lapsed,) = scene.store.find_runs([RunId("r1")])
    assert lapsed.held_seconds is None

    scene.open(by="p2")
    (taken,) = scene.store.find_runs([RunId("r1")])
    assert taken.held_seconds == pytest.approx(0, abs=3)
    scene.park(scene.ref(by="p2"))
    (free,) = scene.store.find_runs([RunId("r1")])
    assert free.held_seconds is None


def test_a_sleep_that_is_coming_is_told_with_its_rest(scene: Scene) -> None:
    """T10.7: what is left of it, by the database's clock; not once it is due, and not when it is too far ahead."""
    scene.sleeping("r1", 60.0)
    scene.advance(20)

    (due,) = scene.store.upcoming(3600.0, 10).due
    assert due.run_id == "r1"
    assert due.in_seconds == pytest.approx(40, abs=3)
    assert scene.store.upcoming(30.0, 10).due == ()
    scene.advance(41)
    assert scene.store.upcoming(3600.0, 10).due == ()


def test_retries_and_delayed_starts_are_coming_too(scene: Scene) -> None:
    """Design 4: every ``due_at`` is a column, whoever waits for it."""
    scene.dispatch("a")
    scene.claimed()
    scene.try_again(delay_seconds=30.0)
    scene.insert("r2", delay_seconds=50.0)

    coming = {due.run_id: round(due.in_seconds, -1) for due in scene.store.upcoming(3600.0, 10).due}

    assert coming == {"r1": 30, "r2": 50}


def test_a_run_and_its_row_have_one_hint(scene: Scene) -> None:
    """Design 4: one hint a run, for the earlier of the two."""
    scene.sleeping("r1", 60.0)
    scene.sleeping("r2", 60.0)
    scene.store.ask_pass(RunId("r1"), 30.0)
    scene.store.ask_pass(RunId("r2"), 90.0)

    coming = sorted((due.run_id, round(due.in_seconds, -1)) for due in scene.store.upcoming(3600.0, 10).due)

    assert coming == [("r1", 30), ("r2", 60), ("r2", 90)]


def test_a_settled_run_has_nothing_coming(scene: Scene) -> None:
    """Nobody would open a pass for it."""
    scene.sleeping("r1", 60.0)
    scene.open(by="p2")
    scene.close(scene.ref(by="p2"), status=RunStatus.FAILED)

    assert scene.store.upcoming(3600.0, 10).due == ()


def test_what_is_coming_comes_in_pages(scene: Scene) -> None:
    """D12: every row once, whatever the page size."""
    for number in range(5):
        scene.sleeping(f"r{number}", 60.0)
    scene.insert("late", delay_seconds=50.0)
    for limit in (1, 2, 3, 6, 7):
        seen: list[str] = []
        after = None
        while True:
            page = scene.store.upcoming(3600.0, limit, after)
            assert len(page.due) <= limit
            seen += [due.run_id for due in page.due]
            after = page.last
            if after is None:
                break
        assert sorted(seen) == ["late", "r0", "r1", "r2", "r3", "r4"]
