"""The table "When a worker dies" of ``docs/canvas.md``: each shape, Celery's own and the durable one, on real processes that are killed.

Three ways: ``child`` kills the process of one task, ``host`` the whole worker, and starts another; ``late`` is ``child`` with Celery's best
settings, ``task_acks_late`` and ``task_reject_on_worker_lost``, of which the durable canvas has no need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from celery import chain, chord, group
from redis import Redis

from pikkuflow import RunFailed
from pikkuflow.adapters.redis import redis_url_of
from pikkuflow.domain.ids import StepName, invocation_id
from tests.acceptance.conftest import on_valkey
from tests.acceptance.deployment import Deployment, wait_for_status
from tests.servers.postgres import PostgresServer
from tests.servers.processes import wait_until
from tests.servers.valkey import ValkeyServer

WAYS = ("child", "host", "late")
OURS = WAYS[:2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A canvas in which one task is killed once: what it is to give, and how often its other tasks are worked in all.

    ``before`` is how often they are worked when what is killed stays lost, ``again`` when Celery delivers it once more.
    """

    build: Callable[[Any, Callable[..., Any], str], Any]
    value: Any
    worked: int
    before: int
    again: int = 0


def _deepest(m: Any, doom: Callable[..., Any], name: str) -> Any:
    inner = chord([doom(m.doom), m.echo.s(3, name)], m.echo.s(name))
    return chord([m.echo.s(1, name), chord([m.echo.s(2, name), inner], m.echo.s(name))], m.echo.s(name))


def _items(doom: Callable[..., Any], name: str) -> list[tuple[str, str, str]]:
    how, mark, _ = doom()
    return [("work", mark, name), (how, mark, name), ("work", mark, name), ("work", mark, name)]


def _linked(m: Any, doom: Callable[..., Any], name: str) -> Any:
    task = doom(m.doom)
    task.link(m.echo.s(name))
    task.on_error(m.failed.s(canvas=name))
    return task


