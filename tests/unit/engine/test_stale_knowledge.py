"""Nobody acts on what it only believed: a broken lease service, a sweep's old list (scenarios 05 and 07)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.domain.act import PassOpening, RunRef, SweepRequest
from pikkuflow.domain.ids import Holder, PassId, RunId
from pikkuflow.engine.sweep import SweepKind, sweep
from pikkuflow.ports import Lease
from tests.unit.engine.bench import Bench


class _Dropping:
    """A lease service whose connection breaks in the middle of an acquisition: it happened, and nobody was told."""

    def __init__(self, leases: Any) -> None:
        self._leases = leases

    def __getattr__(self, name: str) -> Any:
        return getattr(self._leases, name)

    def acquire(self, key: str, holder: str, ttl_seconds: float) -> Lease | None:
        self._leases.acquire(key, holder, ttl_seconds)
        raise ConnectionError("the connection was closed while reading")


def a_bench(runs: int = 1) -> Bench:
    """Runs of a workflow with two functions; their first messages are lost."""
    bench = Bench()

    def flow(wf: Any) -> list[int]:
        return [wf.do("one", lambda: 1), wf.do("two", lambda: 2)]

    bench.workflow(flow)
    for number in range(1, runs + 1):
        bench.start("flow", run_id=f"r{number}")
    bench.broker.lose_all()
    return bench


def _hold(bench: Bench, run_id: str) -> None:
    bench.store.open_pass(
        PassOpening(
            run_id=RunId(run_id),
            pass_id=PassId(f"theirs-{run_id}"),
            holder=Holder("other:1"),
            lease_seconds=3600,
            passes_lost_limit=10,
        )
    )


def test_a_lease_whose_answer_was_lost_lets_nobody_into_a_held_run() -> None:
    """Scenario 05: failure to acquire is not acquisition: the row decides, user code is not entered, the message comes again."""
    bench = a_bench()
    _hold(bench, "r1")

    bench.orchestrate(leases=_Dropping(bench.leases))

    assert bench.steps() == ()
    assert bench.due() == pytest.approx(1)


def test_a_lease_whose_answer_was_lost_delays_a_free_run_by_nothing() -> None:
    """Scenario 05, I11: the run is free, so it is worked; its key is left to lapse."""
    bench = a_bench()

    bench.orchestrate(leases=_Dropping(bench.leases))

    assert bench.output() == [1, 2]


def test_sweepers_whose_lease_could_not_be_had_drive_each_run_once() -> None:
    """Scenario 05: without its lease a sweep excludes nobody, so what it drives is guarded row by row, by the next-send columns."""
    bench = a_bench(3)
    bench.pass_time(11)
    blind = bench.other(leases=_Dropping(bench.leases))

    assert sweep(blind, SweepKind.STALLED).resumed == 3
    assert not sweep(blind, SweepKind.STALLED)
    assert len(bench.broker.wakes) == 3


def test_a_sweep_that_paused_touches_nothing_that_moved_on() -> None:
    """Scenario 07: of a hundred runs read as stalled fifty are held since, and ten have ended: each is judged where it lands."""
    bench = a_bench(100)
    bench.pass_time(60)
    page = bench.store.sweep_stalled(SweepRequest(older_than_seconds=10, limit=100, after=None))
    assert len(page.runs) == 100
    for number in range(1, 51):
        _hold(bench, f"r{number}")
    for number in range(51, 61):
        bench.orchestrate(f"r{number}")
    ended = [bench.run(f"r{number}") for number in range(51, 61)]

    bench.rt.dispatcher.wake([RunRef(id=ref.id, workflow=ref.workflow) for ref in page.runs])
    bench.work(limit=1000)

    assert all(bench.steps(f"r{number}") == () for number in range(1, 51))
    assert all(bench.run(f"r{number}").pass_id == f"theirs-r{number}" for number in range(1, 51))
    assert [bench.run(f"r{number}") for number in range(51, 61)] == ended
    assert all(bench.output(f"r{number}") == [1, 2] for number in range(61, 101))
