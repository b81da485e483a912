"""What durable acts cost on PostgreSQL, counted by the server: its statement log, its commits, its WAL syncs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pikkuflow.domain.act import PassRef, StepWrite
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.domain.step import Place
from pikkuflow.engine.orchestrate import orchestrate
from pikkuflow.engine.start import start_runs
from tests.contract.scene import BOOM, Scene, new_step
from tests.integration.sql.conftest import Cost, Meter
from tests.unit.engine.bench import Bench, Task


def _chain(scene: Scene, ref: PassRef, count: int) -> None:
    for number in range(count):
        scene.write(ref, StepStatus.SUCCEEDED, f"{ref.run_id}-{number}", result='"x"', step={"seq": number})


def test_a_step_in_place_is_one_statement_and_one_commit(meter: Meter) -> None:
    """Issue 2: a hundred steps in place cost a hundred statements, commits and WAL syncs, and nothing else."""
    # The driver prepares a statement on the server once it has seen it a few times: a round trip a connection, not a step.
    _chain(meter.scene, meter.scene.begin("warm"), 10)
    ref = meter.scene.begin()
    assert meter.cost(lambda: _chain(meter.scene, ref, 100)) == Cost(statements=100, commits=100, wal_syncs=100)


def _outcomes(ref: PassRef, count: int) -> list[tuple[PassRef, StepWrite]]:
    steps = [new_step(f"o{number}", seq=number, place=Place.in_pass(ref.pass_id)) for number in range(count)]
    return [(ref, StepWrite(step=step, attempt=1, status=StepStatus.SUCCEEDED, result='"x"')) for step in steps]


def test_a_hundred_quick_steps_are_five_commits(meter: Meter) -> None:
    """Issue C, Build 3: through the engine, beside the start of the run and the opening and closing of its one pass."""
    bench = Bench()
    rt = bench.other(store=meter.store)
    bench.task(lambda: "x", name="work")

    def flow(wf: Any, count: int) -> None:
        for _ in range(count):
            wf.do(Task("work"))

    def run(run_id: str, count: int) -> None:
        start_runs(rt, [bench.new_run("flow", count, run_id=run_id)])
        orchestrate(rt, [RunId(run_id)])

    bench.workflow(flow, quick=True)
    for number in range(8):
        run(f"warm-{number}", 2)
    assert meter.cost(lambda: run("quick", 100)) == Cost(statements=5 + 5, commits=5 + 3, wal_syncs=5 + 3)
    assert len(meter.store.list_steps(RunId("quick"))) == 100
    # The last ones go with the end of the run.
    assert meter.cost(lambda: run("short", 5)) == Cost(statements=6, commits=3, wal_syncs=3)


def test_a_run_in_place_costs_its_steps_and_three_acts(meter: Meter) -> None:
    """Design 2: starting, opening (two statements, one transaction) and ending (the same) are all that a run costs beside its steps."""

    def run(run_id: str, count: int) -> None:
        ref = meter.scene.begin(run_id)
        _chain(meter.scene, ref, count)
        meter.scene.close(ref, status=RunStatus.COMPLETED, output="1")

    for number in range(8):
        run(f"warm-{number}", 2)
    assert meter.cost(lambda: run("short", 5)) == Cost(statements=5 + 5, commits=5 + 3, wal_syncs=5 + 3)
    assert meter.cost(lambda: run("long", 25)) == Cost(statements=25 + 5, commits=25 + 3, wal_syncs=25 + 3)


def test_opening_reads_the_history_once(meter: Meter) -> None:
    """Issue 2: one read whatever the number of steps; two statements in one transaction (design 3.2)."""
    ref = meter.scene.begin()
    _chain(meter.scene, ref, 50)
    meter.scene.park(ref)
    assert meter.cost(lambda: meter.scene.open(by="p2")).statements == 2


_ACTS: dict[str, Callable[[Scene, PassRef], Any]] = {
    "start": lambda scene, ref: scene.write(ref, StepStatus.RUNNING),
    "outcome over a start": lambda scene, ref: scene.write(ref, StepStatus.SUCCEEDED, "started", result="1"),
    "failure": lambda scene, ref: scene.write(ref, StepStatus.FAILED, error=BOOM),
    "state": lambda scene, ref: scene.write(ref, StepStatus.SUCCEEDED, state=("key", "1")),
    "outcomes of several runs": lambda scene, ref: scene.store.record_all(
        _outcomes(ref, 10) + _outcomes(scene.ref("other"), 10)
    ),
    "fan-out of 200": lambda scene, ref: scene.insert_steps(
        ref, *(f"m[{i}]" for i in range(200)), joined=True, fan_id="m"
    ),
    "parking": lambda scene, ref: scene.park(ref, sent=("waiting",)),
    "start of a run": lambda scene, _: scene.insert("another"),
    "claim": lambda scene, _: scene.claimed("b", run_id="dispatched"),
    "claim of a chunk": lambda scene, _: scene.claim_all((("b", 1), ("c", 1)), run_id="dispatched"),
    "success of a claim": lambda scene, _: scene.succeed("a", run_id="dispatched"),
    "failure of a claim": lambda scene, _: scene.fail("a", run_id="dispatched"),
    "retry of a claim": lambda scene, _: scene.try_again("a", run_id="dispatched"),
}


@pytest.mark.parametrize("act", _ACTS)
def test_an_act_is_one_statement(meter: Meter, act: str) -> None:
    """Design 2, "one round trip an act": one autocommit statement each."""
    ref = meter.scene.begin()
    meter.scene.write(ref, StepStatus.RUNNING, "started")
    meter.scene.insert_steps(ref, "waiting")
    meter.scene.begin("other")
    meter.scene.dispatch("a", "b", "c", run_id="dispatched")
    meter.scene.claimed("a", run_id="dispatched")
    assert meter.cost(lambda: _ACTS[act](meter.scene, ref)) == Cost(statements=1, commits=1, wal_syncs=1)


def test_an_unmarked_run_is_locked_and_not_rewritten(meter: Meter) -> None:
    """Design 2: an outcome in place writes one row, the step's; only a run that is marked lost is written along."""
    ref = meter.scene.begin()

    def version() -> Any:
        wanted = {"run_id": ref.run_id}
        row = meter.store.database.autocommit(
            lambda db: db.first("SELECT ctid::text AS place FROM pikkuflow_run WHERE id = %(run_id)s", wanted)
        )
        assert row is not None
        return row["place"]

    before = version()
    _chain(meter.scene, ref, 3)
    assert version() == before
