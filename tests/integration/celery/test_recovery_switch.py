"""When sweeps run: once in the schedule, at a worker's start, never where they are switched off (design 3.8, spec 7.5)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

import pikkuflow.adapters.celery.watch as watch_of_the_worker
from pikkuflow import PikkuFlow, Workflow
from pikkuflow.adapters.celery.worker_hooks import WorkerHooks
from pikkuflow.domain.act import Closing, PassOpening, PassRef, SweepRequest, Swept
from pikkuflow.domain.ids import Holder, PassId, RunId
from pikkuflow.domain.status import RunStatus, SuspendCode
from pikkuflow.engine.sweep import SweepKind, sweep
from pikkuflow.testing import MemoryWorld
from tests.servers.processes import wait_until

_SWEEPS = {"pikkuflow-stalled", "pikkuflow-undispatched", "pikkuflow-scheduled"}
_MISSING_SWEEPS = "missing sweeps"

Memory = Callable[[PikkuFlow], MemoryWorld]


class Site:
    """A worker's main process without a pool, over the memory world; its app is configured by ``conf``."""

    def __init__(self, memory: Memory, **conf: Any) -> None:
        self.app = Celery("swept", broker="memory://", set_as_current=False)
        self.app.conf.update(conf)
        self.pikku = PikkuFlow(self.app)

        @self.pikku.workflow(name="swept.run")
        def run(wf: Workflow) -> int:
            return 1

        self.run = run
        self.world = memory(self.pikku)
        self.hooks: Any = WorkerHooks(self.pikku)
        self.gate = threading.Event()
        self.gate.set()
        self.began: list[str] = []
        self._compose()

    def _compose(self) -> None:
        site, store = self, self.world.store

        class Slow:
            """Sweeping waits at the gate."""

            def __getattr__(self, name: str) -> Any:
                return getattr(store, name)

            def sweep_scheduled(self, request: SweepRequest) -> Swept:
                site.began.append("scheduled")
                assert site.gate.wait(timeout=30)
                return store.sweep_scheduled(request)

        slow: Any = Slow()
        self.rt = replace(self.world.runtime, store=slow)
        self.pikku.compose = lambda **_: self.rt  # type: ignore[method-assign]

    def start_worker(self) -> Any:
        """The pool has started and the worker consumes. Returns its watch."""
        worker: Any = SimpleNamespace(hostname="w1@host", app=self.app, pool=SimpleNamespace())
        worker.wait_for_soft_shutdown = lambda: None
        self.hooks.after_pool(worker)
        self.hooks.on_ready(sender=worker)
        return self.hooks._watch

    def lost_start(self) -> str:
        """A run whose first message was lost a moment ago."""
        run = self.run.start()
        self.world.lose_messages()
        return run.id

    def woken(self) -> list[str]:
        """The runs for which there are messages."""
        return [ref.id for ref in self.world.dispatcher.wakes]


@pytest.fixture
def make(pikkuflow_memory: Memory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Site]]:
    """Sites, which end with the test."""
    monkeypatch.delenv("PIKKUFLOW_RECOVERY", raising=False)
    made: list[Site] = []

    def site(**conf: Any) -> Site:
        made.append(Site(pikkuflow_memory, **conf))
        return made[-1]

    yield site
    for each in made:
        each.gate.set()
        each.hooks.on_shutdown()
        each.app.close()


def test_a_start_sweeps_at_once(make: Callable[..., Site], monkeypatch: pytest.MonkeyPatch) -> None:
    """T10.12, design 3.8: an immediate startup pass without patience for what was left before, which the worker does not wait for."""
    monkeypatch.setattr(watch_of_the_worker, "age_seconds", lambda: 0.0)
    site = make()
    lost = site.lost_start()
    site.gate.clear()

    site.start_worker()
    wait_until(lambda: site.began == ["scheduled"])
    assert site.woken() == []
    site.gate.set()

    wait_until(lambda: site.woken() == [lost])


