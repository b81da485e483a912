"""A message for several runs keeps none of them from another process that has the time (docs/decisions/shared-messages.md)."""

from __future__ import annotations

from threading import Event, Thread
from typing import Any

import pytest

from pikkuflow.engine.orchestrate import SHARE_SECONDS
from pikkuflow.engine.watch_starts import WATCH
from tests.servers.processes import wait_until
from tests.unit.engine.bench import Bench, Task

RUNS = ("r1", "r2", "r3", "r4", "r5")


def test_what_is_left_of_a_message_is_handed_on_while_its_first_run_works() -> None:
    """A step in place may take an hour; the runs behind it do not wait for it."""
    bench, taken = _bench()

    def slow() -> None:
        bench.clock.advance(SHARE_SECONDS)
        if not taken:
            wait_until(lambda: bench.broker.wakes)
            taken.append([ref.id for ref in bench.broker.wakes])

    bench.task(slow, name="step")
    bench.orchestrate_all(*RUNS)

    assert taken == [["r2", "r3", "r4", "r5"]]
    assert [run_id for run_id in RUNS if bench.run(run_id).is_settled] == ["r1"]
    bench.work()
    assert all(bench.run(run_id).is_settled for run_id in RUNS)


def test_as_many_runs_are_handed_on_in_a_message_as_were_worked_in_the_time() -> None:
    """Quick ones do not cost a message each."""
    bench, sizes = _bench()
    works = iter(RUNS)

    def half() -> None:
        bench.clock.advance(SHARE_SECONDS / 2)
        if next(works) == "r2":
            wait_until(lambda: sizes)

    bench.task(half, name="step")

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(bench.broker, name)

        def wake(self, runs: list[Any], *, at_most: int | None = None) -> None:
            sizes.append((len(runs), at_most))

    bench.orchestrate_all(*RUNS, dispatcher=Counting())

    assert sizes == [(3, 1)]


def test_a_message_ends_when_what_was_handed_on_has_left() -> None:
    """Its process may go away then (``max_tasks_per_child``, a warm shutdown), and nobody else would know of those runs before a sweep."""
    bench, _ = _bench()
    is_leaving = Event()
    was_early: list[bool] = []

    def slow() -> None:
        bench.clock.advance(SHARE_SECONDS)
        is_leaving.wait(30)

    bench.task(slow, name="step")

    class Slow:
        def __getattr__(self, name: str) -> Any:
            return getattr(bench.broker, name)

        def wake(self, runs: list[Any], *, at_most: int | None = None) -> None:
            is_leaving.set()
            working.join(0.3)
            was_early.append(not working.is_alive())
            bench.broker.wake(runs, at_most=at_most)

    working = Thread(target=lambda: bench.orchestrate_all(*RUNS, dispatcher=Slow()), daemon=True)
    working.start()
    working.join(30)

    assert was_early == [False]
    assert [ref.id for ref in bench.broker.wakes] == ["r2", "r3", "r4", "r5"]


def test_a_message_that_is_worked_at_once_is_not_handed_on() -> None:
    """Time is what decides."""
    bench, _ = _bench()
    bench.task(WATCH.look, name="step")

    bench.orchestrate_all(*RUNS)

    assert bench.broker.wakes == []
    assert all(bench.run(run_id).is_settled for run_id in RUNS)


@pytest.mark.parametrize("fails", ["find_runs", "wake"])
def test_runs_that_cannot_be_handed_on_get_a_hint(fails: str) -> None:
    """The look at them or their messages fail, whatever by; the thread that watches lives on and records the starts of long steps."""
    bench, taken = _bench()

    class Away:
        def __init__(self, port: Any) -> None:
            self._port = port

        def __getattr__(self, name: str) -> Any:
            return getattr(self._port, name) if name != fails else self._fail

        def _fail(self, *_: object, **__: object) -> Any:
            raise ValueError("no way out")

    def slow() -> None:
        bench.clock.advance(SHARE_SECONDS)
        wait_until(lambda: bench.due("r5") is not None)
        taken.extend([bench.due(run_id) for run_id in RUNS[1:]])

    bench.task(slow, name="step")
    bench.orchestrate_all(*RUNS, store=Away(bench.store), dispatcher=Away(bench.broker))

    assert taken == [pytest.approx(1)] * 4
    assert WATCH._thread is not None
    assert WATCH._thread.is_alive()


def _bench() -> tuple[Bench, list[Any]]:
    bench = Bench()
    bench.workflow(lambda wf: wf.do(Task("step")), name="flow")
    for run_id in RUNS:
        bench.start("flow", run_id=run_id)
    bench.broker.lose_all()
    return bench, []
