"""Handing outcomes on again: what failed is put off, what is away is left (design 7, D13)."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

import pytest

from pikkuflow.domain.run import Run
from pikkuflow.engine.sweep import SweepCounts, recover
from tests.unit.engine.bench import Bench, Died, Life


def a_bench(**settings: Any) -> Bench:
    """The workflow ``quick`` ends at once."""
    bench = Bench(**settings)

    def quick(wf: Any) -> int:
        return 1

    bench.workflow(quick)
    return bench


class _Picky:
    """A ``Deliverer`` to which some runs' outcomes are bad, and some nothing to hand on."""

    def __init__(self, *, bad: AbstractSet[str] = frozenset(), idle: AbstractSet[str] = frozenset()) -> None:
        self._bad = bad
        self._idle = idle
        self.tried: list[str] = []

    def wants(self, run: Run) -> bool:
        return run.id not in self._idle

    def deliver(self, run: Run) -> None:
        self.tried.append(run.id)
        if run.id in self._bad:
            raise ValueError("this value cannot be handed on")


def _settled_but_not_delivered(bench: Bench, *run_ids: str) -> None:
    for run_id in run_ids:
        bench.start("quick", run_id=run_id, handover="{}")
    bench.deliverer.is_down = True
    bench.work()
    bench.deliverer.is_down = False


def test_outcomes_that_cannot_be_handed_on_keep_no_other_waiting() -> None:
    """Design 7, D13: they are tried again after 30 s, then 60 s, and the rest of a page, and of the next, is handed on at once."""
    bench = a_bench(sweep_page=2)
    _settled_but_not_delivered(bench, "r1", "r2", "r3", "r4", "r5")
    picky = _Picky(bad={"r1", "r2", "r3", "r4"})
    rt = bench.other(deliverer=picky)

    assert recover(rt) == SweepCounts(delivered=1, undelivered=4)
    assert bench.run("r5").delivered_at is not None
    tries = []
    for _ in range(10):
        picky.tried.clear()
        recover(rt)
        tries.append(len(picky.tried))
        bench.clock.advance(10)

    assert tries == [0, 0, 0, 4, 0, 0, 0, 0, 0, 4]


def test_an_outage_ends_the_handing_on_of_a_sweep() -> None:
    """Design 7: a backend that is away is asked once a sweep, and what was not tried goes first when it is back."""
    bench = a_bench()
    _settled_but_not_delivered(bench, "r1", "r2", "r3")
    bench.ear.warnings.clear()
    bench.deliverer.is_down = True

    assert recover(bench.rt).delivered == 0
    assert len(bench.ear.warnings) == 1
    bench.deliverer.is_down = False

    assert recover(bench.rt).delivered == 2
    bench.clock.advance(31)
    assert recover(bench.rt).delivered == 1


def test_a_delivery_that_takes_its_process_down_keeps_no_other_waiting() -> None:
    """Design 7: an outcome is put off before it is tried, so the next sweeper begins with another one."""
    bench = a_bench()
    _settled_but_not_delivered(bench, "r1", "r2")
    life = Life()
    dead: Any = bench.process(life)
    deadly: Any = _Picky()
    deadly.deliver = lambda _: life.end()
    with pytest.raises(Died):
        recover(replace(dead, deliverer=deadly))
    bench.clock.advance(11)

    assert recover(bench.rt).delivered == 1
    assert [run.id for run in bench.deliverer.delivered] == ["r2"]


def test_an_outcome_with_nothing_to_hand_on_is_done_with() -> None:
    """Design 7: a start that ignores its result is no sweep's business for ever."""
    bench = a_bench()
    _settled_but_not_delivered(bench, "r1")

    assert not recover(bench.other(deliverer=_Picky(idle={"r1"})))
    assert bench.store.undelivered_runs(10) == ()
