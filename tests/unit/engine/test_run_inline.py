"""Inline runs: the whole run in the calling process (D26)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.domain.act import PassOpening, PassRef
from pikkuflow.domain.ids import Holder, PassId, RunId
from pikkuflow.domain.status import RunStatus
from pikkuflow.engine.run_inline import run_inline
from pikkuflow.errors import LeaseLost
from tests.unit.engine.bench import Bench, Child, Task


def hold(bench: Bench, seconds: float = 30.0) -> PassRef:
    """Another process opens a pass over the run, by its row alone."""
    bench.store.open_pass(
        PassOpening(
            run_id=RunId("r1"),
            pass_id=PassId("theirs"),
            holder=Holder("other:1"),
            lease_seconds=seconds,
            passes_lost_limit=10,
        )
    )
    return PassRef(run_id=RunId("r1"), pass_id=PassId("theirs"))


def inline(bench: Bench, workflow: str, *args: Any, **changed: Any) -> Any:
    """Run a run here, whole."""
    bench.store.insert_runs([bench.new_run(workflow, *args, inline=True)])
    return run_inline(bench.other(has_broker=False, **changed), RunId("r1"))


def test_an_inline_run_needs_neither_broker_nor_worker() -> None:
    """T1.3, D26: steps that would leave, sleeps, retries, maps and children are all worked here; the rows are the same."""
    bench = Bench()
    tries: list[int] = []

    def shaky(number: int) -> int:
        tries.append(number)
        if len(tries) < 3:
            raise ValueError("not yet")
        return number

    bench.task(shaky, leaves="queue")
    bench.task(lambda n: n * n, name="square")

    def child(wf: Any, number: int) -> int:
        wf.sleep("1h")
        return number + 1

    def flow(wf: Any) -> list[Any]:
        return [
            wf.do(Task("shaky", (5,)), retry_delay="1m"),
            wf.sleep("1d"),
            wf.map(Task("square"), [1, 2, 3]),
            wf.do(Child("child", (1,))),
            wf.do("queued", lambda: 1, dispatch="queue"),
        ]

    bench.workflow(child)
    bench.workflow(flow)

    run = inline(bench, "flow")

    assert run.status is RunStatus.COMPLETED
    assert bench.output() == [5, None, [1, 4, 9], 2, 1]
    assert not bench.broker.wakes
    assert not bench.broker.messages
    assert len(tries) == 3


def test_an_inline_run_that_fails_is_returned_failed() -> None:
    """T1.15: the run is there, with its error, under the id that the caller has."""
    bench = Bench()

    def flow(wf: Any) -> None:
        raise ValueError("boom")

    bench.workflow(flow)

    run = inline(bench, "flow")

    assert run.status is RunStatus.FAILED
    assert bench.error() == "boom"


def test_an_inline_run_of_an_unknown_workflow_comes_back_suspended() -> None:
    """T2.2, T2.3: nothing to wait for here."""
    bench = Bench()

    run = inline(bench, "unheard")

    assert run.status is RunStatus.SUSPENDED
    assert run.code == "WORKFLOW_NOT_FOUND"


def test_an_inline_run_whose_child_is_stuck_comes_back_as_it_is() -> None:
    """Nobody here could move it: the caller is not kept waiting for ever."""
    bench = Bench()

    def parent(wf: Any) -> Any:
        return wf.do(Child("unheard"))

    bench.workflow(parent)

    run = inline(bench, "parent")

    assert run.status is RunStatus.RUNNING
    assert bench.run(bench.step("unheard").child_run_id or "").status is RunStatus.SUSPENDED


@pytest.mark.parametrize("leaves", [None, "unknown"])
def test_an_inline_run_without_a_broker_does_not_send_for_an_unknown_task(leaves: str | None) -> None:
    """D5, D26: suspended with TASK_NOT_FOUND instead of waiting for a worker that cannot be asked."""
    bench = Bench()
    if leaves is not None:
        bench.runner.leaves["ghost"] = leaves

    def flow(wf: Any) -> Any:
        return wf.do(Task("ghost"))

    bench.workflow(flow)

    run = inline(bench, "flow")

    assert (run.status, run.code) == (RunStatus.SUSPENDED, "TASK_NOT_FOUND")
    assert not bench.broker.messages


def test_an_inline_run_whose_key_was_lost_completes() -> None:
    """T8.1 as D19 has it: the key is lost, the row is its own: no error."""
    bench = Bench()

    def flow(wf: Any) -> int:
        value: int = wf.do("work", lambda: _lose_key(bench))
        return value

    bench.workflow(flow)

    assert inline(bench, "flow").status is RunStatus.COMPLETED


def test_an_inline_run_that_was_taken_raises_lease_lost_and_wrote_nothing() -> None:
    """T8.1 as D19 has it: the row is someone else's."""
    bench = Bench()
    bench.task(lambda: _frozen(bench), name="slow")

    def flow(wf: Any) -> None:
        wf.do(Task("slow"))

    bench.workflow(flow)

    with pytest.raises(LeaseLost, match="taken by another process"):
        inline(bench, "flow")

    assert bench.run().status is RunStatus.RUNNING
    assert bench.steps() == ()


def test_an_inline_run_that_crashed_is_continued_through_the_queue() -> None:
    """D26: where there is a broker, the sweep finds it and a worker works the rest in place."""
    bench = Bench()
    bench.task(bench.die_if_told, name="work")

    def flow(wf: Any) -> str:
        wf.do(Task("work"))
        return "done"

    bench.workflow(flow)
    bench.store.insert_runs([bench.new_run("flow", inline=True)])
    bench.orchestrate_and_die()

    bench.recover()
    bench.work()

    assert bench.output() == "done"


def _frozen(bench: Bench) -> str:
    """The process freezes past its lease, and another takes the run."""
    bench.clock.advance(31)
    hold(bench)
    return "too late"


def _lose_key(bench: Bench) -> int:
    bench.leases.expire("workflow-run:r1", "node:1")
    return 1
