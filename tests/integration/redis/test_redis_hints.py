"""What only the Redis adapter promises of hints: outages, restarts, many at once."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from pikkuflow.adapters.redis import RedisHints
from pikkuflow.domain.ids import RunId
from tests.servers.valkey import ValkeyServer

_RUN = RunId("order-42")


@pytest.fixture
def hints(valkey_url: str) -> Iterator[RedisHints]:
    """The service on an emptied server."""
    made = RedisHints(valkey_url)
    yield made
    made.close()


def _until(condition: Callable[[], object], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not (met := bool(condition())) and time.monotonic() < deadline:
        time.sleep(0.01)
    return met


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_hint_comes_due_by_the_servers_clock(hints: RedisHints) -> None:
    """Design 4: sub-second."""
    hints.leave(_RUN, 0.05)

    assert _until(lambda: hints.pop_due(10) == (_RUN,))


def test_popping_takes_any_number_in_bites(hints: RedisHints) -> None:
    """Design 4: a backlog after an outage is more than one script may hand on."""
    for number in range(2_500):
        hints.leave(RunId(f"run-{number}"), 0)

    bites = []
    while bite := hints.pop_due(100_000):
        bites.append(len(bite))

    assert sum(bites) == 2_500
    assert max(bites) <= 1_000


def test_no_method_raises_while_the_server_is_away(caplog: pytest.LogCaptureFixture) -> None:
    """The port: the empty answer, and one line in the log however often it is asked."""
    hints = RedisHints("unix:///nonexistent/socket?db=1")

    for _ in range(3):
        hints.leave(_RUN, 1)
        hints.announce(_RUN)
        assert hints.pop_due(10) == ()
        assert not hints.wait(_RUN, 0.01)

    assert len(_warnings(caplog)) == 1


def test_many_hints_for_a_frozen_server_cost_one_timeout(tmp_path: Path) -> None:
    """A pass that leaves one for each of its runs, and a worker's watch, must not wait for each of them."""
    with socket.socket(socket.AF_UNIX) as frozen:
        frozen.bind(str(tmp_path / "s"))
        frozen.listen()
        hints = RedisHints(f"unix://{tmp_path}/s", timeout_seconds=0.3)
        began = time.monotonic()

        for number in range(50):
            hints.leave(RunId(f"run-{number}"), 1)
            hints.announce(_RUN)
            assert hints.pop_due(10) == ()

        assert time.monotonic() - began < 3


def test_a_watch_without_a_server_looks_again_after_half_a_second() -> None:
    """The port: a caller who gave ten minutes still looks at the store."""
    hints = RedisHints("unix:///nonexistent/socket?db=1")
    began = time.monotonic()

    assert not hints.wait(_RUN, 600)

    assert 0.4 < time.monotonic() - began < 5


def test_hints_work_again_when_the_server_is_back(own_valkey: ValkeyServer, caplog: pytest.LogCaptureFixture) -> None:
    """One outage is one warning; the next outage is another."""
    caplog.set_level(logging.INFO)
    hints = RedisHints(own_valkey.url())
    for _ in range(2):
        own_valkey.kill()
        hints.leave(_RUN, 0)
        own_valkey.start()
        hints.leave(_RUN, 0)
        assert hints.pop_due(10) == (_RUN,)

    assert len(_warnings(caplog)) == 2
    hints.close()


def test_a_watch_outlives_a_restart_of_the_server(own_valkey: ValkeyServer) -> None:
    """It listens again by itself: an announcement after the restart is heard."""
    hints = RedisHints(own_valkey.url())
    with hints.watching(_RUN) as watch:
        own_valkey.restart()
        # What was said meanwhile is lost, so the watch may say "look again" once or more.
        assert _until(lambda: not watch.wait(0.2))
        announcing = threading.Timer(0.1, hints.announce, [_RUN])
        announcing.start()
        assert _until(lambda: watch.wait(5))
        announcing.join()
    hints.close()


def test_an_announcement_is_heard_at_once(hints: RedisHints) -> None:
    """Design 2: a result is not polled for."""
    with hints.watching(_RUN) as watch:
        announced: list[float] = []

        def announce() -> None:
            announced.append(time.monotonic())
            hints.announce(_RUN)

        announcing = threading.Timer(0.1, announce)
        announcing.start()
        assert watch.wait(20)
        heard = time.monotonic()
        announcing.join()

    assert heard - announced[0] < 1


def test_a_watch_gives_its_connection_back(hints: RedisHints, valkey_url: str) -> None:
    """A web server waits for results all day."""
    with Redis.from_url(valkey_url) as server:
        hints.announce(_RUN)
        before = len(server.client_list())
        for _ in range(20):
            assert not hints.wait(_RUN, 0.001)

        assert _until(lambda: len(server.client_list()) <= before + 1)
