"""Passes that break off by something that is not the run's: no hot loop, others unaffected (docs/decisions/broken-passes.md)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.domain.act import PassOpening
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import RunStatus, SuspendCode
from pikkuflow.errors import StoreUnavailable
from tests.servers.processes import wait_until
from tests.unit.engine.bench import Bench, Task


class Faulty:
    """A store with one act that raises."""

    def __init__(self, bench: Bench, act: str, error: Exception, run_id: str = "r1") -> None:
        self._bench = bench
        self._act = act
        self._error = error
        self._run_id = run_id

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._bench.store, name)
        return self._raise if name == self._act else found

    def _raise(self, first: Any, *rest: Any) -> Any:
        if first.run_id == self._run_id:
            raise self._error
        return getattr(self._bench.store, self._act)(first, *rest)


def a_bench(**settings: Any) -> Bench:
    """Workflow ``flow`` of one step."""
    bench = Bench(**settings)
    bench.task(lambda: "done", name="work")

    def flow(wf: Any) -> Any:
        return wf.do(Task("work"))

    bench.workflow(flow)
    return bench


def test_a_pass_that_breaks_off_is_tried_again_ever_later_and_never_given_up() -> None:
    """A programming error: 1 s, doubling, at most 10 min; told with the run's id each time; a repaired deployment goes on by itself."""
    bench = a_bench()
    bench.start("flow")
    bench.broker.lose_all()
    waits = []
    for _ in range(13):
        with pytest.raises(ZeroDivisionError):
            bench.orchestrate(store=Faulty(bench, "record", ZeroDivisionError("ours")))
        assert bench.run().pass_id is None
        waits.append(bench.due())
        bench.clock.advance(waits[-1] or 0)
        assert bench.hints.pop_due(10) == (RunId("r1"),)

    assert waits == pytest.approx([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600, 600])
    assert any("ZeroDivisionError" in text for text in bench.ear.warnings)
    assert bench.run().status is RunStatus.RUNNING

    bench.orchestrate()

    assert bench.output() == "done"


def test_a_broken_run_keeps_no_other_back() -> None:
    """One message for three runs: the two sound ones are worked."""
    bench = a_bench()
    for run_id in ("r1", "r2", "r3"):
        bench.start("flow", run_id=run_id)

    with pytest.raises(ZeroDivisionError):
        bench.orchestrate_all("r1", "r2", "r3", store=Faulty(bench, "record", ZeroDivisionError("ours"), run_id="r2"))

    assert [bench.run(run_id).status for run_id in ("r1", "r3")] == [RunStatus.COMPLETED] * 2
    assert bench.run("r2").status is RunStatus.RUNNING


def test_a_broken_run_is_found_without_its_hint() -> None:
    """The time is a column; the hint only makes it precise."""
    bench = a_bench()
    bench.start("flow")
    bench.broker.lose_all()
    with pytest.raises(ZeroDivisionError):
        bench.orchestrate(store=Faulty(bench, "record", ZeroDivisionError("ours")))
    bench.clock.advance(1)
    bench.hints.pop_due(10)

    assert bench.recover().woken == 1
    bench.work()

    assert bench.output() == "done"


def test_an_outage_is_tried_again_in_a_second_every_time() -> None:
    """It is nobody's fault: no growing wait, nothing counted."""
    bench = a_bench()
    bench.start("flow")
    bench.broker.lose_all()
    for _ in range(4):
        with pytest.raises(StoreUnavailable):
            bench.orchestrate(store=Faulty(bench, "record", StoreUnavailable("away")))
        assert bench.due() == pytest.approx(1)
        bench.clock.advance(1)
        bench.hints.pop_due(10)

    assert bench.run().passes_lost == 0


def test_a_body_that_leaves_its_process_is_suspended_after_as_many_passes_as_one_that_kills_it() -> None:
    """Design 2, PASS_LOST for ``SystemExit``: growing waits, then suspended and announced until a person resumes it."""
    bench = Bench(passes_lost=3)

    def flow(wf: Any) -> None:
        raise SystemExit(1)

    bench.workflow(flow)
    bench.start("flow")
    bench.broker.lose_all()
    waits = []
    for _ in range(3):
        with pytest.raises(SystemExit):
            bench.orchestrate()
        waits.append(bench.due())
        bench.clock.advance(waits[-1] or 0)
        bench.hints.pop_due(10)

    assert waits == [1, 2, None]
    run = bench.run()
    assert (run.status, run.code, run.pass_id) == (RunStatus.SUSPENDED, SuspendCode.PASS_LOST, None)
    bench.clock.advance(3600)
    assert not bench.recover()
    assert bench.resume()
    assert bench.run().passes_lost == 0


def test_an_outcome_forgives_the_passes_that_broke_off_before() -> None:
    """Ten in a row without a new outcome: headway begins the count again."""
    bench = Bench(passes_lost=2)

    def flow(wf: Any) -> None:
        for turn in range(4):
            wf.do(f"step {turn}", lambda: None)
            if len(bench.steps()) == turn + 1 and turn == len(exits):
                exits.append(turn)
                raise SystemExit(1)

    exits: list[int] = []
    bench.workflow(flow)
    bench.start("flow")
    bench.broker.lose_all()
    for _ in range(4):
        with pytest.raises(SystemExit):
            bench.orchestrate()
    bench.orchestrate()

    assert bench.run().status is RunStatus.COMPLETED


def test_a_run_that_cannot_be_read_is_tried_again_every_minute() -> None:
    """Its opening may have been committed: a thread closes it, and nobody knows how often that happened before."""
    bench = a_bench()
    bench.start("flow")
    bench.broker.lose_all()

    class Unreadable:
        def __getattr__(self, name: str) -> Any:
            return getattr(bench.store, name)

        def open_pass(self, opening: PassOpening) -> Any:
            bench.store.open_pass(opening)
            raise KeyError("a column of another version")

    with pytest.raises(KeyError):
        bench.orchestrate(store=Unreadable())
    wait_until(lambda: bench.run().pass_id is None, every=0.01)

    assert (bench.run().pass_id, bench.due(), bench.broker.wakes) == (None, None, [])
    assert sum("KeyError" in text for text in bench.ear.warnings) == 1
    bench.clock.advance(59)
    assert not bench.recover()
    bench.clock.advance(1)
    assert bench.recover().woken == 1
    bench.work()
    assert bench.output() == "done"


def test_a_pass_whose_end_cannot_be_told_is_let_go() -> None:
    """What goes wrong after the body is no different: closed, and tried again later."""
    bench = a_bench()
    bench.start("flow")
    bench.broker.lose_all()

    class Codec:
        def __getattr__(self, name: str) -> Any:
            return getattr(bench.rt.codec, name)

        def encode(self, value: Any, *, what: str) -> str:
            if what.startswith("the output"):
                raise ZeroDivisionError("a codec's hook")
            return bench.rt.codec.encode(value, what=what)

    with pytest.raises(ZeroDivisionError):
        bench.orchestrate(codec=Codec())

    assert bench.run().pass_id is None
    assert bench.due() == pytest.approx(1)
