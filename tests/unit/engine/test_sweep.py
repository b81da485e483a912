"""Sweeps: bounded, repeatable repair (design 3.8, spec 7, 13.10)."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from pikkuflow.adapters.memory.hints import MemoryHints
from pikkuflow.domain.act import Closing, PassOpening, PassRef, RunRef, SweepRequest, Swept
from pikkuflow.domain.ids import PassId, RunId
from pikkuflow.domain.status import RunStatus
from pikkuflow.engine.sweep import SweepCounts, SweepKind, recover, sweep
from tests.unit.engine.bench import Bench, Died, Life, Task


def a_bench(**settings: Any) -> Bench:
    """Workflows: ``quick`` ends at once, ``far`` waits for a dispatched step, ``sleepy`` sleeps a minute."""
    bench = Bench(**settings)
    bench.task(lambda: "far", name="far", leaves="queue")

    def quick(wf: Any) -> int:
        return 1

    def far(wf: Any) -> str:
        value: str = wf.do(Task("far"), retry_delay="10s")
        return value

    def sleepy(wf: Any) -> str:
        wf.sleep(60)
        return "awake"

    for body in (quick, far, sleepy):
        bench.workflow(body)
    return bench


def test_a_start_whose_message_was_lost_is_resumed() -> None:
    """T10.1, spec 16.5: a running run with nothing in flight is driven; one info line says so (T10.13)."""
    bench = a_bench()
    bench.start("quick")
    bench.broker.lose_all()
    bench.clock.advance(11)

    assert bench.recover() == SweepCounts(resumed=1)
    bench.work()

    assert bench.output() == 1


def test_a_run_is_not_driven_before_it_has_been_idle() -> None:
    """T10.3: its own message has some time to arrive."""
    bench = a_bench()
    bench.start("quick")
    bench.clock.advance(9)

    assert not bench.recover()


def test_driving_backs_off_across_ticks() -> None:
    """T10.4, T10.5, D13: 30 s, then 60 s; whoever sweeps."""
    bench = a_bench()
    bench.start("quick")
    bench.broker.lose_all()
    bench.clock.advance(11)
    driven = []
    for _ in range(12):
        driven.append(bench.recover().resumed)
        bench.broker.lose_all()
        bench.clock.advance(10)

    assert driven == [1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0]


def test_a_settled_run_is_left_alone() -> None:
    """T10.6."""
    bench = a_bench()
    bench.start("quick")
    bench.work()
    bench.clock.advance(1000)

    assert not bench.recover()


def test_a_run_whose_step_is_in_flight_is_left_alone() -> None:
    """T10.2 as D14 has it: it has no unseen news; its step is claimed and renewed."""
    bench = a_bench()
    bench.start("far")
    bench.work_one()
    bench.clock.advance(20)

    assert not bench.recover()


def test_a_step_message_that_was_lost_is_sent_again_once_per_window() -> None:
    """T5.4, T10.8: after its threshold, then at the pace of the backoff."""
    bench = a_bench()
    bench.start("far")
    bench.work_one()
    bench.broker.lose_all()
    bench.clock.advance(31)

    assert bench.recover() == SweepCounts(redispatched=1)
    bench.broker.lose_all()
    assert not bench.recover()
    bench.clock.advance(31)
    assert bench.recover() == SweepCounts(redispatched=1)
    bench.work()

    assert bench.output() == "far"
    assert len(bench.runner.works) == 1


def test_a_sleep_whose_hint_was_lost_is_woken_by_the_sweep() -> None:
    """T10.7, design 4: late by one interval at most, neither lost nor restarted."""
    bench = a_bench()
    bench.start("sleepy")
    bench.work()
    hints = MemoryHints(bench.clock)
    rt = bench.other(hints=hints)
    bench.clock.advance(59)
    assert not sweep(rt, SweepKind.SCHEDULED)
    bench.clock.advance(2)

    assert sweep(rt, SweepKind.SCHEDULED) == SweepCounts(woken=1)
    bench.work()

    assert bench.output() == "awake"


def test_a_sleeping_run_is_no_business_of_the_backstop() -> None:
    """Design 3.8: its time is its own column, so that looking for forgotten runs does not go over every sleeper."""
    bench = a_bench()
    bench.start("sleepy")
    bench.work()

    due_at = bench.run().due_at
    assert due_at is not None
    assert (due_at - bench.clock.now()).total_seconds() == pytest.approx(60)


def test_a_run_that_bookkeeping_lost_is_told_of_once_and_goes_on() -> None:
    """I7, design 3.8: the backstop gives it a pass, with a warning that names it, and repeats only the message."""
    bench = a_bench()
    run_id = bench.start("quick")
    bench.broker.lose_all()
    ref = PassRef(run_id=run_id, pass_id=PassId("p1"))
    bench.store.open_pass(
        PassOpening(
            run_id=run_id, pass_id=ref.pass_id, holder=bench.rt.holder(), lease_seconds=30.0, passes_lost_limit=10
        )
    )
    bench.store.close_pass(ref, Closing())
    bench.clock.advance(310)

    assert bench.recover() == SweepCounts(resumed=1)
    assert bench.ear.warnings == ["Nothing would have moved this run on; the sweep gives it a pass."]
    bench.broker.lose_all()
    bench.clock.advance(31)
    assert bench.recover() == SweepCounts(resumed=1)
    assert len(bench.ear.warnings) == 1
    bench.work()

    assert bench.output() == 1


def test_a_startup_pass_leaves_hints_of_what_comes_soon_again() -> None:
    """T10.7, design 3.8: a service that lost its hints has them again, for the remainder; a periodic sweep leaves none."""
    bench = a_bench()
    bench.start("sleepy")
    bench.work()
    hints = MemoryHints(bench.clock)
    rt = bench.other(hints=hints)
    bench.clock.advance(20)
    recover(rt)
    assert hints.due_in_seconds(RunId("r1")) is None

    recover(rt, began_at=bench.clock.monotonic())

    assert hints.due_in_seconds(RunId("r1")) == pytest.approx(40)


def test_a_retry_that_is_due_is_sent_by_the_sweep() -> None:
    """Spec 2.2: a retry that sits out its delay is idle on purpose; once due, its message is sent with its attempt (T10.10)."""
    bench = a_bench()
    bench.start("far")
    bench.task(_boom, name="far", leaves="queue")
    bench.work()
    bench.clock.advance(9)
    assert not bench.recover()
    bench.clock.advance(2)

    assert bench.recover() == SweepCounts(retried=1)
    assert [message.attempt for (message,) in bench.broker.messages] == [2]


def test_a_startup_pass_has_no_patience() -> None:
    """Design 3.8: thresholds 0, so a restarted fleet goes on at once."""
    bench = a_bench()
    bench.start("quick")
    bench.start("far", run_id="r2")
    bench.orchestrate("r2")
    bench.broker.lose_all()

    assert bench.recover(startup=True) == SweepCounts(resumed=1, redispatched=1)


def test_a_startup_pass_leaves_alone_what_came_since_its_process_began() -> None:
    """Design 3.8: sent again while its first message waits, it would have to wait for its shared next-send time once that is lost."""
    bench = a_bench()
    bench.start("quick", run_id="before")
    bench.broker.lose_all()
    bench.clock.advance(1)
    began_at = bench.clock.monotonic()
    bench.clock.advance(1)
    bench.start("quick", run_id="after")
    assert recover(bench.rt, began_at=began_at) == SweepCounts(resumed=1)
    assert [ref.id for ref in bench.broker.wakes] == ["after", "before"]
    bench.broker.lose_all()

    bench.clock.advance(1)

    assert bench.recover(startup=True) == SweepCounts(resumed=1)
    assert [ref.id for ref in bench.broker.wakes] == ["after"]


def test_a_sweep_goes_on_page_by_page() -> None:
    """D12: pages by the last seen key; nothing is skipped."""
    bench = a_bench(sweep_page=3)
    for number in range(10):
        bench.start("quick", run_id=f"r{number:02}")
    bench.broker.lose_all()
    bench.clock.advance(11)

    assert bench.recover().resumed == 10
    assert len({ref.id for ref in bench.broker.wakes}) == 10


def test_one_bad_row_does_not_stop_the_sweep() -> None:
    """T10.9: the others of its page are driven, and it is told."""
    bench = a_bench()
    for run_id in ("r1", "r2", "r3"):
        bench.start("quick", run_id=run_id)
    bench.broker.lose_all()
    bench.clock.advance(11)

    class Picky:
        def __getattr__(self, name: str) -> Any:
            return getattr(bench.broker, name)

        def wake(self, runs: list[RunRef], **_: object) -> None:
            if any(run.id == "r2" for run in runs):
                raise ValueError("no queue for this one")
            bench.broker.wake(runs)

    counts = recover(bench.other(dispatcher=Picky()))

    assert counts.resumed == 2
    assert [ref.id for ref in bench.broker.wakes] == ["r1", "r3"]
    assert "no queue for this one" in bench.ear.warnings[0]


def test_a_step_whose_override_cannot_be_read_does_not_stop_the_sweep() -> None:
    """T10.9: what its task asked for was stored by another codec; the others of its page are sent."""
    bench = a_bench()
    for run_id in ("r1", "r2"):
        bench.start("far", run_id=run_id)
        bench.orchestrate(run_id)
    bench.broker.lose_all()
    bench.clock.advance(31)

    class Mixed:
        def __getattr__(self, name: str) -> Any:
            return getattr(bench.store, name)

        def sweep_undispatched(self, request: SweepRequest) -> Swept:
            page = bench.store.sweep_undispatched(request)
            steps = [replace(one, override="sealed" if one.run_id == "r1" else None) for one in page.steps]
            return replace(page, steps=tuple(steps))

    counts = sweep(bench.other(store=Mixed()), SweepKind.UNDISPATCHED)

    assert counts.redispatched == 1
    assert [message.run_id for (message,) in bench.broker.messages] == ["r2"]
    assert "cannot be read" in bench.ear.warnings[0]


def test_a_broker_that_is_down_is_one_warning() -> None:
    """A sweep during an outage neither raises nor repeats itself for each row."""
    bench = a_bench()
    for number in range(5):
        bench.start("quick", run_id=f"r{number}")
    bench.clock.advance(11)
    bench.broker.is_down = True

    counts = bench.recover()
    assert not counts
    assert counts.unsent == 5
    assert len(bench.ear.warnings) == 1


def test_only_one_sweeper_of_a_kind_at_a_time() -> None:
    """T10.11: a taken recovery lease is silent, and frees itself by its time (scenario 18)."""
    bench = a_bench()
    bench.start("quick")
    bench.broker.lose_all()
    bench.clock.advance(11)
    bench.leases.acquire("workflow-recovery:stalled", "other:1", 30)

    assert not bench.recover()
    assert not bench.ear.warnings
    bench.clock.advance(31)

    assert bench.recover().resumed == 1
    assert bench.leases.get("workflow-recovery:stalled") is None


def test_a_sweeper_that_died_keeps_others_away_for_one_interval() -> None:
    """Scenario 18: the sweep runs again within two periods."""
    bench = a_bench()
    bench.start("quick")
    bench.broker.lose_all()
    bench.clock.advance(11)
    life = Life()
    dead: Any = bench.process(life)
    dead.store.sweep_stalled = lambda *_: life.end()
    with pytest.raises(Died):
        recover(dead)
    assert not bench.recover()
    bench.clock.advance(bench.rt.settings.sweep_interval + 0.1)
    assert bench.recover().resumed == 1


def test_a_lease_service_that_is_down_does_not_stop_the_sweep() -> None:
    """Sweeping twice is safe; not sweeping is not."""
    bench = a_bench()
    bench.start("quick")
    bench.broker.lose_all()
    bench.clock.advance(11)
    bench.leases.is_down = True

    assert bench.recover().resumed == 1


def test_the_info_line_appears_only_when_something_was_driven(caplog: pytest.LogCaptureFixture) -> None:
    """T10.13: five counts in one line."""
    bench = a_bench()
    caplog.set_level(logging.INFO, logger="pikkuflow")
    bench.recover()
    assert not caplog.records

    bench.start("quick")
    bench.broker.lose_all()
    bench.clock.advance(11)
    bench.recover()

    assert [record.message for record in caplog.records] == [
        "recovered: 1 runs resumed, 0 steps sent again, 0 runs woken, 0 retries sent, 0 outcomes handed on"
    ]


def test_each_kind_notes_when_it_ran() -> None:
    """Design 3.8: the worker's fallback looks at these ages."""
    bench = a_bench()
    bench.recover()
    bench.clock.advance(7)

    assert dict(bench.store.sweep_ages()) == pytest.approx({"scheduled": 7, "stalled": 7, "undispatched": 7})


def test_a_suspended_run_is_tried_again_by_the_sweep_alone() -> None:
    """Design 3.10: its due time is a column; no hint is needed."""
    bench = a_bench()
    bench.start("later")
    bench.work()
    assert bench.run().status is RunStatus.SUSPENDED

    def later(wf: Any) -> int:
        return 1

    bench.workflow(later)
    bench.clock.advance(6)
    assert bench.recover().woken == 1
    bench.work()

    assert bench.output() == 1


def _boom() -> str:
    raise ValueError("boom")