SHAPES = {
    "chain": Shape(
        build=lambda m, doom, name: chain(m.echo.s(1, name), doom(m.doom), m.echo.s(2, name)),
        value=["alive", 2],
        worked=2,
        before=1,
    ),
    "group": Shape(
        build=lambda m, doom, name: group(m.echo.s(1, name), doom(m.doom), m.echo.s(2, name)),
        value=[[1], "alive", [2]],
        worked=2,
        before=2,
    ),
    "chord": Shape(
        build=lambda m, doom, name: chord([m.echo.s(1, name), doom(m.doom)], m.echo.s(2, name)),
        value=[[[1], "alive"], 2],
        worked=2,
        before=1,
    ),
    "nested": Shape(build=_deepest, value=[[[1], [[[2], [["alive", [3]]]]]]], worked=6, before=3),
    "map": Shape(
        build=lambda m, doom, name: m.item_of.map([list(one) for one in _items(doom, name)]),
        value=["work", "fall", "work", "work"],
        worked=3,
        before=1,
        again=1,
    ),
    "starmap": Shape(
        build=lambda m, doom, name: m.item.starmap(_items(doom, name)),
        value=["work", "fall", "work", "work"],
        worked=3,
        before=1,
        again=1,
    ),
    "chunks": Shape(
        build=lambda m, doom, name: m.item.chunks(_items(doom, name), 2),
        value=[["work", "fall"], ["work", "work"]],
        worked=3,
        before=3,
        again=1,
    ),
    "link": Shape(build=_linked, value="alive", worked=1, before=0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """A deployment in which every canvas, Celery's and ours, was struck; nothing is left in it that could go on."""

    way: str
    deployment: Deployment
    canvases: Any
    runs: dict[str, Any] = field(default_factory=dict)
    results: dict[str, list[str]] = field(default_factory=dict)

    @property
    def how(self) -> str:
        """What becomes of the one to be killed the first time."""
        return "hang" if self.way == "host" else "die"

    @property
    def names(self) -> list[str]:
        """Every canvas, by ``durable`` or ``plain`` and its shape."""
        return [f"{kind} {shape}" for kind in ("durable", "plain") for shape in self.results]

    def name(self, name: str) -> str:
        """What the journal has one as."""
        return f"{self.way} {name}"

    def worked(self, name: str) -> int:
        """How often tasks other than the killed one were worked."""
        lines = self.deployment.journal(run=self.name(name))
        return len([line for line in lines if line["event"] == "echo" or line.get("what") == "work"])

    def killed(self, name: str) -> int:
        """How often the one to be killed was begun."""
        lines = self.deployment.journal(run=self.name(name))
        return len([line for line in lines if line["event"] == "doom" or line.get("what") == self.how])

    def told(self, name: str) -> list[str]:
        """The ids that its errback was told of."""
        return [line["id"] for line in self.deployment.journal("failed", run=self.name(name))]

    def state(self, shape: str) -> str:
        """What Celery's results say; PENDING when there is none."""
        backend = self.canvases.app.backend
        states = {backend.get_task_meta(task_id, cache=False)["status"] for task_id in self.results[shape]}
        return "FAILURE" if "FAILURE" in states else states.pop() if len(states) == 1 else "PENDING"


@pytest.fixture(scope="module")
def all_struck(
    tmp_path_factory: pytest.TempPathFactory, valkey_server: ValkeyServer, postgres_server: PostgresServer
) -> Iterator[dict[str, Struck]]:
    """Every canvas, struck in each way: two workers, of which the first is killed and the second has Celery's best settings."""
    folder = tmp_path_factory.mktemp("struck")
    settings = {"CELERY_RESULT_BACKEND": valkey_server.broker_url, "PIKKUFLOW_RETRIES": "1"}
    for deployment in on_valkey(folder, valkey_server, postgres_server, settings):
        # Everybody hangs at the same time, and neighbours are worked all the same.
        worker = deployment.worker("canvases", concurrency=2 * len(SHAPES) + 6)
        child = _settled(_started(deployment, "child"))
        host = _hanging(_started(deployment, "host"))
        worker.kill_all()
        deployment.worker("canvases", concurrency=4, env={"CANVASES_LATE": "yes"})
        yield {"child": child, "host": _settled(host), "late": _redelivered(_started(deployment, "late"))}


def _started(deployment: Deployment, way: str) -> Struck:
    canvases = deployment.load("canvases")
    struck = Struck(way=way, deployment=deployment, canvases=canvases)
    for shape in [*SHAPES, *(["late chain"] if way == "host" else []), "link_error"]:
        if way != "late":
            struck.runs[shape] = canvases.pikku.durable(_canvas(struck, f"durable {shape}")).start()
        result = _canvas(struck, f"plain {shape}").apply_async()
        struck.results[shape] = [one.id for one in getattr(result, "results", [result])]
    return struck


def _hanging(struck: Struck) -> Struck:
    """Once each is at its task that hangs."""
    wait_until(
        lambda: all(struck.killed(name) for name in struck.names),
        seconds=40,
        what=lambda: f"a hang in {[name for name in struck.names if not struck.killed(name)]}",
    )
    return struck


def _settled(struck: Struck) -> Struck:
    """Once nothing is left that could go on."""
    for run in struck.runs.values():
        wait_for_status(run, "completed", "failed", seconds=40)
    wait_until(lambda: _is_quiet(struck), seconds=40, what="a quiet broker and an idle worker")
    return struck


def _redelivered(struck: Struck) -> Struck:
    """Once all have ended, but for the one that dies again and again."""
    wait_until(
        lambda: all(struck.state(shape) == "SUCCESS" for shape in SHAPES),
        seconds=40,
        what=lambda: f"SUCCESS of {[shape for shape in SHAPES if struck.state(shape) != 'SUCCESS']}",
    )
    return struck


def _canvas(struck: Struck, name: str) -> Any:
    canvases, shape, name = struck.canvases, name.split(" ", 1)[1], struck.name(name)
    mark = str(struck.deployment.folder / name.replace(" ", "-"))

    def doom(task: Any = None, how: str = struck.how) -> Any:
        return task.si(how, mark, name) if task is not None else (how, mark, name)

    if shape == "link_error":
        task = doom(canvases.doom, f"deadly-{struck.how}")
        task.on_error(canvases.failed.s(canvas=name))
        return task
    if shape == "late chain":
        return chain(doom(canvases.late_doom), canvases.echo.s(name))
    return SHAPES[shape].build(canvases, doom, name)


def _is_quiet(struck: Struck) -> bool:
    """No message waits, and no task of a canvas is at work."""
    with _broker(struck) as client:
        if client.llen("celery"):
            return False
    active = struck.canvases.app.control.inspect(timeout=1).active() or {}
    return bool(active) and not [task for tasks in active.values() for task in tasks]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("way", OURS)
def test_a_durable_canvas_outlives_its_worker(all_struck: dict[str, Struck], way: str, shape: str) -> None:
    """Pains 2, 3, 5 and 13: what was killed is begun once more; everything else, items and joins as well, is worked once."""
    struck = all_struck[way]
    value = struck.runs[shape].result(timeout=1)
    name = f"durable {shape}"
    assert repr(value).replace(struck.how, "fall") == repr(SHAPES[shape].value)
    assert (struck.killed(name), struck.worked(name)) == (2, SHAPES[shape].worked)
    assert struck.told(name) == []


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("way", WAYS)
def test_celerys_own_canvas_does_not(all_struck: dict[str, Struck], way: str, shape: str) -> None:
    """Pains 2, 3, 5 and 13, the fault itself, with Celery's defaults; ``late`` is what its best settings make of it."""
    struck = all_struck[way]
    expected, name = SHAPES[shape], f"plain {shape}"
    if struck.way == "late":
        assert struck.state(shape) == "SUCCESS"
        assert (struck.killed(name), struck.worked(name)) == (2, expected.worked + expected.again)
        return
    # A join of joins, and all that a dead host had, is waited for for ever: nothing is left that could end it.
    ends = struck.way == "child" and shape != "nested"
    assert struck.state(shape) == ("FAILURE" if ends else "PENDING")
    assert (struck.killed(name), struck.worked(name)) == (1, expected.before)


@pytest.mark.parametrize("way", OURS)
def test_a_durable_errback_is_told_when_the_attempts_are_used_up(all_struck: dict[str, Struck], way: str) -> None:
    """Pain 2: a task that kills each of its processes is given up after its two attempts, and its error handler is told, once."""
    struck = all_struck[way]
    run = struck.runs["link_error"]
    with pytest.raises(RunFailed):
        run.result(timeout=1)
    assert struck.killed("durable link_error") == 2
    assert struck.told("durable link_error") == [invocation_id(run.run_id, StepName("canvases.doom"))]


def test_celerys_errback_is_not_told_of_a_lost_host(all_struck: dict[str, Struck]) -> None:
    """Pain 2, the fault itself: told when a process is lost, never when a host is; and a poison task of the best settings never ends."""
    child, host, late = (all_struck[way] for way in ("child", "host", "late"))
    assert child.told("plain link_error") == child.results["link_error"]
    assert host.told("plain link_error") == []
    wait_until(lambda: late.killed("plain link_error") > 2, seconds=40, what="a third death, uncounted")
    assert late.told("plain link_error") == []


def test_a_late_acknowledged_task_of_a_lost_host_stays_hidden(all_struck: dict[str, Struck]) -> None:
    """Pain 13: on Redis another worker gets it after the visibility timeout, here an hour; the durable one has long ended."""
    host = all_struck["host"]
    assert host.runs["late chain"].result(timeout=1) == ["alive"]
    assert (host.state("late chain"), host.killed("plain late chain")) == ("PENDING", 1)
    with _broker(host) as client:
        assert any(b"canvases.late_doom" in message for message in client.hvals("unacked"))


def _broker(struck: Struck) -> Any:
    url = redis_url_of(struck.deployment.broker_url)
    assert url is not None
    return Redis.from_url(url)
