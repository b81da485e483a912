"""What a pass reads, and that nothing of a run stays in the process when it is over (spec 13.3)."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from pikkuflow.domain.ids import RunId
from pikkuflow.domain.run import RunFilter
from pikkuflow.engine.run_inline import run_inline
from pikkuflow.engine.start import start_runs
from tests.unit.engine.bench import Bench, Child, Task

READS = frozenset({"open_pass", "get_run", "list_steps", "get_step", "list_attempts"})


class _Reads:
    """A store that notes what is read from it."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.noted: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in READS:
            self.noted.append(name)
        return getattr(self._store, name)


def _flow(wf: Any) -> int:
    number = 0
    for turn in range(5):
        number = wf.do(Task("inc", (number,)))
        if turn == 2:
            wf.sleep(10)
    return number


@pytest.fixture
def bench() -> Bench:
    """With a task that counts up."""
    made = Bench()
    made.task(lambda n: n + 1, name="inc")
    return made


def test_each_pass_reads_its_run_and_steps_once(bench: Bench) -> None:
    """T3.12: one bulk read a replay, another for the following one; outside of passes every question is asked afresh."""
    bench.workflow(_flow)
    bench.start("_flow")
    bench.broker.lose_all()
    store: Any = _Reads(bench.store)
    bench.orchestrate(store=store)
    assert store.noted == ["open_pass"]
    assert bench.run().status == "running"
    bench.clock.advance(10)
    bench.orchestrate(store=store)
    assert store.noted == ["open_pass", "open_pass"]
    assert bench.run().status == "completed"
    assert bench.output() == 5


def _completes(wf: Any) -> int:
    return int(wf.do(Task("inc", (1,))))


def _fails(wf: Any) -> int:
    wf.do(Task("inc", (1,)))
    raise ValueError("no")


def _parks(wf: Any) -> int:
    wf.do(Task("inc", (1,)))
    wf.sleep(10)
    return 1


@pytest.mark.parametrize("body", [_completes, _fails, _parks])
@pytest.mark.parametrize("inline", [False, True], ids=["queued", "inline"])
def test_nothing_of_a_run_stays_when_its_pass_is_over(
    bench: Bench, body: Callable[[Any], int], *, inline: bool
) -> None:
    """T3.13, T3.16: ordinals, pointers and contexts live in the pass; they go with it when a run completes, fails or parks."""
    kept: list[weakref.ref[Any]] = []

    def flow(wf: Any) -> int:
        kept.extend([weakref.ref(wf._recorder), weakref.ref(wf._buffer)])
        return body(wf)

    bench.workflow(flow)
    bench.start("flow", inline=inline)
    if inline:
        run_inline(bench.rt, RunId("r1"))
    else:
        bench.work()
    gc.collect()
    assert len(kept) >= 2
    assert [one() for one in kept] == [None] * len(kept)


def test_a_child_leaves_its_parents_nature_alone(bench: Bench) -> None:
    """T3.13: a replay inside a replay: parent and child of an inline run are inline, before and after."""
    natures: list[bool] = []

    def child(wf: Any) -> int:
        return int(wf.do(Task("inc", (1,))))

    def parent(wf: Any) -> int:
        natures.append(bench.run().inline)
        below: int = wf.do(Child("child"))
        natures.append(bench.run().inline)
        return below + int(wf.do(Task("inc", (below,))))

    bench.workflow(child)
    bench.workflow(parent)
    bench.start("parent", inline=True)
    run_inline(bench.rt, RunId("r1"))
    assert bench.output() == 5
    assert set(natures) == {True}
    below = bench.step("child").child_run_id
    assert below is not None
    assert bench.run(below).inline


def test_a_foreign_process_knows_a_runs_nature_from_its_row(bench: Bench) -> None:
    """T3.15: inline or queued is a column; asking about a run that is not there makes none."""
    bench.workflow(_completes)
    start_runs(
        bench.rt,
        [bench.new_run("_completes", run_id="queued"), bench.new_run("_completes", run_id="inline", inline=True)],
    )
    foreign = bench.other().store
    found = {run_id: foreign.get_run(RunId(run_id)) for run_id in ("queued", "inline", "unknown")}
    assert {run_id: run and run.inline for run_id, run in found.items()} == {
        "queued": False,
        "inline": True,
        "unknown": None,
    }
    listed = foreign.list_runs(RunFilter(), limit=10, after=None)
    assert {run.id for run in listed} == {"queued", "inline"}
