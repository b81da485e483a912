"""What a hint service promises (design 4; the ``Hints`` port): due times and announcements, best effort."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from redis import Redis

from pikkuflow.adapters.memory import MemoryHints, MovableClock
from pikkuflow.adapters.redis import RedisHints
from pikkuflow.domain.act import DueRun
from pikkuflow.domain.ids import RunId
from pikkuflow.ports import Hints

_RUN = RunId("order-42")
_OTHER = RunId("order {43} 'ü'")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    hints: Hints
    advance: Callable[[float], None]


@pytest.fixture(params=["memory", "valkey"])
def bench(request: pytest.FixtureRequest) -> Iterator[_Bench]:
    """Each hint service in turn, empty, with a way to move its time."""
    if request.param == "memory":
        clock = MovableClock()
        yield _Bench(hints=MemoryHints(clock), advance=clock.advance)
        return
    url = request.getfixturevalue("valkey_url")
    hints = RedisHints(url)
    with Redis.from_url(url) as server:

        def advance(seconds: float) -> None:
            for run_id, due in server.zrange("pikkuflow:due", 0, -1, withscores=True):
                server.zadd("pikkuflow:due", {run_id: due - seconds * 1_000})

        yield _Bench(hints=hints, advance=advance)
    hints.close()


@pytest.fixture
def hints(bench: _Bench) -> Hints:
    """The service."""
    return bench.hints


def test_a_hint_is_due_when_its_time_has_come(bench: _Bench, hints: Hints) -> None:
    """Design 4: not before, and then once."""
    hints.leave(_RUN, 60)
    assert hints.pop_due(10) == ()

    bench.advance(61)

    assert hints.pop_due(10) == (_RUN,)
    assert hints.pop_due(10) == ()


def test_hints_that_may_be_lost_are_left_again(bench: _Bench, hints: Hints) -> None:
    """Design 3.8: many at once; a hint that is still there and earlier stays."""
    hints.leave(_OTHER, 5)
    hints.leave_again([DueRun(run_id=_RUN, in_seconds=60), DueRun(run_id=_OTHER, in_seconds=60)])
    hints.leave_again([])

    bench.advance(6)
    assert hints.pop_due(10) == (_OTHER,)
    bench.advance(55)
    assert hints.pop_due(10) == (_RUN,)


def test_a_hint_for_now_is_due_at_once(hints: Hints) -> None:
    """Design 4: a delay of 0 is due."""
    hints.leave(_RUN, 0)

    assert hints.pop_due(10) == (_RUN,)


@pytest.mark.parametrize(("first", "second"), [(60, 600), (600, 60)])
def test_of_two_hints_of_a_run_the_earlier_one_stays(bench: _Bench, hints: Hints, first: int, second: int) -> None:
    """Design 4: one hint a run, whatever the order in which they are left."""
    hints.leave(_RUN, first)
    hints.leave(_RUN, second)

    bench.advance(61)

    assert hints.pop_due(10) == (_RUN,)
    bench.advance(600)
    assert hints.pop_due(10) == ()


def test_what_is_due_longest_comes_first_and_no_more_than_asked(bench: _Bench, hints: Hints) -> None:
    """Design 4: a popping thread takes a bounded bite; the rest stays for the next one."""
    for place in range(5):
        hints.leave(RunId(f"run-{place}"), 50 - place * 10)
    bench.advance(100)

    assert hints.pop_due(2) == ("run-4", "run-3")
    assert hints.pop_due(10) == ("run-2", "run-1", "run-0")


def test_each_due_hint_is_given_to_one_caller(bench: _Bench, hints: Hints) -> None:
    """Design 4: any worker can pop, and no two get the same run."""
    runs = {RunId(f"run-{number}") for number in range(200)}
    for run_id in runs:
        hints.leave(run_id, 0)
    bench.advance(1)

    def pop_all(_: int) -> list[RunId]:
        got: list[RunId] = []
        while some := hints.pop_due(7):
            got.extend(some)
        return got

    with ThreadPoolExecutor(4) as pool:
        popped = [run_id for got in pool.map(pop_all, range(4)) for run_id in got]

    assert len(popped) == 200
    assert set(popped) == runs


def test_an_announcement_between_entering_and_waiting_is_not_missed(hints: Hints) -> None:
    """The order of the port: enter, read the store (the run moves now), wait."""
    with hints.watching(_RUN) as watch:
        hints.announce(_RUN)

        assert watch.wait(10)


def test_an_announcement_wakes_a_waiter(hints: Hints) -> None:
    """Design 2: a result is waited for on a hint, not on a fast poll."""
    with hints.watching(_RUN) as watch:
        announcing = threading.Timer(0.2, hints.announce, [_RUN])
        announcing.start()
        deadline = time.monotonic() + 20
        while not (heard := watch.wait(10)) and time.monotonic() < deadline:
            pass
        announcing.join()

    assert heard


def test_an_announcement_of_another_run_is_not_heard(hints: Hints) -> None:
    """One ear, one run."""
    with hints.watching(_RUN) as watch:
        hints.announce(_OTHER)

        assert not watch.wait(0.1)


def test_every_watcher_of_a_run_hears_its_announcement(hints: Hints) -> None:
    """Two processes may wait for the same result."""
    with hints.watching(_OTHER) as one, hints.watching(_OTHER) as two:
        hints.announce(_OTHER)

        assert one.wait(10)
        assert two.wait(10)


def test_waiting_without_an_announcement_ends_by_itself(hints: Hints) -> None:
    """The caller looks at the store again after the time it gave."""
    began = time.monotonic()

    assert not hints.wait(_RUN, 0.1)
    assert time.monotonic() - began < 5