def test_a_start_tries_what_waits_for_its_code(make: Callable[..., Site]) -> None:
    """D17, design 3.10: a run that met other code goes on with a worker that starts and has its own, however far off its next try is."""
    site = make()
    waiting = site.lost_start()
    opening = PassOpening(
        run_id=RunId(waiting), pass_id=PassId("p"), holder=Holder("old:1"), lease_seconds=30.0, passes_lost_limit=10
    )
    site.world.store.open_pass(opening)
    suspended = Closing(status=RunStatus.SUSPENDED, code=SuspendCode.VERSION_CONFLICT, due_seconds=600.0)
    site.world.store.close_pass(PassRef(run_id=opening.run_id, pass_id=opening.pass_id), suspended)

    site.start_worker()

    wait_until(lambda: site.woken() == [waiting])


def test_recovery_that_is_off_leaves_everything_alone(make: Callable[..., Site]) -> None:
    """T10.12: no beat entry, no startup pass, no sweep of the worker's own; ``flow sweep`` still works (design 3.8)."""
    site = make(pikkuflow_recovery=False)
    lost = site.lost_start()

    watch = site.start_worker()
    site.hooks.on_beat(sender=SimpleNamespace(app=site.app))

    assert site.app.conf.beat_schedule == {}
    assert _MISSING_SWEEPS not in [duty.name for duty in watch._duties]
    assert "pikkuflow-sweep" not in [thread.name for thread in threading.enumerate()]
    assert site.began == []
    site.world.clock.advance(11)
    assert sweep(site.rt, SweepKind.STALLED).resumed == 1
    assert site.woken() == [lost]


def test_a_beat_that_starts_again_has_each_sweep_once(make: Callable[..., Site]) -> None:
    """T10.12: start twice, one timer."""
    site = make()
    for _ in range(2):
        site.hooks.on_beat(sender=SimpleNamespace(app=site.app))

    schedule: Any = site.app.conf.beat_schedule
    assert set(schedule) == _SWEEPS
    assert sorted(entry["args"] for entry in schedule.values()) == [("scheduled",), ("stalled",), ("undispatched",)]


def test_sweeps_of_a_worker_never_overlap(make: Callable[..., Site]) -> None:
    """T10.12, spec 7.5: what comes while one is under way is left out."""
    site = make()
    site.gate.clear()
    watch = site.start_worker()
    wait_until(lambda: site.began == ["scheduled"])
    for _ in range(3):
        watch._sweep()
    assert site.began == ["scheduled"]


def test_two_beats_do_not_sweep_at_the_same_time(make: Callable[..., Site]) -> None:
    """T10.11, T10.12: of two messages for one kind the second finds the lease taken, whichever worker has the first."""
    site = make()
    site.gate.clear()
    first = threading.Thread(target=lambda: sweep(site.rt, SweepKind.SCHEDULED))
    first.start()
    wait_until(lambda: site.began == ["scheduled"])
    sweep(site.rt, SweepKind.SCHEDULED)
    assert site.began == ["scheduled"]
    site.gate.set()
    first.join(timeout=30)


def test_a_worker_that_stopped_sweeps_no_more(make: Callable[..., Site]) -> None:
    """T10.12: stop, none; whatever is due then. A later start sweeps again."""
    site = make()
    watch = site.start_worker()
    wait_until(lambda: site.began == ["scheduled"] and not watch._sweeping.locked())
    site.hooks.on_shutdown()

    site.world.clock.advance(1000)
    for duty in watch._duties:
        watch._do(duty, 1000.0)
    site.hooks.on_ready(sender=SimpleNamespace(app=site.app))
    assert site.began == ["scheduled"]

    site.start_worker()
    wait_until(lambda: site.began == ["scheduled"] * 2)


def test_a_sweep_that_fails_is_logged_and_comes_again(
    make: Callable[..., Site], caplog: pytest.LogCaptureFixture
) -> None:
    """Spec 7.5: logged, never raised."""
    site = make()
    watch = site.start_worker()
    wait_until(lambda: site.began == ["scheduled"] and not watch._sweeping.locked())
    broken: Any = SimpleNamespace()
    rt, watch._rt = watch._rt, replace(watch._rt, store=broken)
    watch._sweep()
    assert "A sweep by this worker failed" in caplog.text
    watch._rt = rt

    watch._sweep()
    assert site.began == ["scheduled"] * 2
