"""Who may work a run: the front door, and the row behind it (design 3.1, spec 16.3)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.domain.act import Closing, PassOpening, PassRef
from pikkuflow.domain.definition import WorkflowDefinition
from pikkuflow.domain.graph_read import graph_of
from pikkuflow.domain.ids import Holder, PassId, RunId
from pikkuflow.domain.status import SETTLED_RUN, Dispatch, RunStatus
from pikkuflow.engine.fire_timer import fire_due
from pikkuflow.engine.renew import renew
from pikkuflow.engine.work_pass import PassEnd, work_pass
from pikkuflow.errors import NoLeaseService, StoreUnavailable
from tests.servers.processes import wait_until
from tests.unit.engine.bench import Bench, Task
from tests.unit.graphs.signatures import Signatures


def a_bench(**settings: Any) -> Bench:
    """A workflow of two functions in place."""
    bench = Bench(**settings)

    def flow(wf: Any) -> list[int]:
        return [wf.do("one", lambda: 1), wf.do("two", lambda: 2)]

    bench.workflow(flow)
    bench.start("flow")
    bench.broker.lose_all()
    return bench


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


def test_a_message_for_a_held_run_leaves_a_hint_a_second_ahead_and_succeeds() -> None:
    """T8.2, D11: the body is not entered; the run stays running."""
    bench = a_bench()
    bench.leases.acquire("workflow-run:r1", "other:1:theirs", 30)

    bench.orchestrate()

    assert bench.due() == pytest.approx(1)
    assert bench.steps() == ()
    assert bench.run().status is RunStatus.RUNNING


@pytest.mark.parametrize("dispatch", [None, Dispatch.QUEUE])
def test_a_message_for_a_held_graph_run_begins_no_node(dispatch: Dispatch | None) -> None:
    """T8.3, D11: as for a function's run; the next message, once it is free, begins it."""
    bench = Bench()
    bench.task(lambda: 1, name="do")
    graph = graph_of("flow", nodes={"a": {"task": "do"}}, entry="a")
    bench.registry.add(
        WorkflowDefinition(name="flow", body=lambda _wf: None, version="v1", graph=graph, dispatch=dispatch)
    )
    bench.rt = bench.other(translate=Signatures())
    bench.start("flow")
    held = bench.leases.acquire("workflow-run:r1", "other:1:theirs", 30)
    assert held is not None

    bench.orchestrate()

    assert bench.due() == pytest.approx(1)
    assert bench.steps() == ()
    assert bench.run().status is RunStatus.RUNNING

    bench.leases.release(held)
    bench.work()

    assert bench.run().status is RunStatus.COMPLETED
    assert bench.step("a").place.startswith("pass:" if dispatch is None else "worker:")


def test_an_emptied_lease_service_does_not_let_a_second_pass_in() -> None:
    """Design 3.1, I1: the row decides; the message leaves its hint all the same, and the door is free again."""
    bench = a_bench()
    hold(bench)

    bench.orchestrate()

    assert bench.due() == pytest.approx(1)
    assert bench.steps() == ()
    assert bench.leases.get("workflow-run:r1") is None


def test_a_lease_service_that_is_down_does_not_stop_a_pass() -> None:
    """Design 3.1: lease errors never fail a run."""
    bench = a_bench()
    bench.leases.is_down = True

    bench.orchestrate()

    assert bench.output() == [1, 2]


def test_an_engine_without_leases_refuses_to_orchestrate() -> None:
    """T8.4: the error says why; the body is not entered."""
    bench = a_bench()

    with pytest.raises(NoLeaseService, match="two passes"):
        bench.orchestrate(leases=None)

    assert bench.steps() == ()
    assert bench.run().pass_id is None


def test_a_held_run_is_only_delayed() -> None:
    """Spec 6.2: however long someone holds the run, its wake-up does not wear out."""
    bench = a_bench()
    ref = hold(bench)
    bench.orchestrate()
    for _ in range(90):
        bench.pass_time(1)
        renew(bench.rt, [Holder("other:1")])
    assert bench.steps() == ()

    bench.store.close_pass(ref, Closing())
    for _ in range(31):
        bench.pass_time(1)

    assert bench.output() == [1, 2]


def test_a_held_run_is_asked_for_less_and_less_and_without_a_message() -> None:
    """H11, D11: the first wake-up after 1 s, then 2, 4, 8 … up to the lease's length; one is pending, and none is sent in vain."""
    bench = a_bench()
    hold(bench)
    bench.orchestrate()
    looks = []
    for second in range(1, 121):
        bench.clock.advance(1)
        renew(bench.rt, [Holder("other:1")])
        due = bench.due()
        if due is not None and due <= 0:
            looks.append(second)
        fire_due(bench.rt)

    assert looks == [1, 2, 4, 8, 16, 32, 62, 92]
    assert bench.broker.wakes == []


def test_a_held_run_whose_holder_is_gone_is_woken_when_its_pass_lapses() -> None:
    """Spec 6.2, design 3.9: no wake-up waits longer than the pass that keeps it from being sent."""
    bench = a_bench()
    hold(bench, seconds=30)
    bench.orchestrate()
    for _ in range(32):
        bench.pass_time(1)

    assert bench.output() == [1, 2]


@pytest.mark.parametrize("status", sorted(SETTLED_RUN))
def test_a_message_for_a_settled_run_is_answered_by_its_opening(status: RunStatus) -> None:
    """T8.5: nothing is entered, nothing changes, the door is released."""
    bench = a_bench()
    bench.store.close_pass(hold(bench), Closing(status=status))
    before = bench.run()

    result = work_pass(bench.rt, RunId("r1"))

    assert result.end is PassEnd.SETTLED
    assert bench.run() == before
    assert bench.leases.get("workflow-run:r1") is None
    assert bench.due() is None


def test_a_pass_whose_opening_was_not_answered_does_not_hold_its_run() -> None:
    """Design 3.4: the opening committed, its answer was lost, the process lives on: the pass is closed once the store answers."""
    bench = a_bench()

    class Unanswered:
        def __getattr__(self, name: str) -> Any:
            return getattr(bench.store, name)

        def open_pass(self, opening: PassOpening) -> None:
            bench.store.open_pass(opening)
            raise StoreUnavailable("no answer")

    with pytest.raises(StoreUnavailable):
        bench.orchestrate(store=Unanswered())
    wait_until(lambda: bench.run().pass_id is None)

    assert not bench.run().lost


def test_a_message_for_a_run_that_is_not_there_warns() -> None:
    """Spec 16.3: a deleted run's message succeeds."""
    bench = Bench()

    bench.orchestrate("nobody")

    assert bench.ear.warnings == ["There is no such run."]


def test_a_pass_whose_run_was_taken_writes_nothing_more() -> None:
    """I5, scenario 03: the outcome of a fenced pass is refused, the run is not failed, the message succeeds with a warning."""
    bench = Bench()
    bench.task(lambda: _frozen(bench), name="slow")

    def flow(wf: Any) -> str:
        value: str = wf.do(Task("slow"))
        return value

    bench.workflow(flow)
    bench.start("flow")
    bench.work_one()

    assert bench.steps() == ()
    assert bench.run().pass_holder == Holder("other:1")
    assert "Another pass took the run" in bench.ear.warnings[-1]


def _frozen(bench: Bench) -> str:
    """The process freezes past its lease, and another takes the run."""
    bench.clock.advance(31)
    hold(bench)
    return "too late"
