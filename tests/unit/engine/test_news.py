"""News, budgets and shutdown: a run never sleeps over what happened to it (design 2, 3.5)."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest

from pikkuflow.domain.act import PassOpening, RunRef
from tests.unit.engine.bench import Bench, Task


def test_news_during_a_pass_makes_its_closer_wake_the_run_again() -> None:
    """Scenarios 12 and 13, design 3.5: a step settles while the pass works; nobody else wakes, and no sweep is needed."""
    bench = Bench()
    bench.task(lambda: "far", name="far", leaves="queue")

    def flow(wf: Any) -> list[str]:
        handle = wf.submit(Task("far"))
        near = wf.do("near", lambda: _work_messages(bench))
        return [near, handle.result()]

    bench.workflow(flow)
    bench.start("flow")
    bench.work_one()
    assert [ref.id for ref in bench.broker.wakes] == ["r1"]
    bench.work()

    assert bench.output() == ["near", "far"]
    assert len(bench.runner.works) == 1


def test_news_between_the_look_and_the_park_is_never_missed() -> None:
    """Scenario 12: it commits after the pass looked and before its closing write, a thousand times over: no sweep, no hint, no time."""
    bench = Bench()
    bench.task(lambda: "far", name="far", leaves="queue")

    def flow(wf: Any) -> str:
        value: str = wf.do(Task("far"))
        return value

    class Between:
        def __getattr__(self, name: str) -> Any:
            return getattr(bench.store, name)

        def close_pass(self, ref: Any, closing: Any) -> Any:
            if bench.broker.messages:
                bench.work_one()
            return bench.store.close_pass(ref, closing)

    bench.workflow(flow)
    begun_at = bench.clock.now()
    for number in range(1000):
        bench.start("flow", run_id=f"r{number}")
        bench.broker.lose_all()
        bench.orchestrate(f"r{number}", store=Between())
        assert [ref.id for ref in bench.broker.wakes] == [f"r{number}"]
        bench.work()
        assert bench.output(f"r{number}") == "far"

    assert len(bench.runner.works) == 1000
    assert bench.clock.now() == begun_at


def test_a_race_of_outcomes_and_closings_never_leaves_a_run_asleep() -> None:
    """Scenario 13 with real threads: many runs of two parallel steps, worked by four threads that share a broker; no sweep, no hint."""
    bench = Bench()
    bench.task(lambda n: n, name="far", leaves="queue")

    def flow(wf: Any) -> list[int]:
        handles = [wf.submit(Task("far", (n,))) for n in range(3)]
        return [handle.result() for handle in handles]

    bench.workflow(flow)
    runs = [f"r{n}" for n in range(25)]
    for run_id in runs:
        bench.start("flow", run_id=run_id)

    threads = [threading.Thread(target=_labour, args=(bench, runs)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    # Messages that found their run held left a hint; that one second is the only thing that may be needed.
    bench.pass_time(1)

    assert [bench.output(run_id) for run_id in runs] == [[0, 1, 2]] * 25
    assert len(bench.runner.works) == 75


def test_a_pass_that_has_worked_long_enough_yields_between_two_steps() -> None:
    """Design 2: news raised, closed, a fresh wake-up published; nothing is worked twice."""
    bench = Bench()
    bench.task(lambda: bench.clock.advance(20), name="long")

    def flow(wf: Any) -> int:
        for _ in range(4):
            wf.do(Task("long"))
        return 4

    bench.workflow(flow)
    bench.start("flow")
    bench.work_one()
    assert len(bench.runner.works) == 2
    assert [ref.id for ref in bench.broker.wakes] == ["r1"]
    bench.work()

    assert bench.output() == 4
    assert len(bench.runner.works) == 4


def test_a_wake_up_is_sent_when_the_run_is_free() -> None:
    """Design 3.5: closed, front door released, then sent; or the message would find the run held and cost a second."""
    bench = Bench(pass_seconds=5)
    bench.task(lambda: bench.clock.advance(20), name="long")
    held: list[object] = []

    def flow(wf: Any) -> None:
        wf.do(Task("long"))
        wf.do(Task("long"))

    class Looking:
        def wake(self, runs: list[RunRef], **_: object) -> None:
            held.extend([bench.leases.get(f"workflow-run:{run.id}") for run in runs])
            held.extend([bench.run(run.id).pass_id for run in runs])

    bench.workflow(flow)
    bench.start("flow")

    bench.orchestrate(dispatcher=Looking())

    assert held == [None, None]


def test_a_stopping_worker_ends_its_pass_after_the_step_in_hand() -> None:
    """Design 2, warm shutdown: recorded, closed, the continuation in the queue."""
    bench = Bench()
    bench.task(lambda: setattr(bench, "stopping", True), name="work")

    def flow(wf: Any) -> int:
        wf.do(Task("work"))
        wf.do(Task("work"))
        return 2

    bench.workflow(flow)
    bench.start("flow")
    bench.work_one()

    assert len(bench.runner.works) == 1
    assert [ref.id for ref in bench.broker.wakes] == ["r1"]
    assert bench.run().pass_id is None
    bench.stopping = False
    bench.work()
    assert bench.output() == 2


def test_a_process_told_to_end_lets_its_run_go() -> None:
    """SystemExit in a step: the attempt is counted, the pass is closed with news, another process goes on."""
    bench = Bench()
    tries: list[int] = []

    def leaving() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise SystemExit(1)
        return "ok"

    def flow(wf: Any) -> str:
        value: str = wf.do("work", leaving, retry_delay=0)
        return value

    bench.workflow(flow)
    bench.start("flow")
    with pytest.raises(SystemExit):
        bench.work_one()
    assert bench.run().pass_id is None
    assert bench.step("work").attempt == 2

    bench.pass_time(1)

    assert bench.output() == "ok"


def test_one_message_for_many_runs_works_them_all_whatever_one_of_them_does() -> None:
    """start_many: an error of one pass keeps no other back, and is raised in the end."""
    bench = Bench()

    def flow(wf: Any) -> int:
        return 1

    bench.workflow(flow)
    for run_id in ("r1", "r2", "r3"):
        bench.start("flow", run_id=run_id)

    class Broken:
        def __getattr__(self, name: str) -> Any:
            return getattr(bench.store, name)

        def open_pass(self, opening: PassOpening) -> Any:
            if opening.run_id == "r2":
                raise ConnectionError("lost in the middle")
            return bench.store.open_pass(opening)

    with pytest.raises(ConnectionError):
        bench.orchestrate_all("r1", "r2", "r3", store=Broken())

    assert bench.output("r3") == 1
    assert bench.due("r2") == pytest.approx(1)


def _labour(bench: Bench, runs: list[str]) -> None:
    for _ in range(2000):
        # Another thread may take the last message between the look and the pop.
        with suppress(IndexError):
            bench.work_one()
        if all(bench.run(run_id).is_settled for run_id in runs):
            return


def _work_messages(bench: Bench) -> str:
    """Step workers are quick: what was sent is done while this pass still works."""
    bench.work_one()
    return "near"
