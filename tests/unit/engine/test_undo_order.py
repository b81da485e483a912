"""In which order a run is undone when outcomes and passes cross (spec 2.12, docs/decisions/unwind-order.md)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from pikkuflow.domain.act import ClaimRequest, PassOpening, PassRefusal, StepOutcome
from pikkuflow.domain.history import History
from pikkuflow.domain.ids import ClaimId, Holder, RunId, StepName
from pikkuflow.domain.status import RunStatus, StepStatus
from tests.unit.engine.bench import Bench, Child, Task
from tests.unit.engine.shop import Shop, step

RUN: Final = RunId("r1")
A: Final = StepName("a")


def _hang(bench: Bench) -> None:
    """A worker takes the next step and gives no sign of itself."""
    (slow,) = bench.broker.messages.pop()
    asked = ClaimRequest(
        run_id=RUN, steps=((slow.name, 1),), task="slow", claim_id=ClaimId("c1"), holder=Holder("node:9")
    )
    assert bench.store.claim_steps(asked).claimed


class SettledMeanwhile:
    """A store in which a worker settles the step ``a`` after a pass took the run, and before it reads the rows."""

    def __init__(self, bench: Bench) -> None:
        self._store = bench.store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def open_pass(self, opening: PassOpening) -> History | PassRefusal:
        """Two statements, as SQL has them."""
        history = self._store.open_pass(opening)
        assert isinstance(history, History)
        claim = ClaimId("c1")
        asked = ClaimRequest(run_id=RUN, steps=((A, 1),), task="a", claim_id=claim, holder=Holder("node:9"))
        assert self._store.claim_steps(asked).claimed
        outcome = StepOutcome(name=A, attempt=1, claim_id=claim, status=StepStatus.SUCCEEDED, result='"a"')
        assert self._store.settle_steps(RUN, [outcome]).accepted == (True,)
        return replace(history, steps=self._store.list_steps(RUN))


def test_what_follows_an_outcome_that_came_as_the_pass_began_is_undone_before_it() -> None:
    """Spec 2.12: the rows are read after the run is taken, and the body rests on what they say."""
    shop = Shop()

    def flow(wf: Any) -> None:
        first = wf.submit(step("a"), dispatch="queue")
        wf.do("beside", lambda: 1)
        first.result()
        wf.do(step("b"))
        wf.do(Task("boom"), retries=0)

    rows: list[dict[str, StepStatus]] = []
    shop.bench.task(lambda _: rows.append(shop.undo_rows()), name="unb")
    shop.bench.workflow(flow, name="flow")
    shop.bench.start("flow")
    shop.bench.work_one()
    store: Any = SettledMeanwhile(shop.bench)
    shop.bench.orchestrate(store=store)
    shop.settle()

    assert [list(found) for found in rows] == [["b:compensate"]]
    assert shop.diary == ["b", "boom", "una[]"]
    assert shop.status is RunStatus.COMPENSATED


def test_a_member_of_an_unfinished_fan_and_what_begins_beside_it_know_nothing_of_each_other() -> None:
    """Spec 2.12: the member raises no news; what ends elsewhere still ends after it began."""
    shop = Shop()
    bench = shop.bench
    bench.task(lambda: None, name="slow")
    bench.workflow(lambda _: None, name="child")

    def flow(wf: Any) -> None:
        wf.gather(
            wf.submit(step("a"), dispatch="queue"),
            wf.submit(Task("slow"), dispatch="queue"),
            wf.submit("here", bench.die_if_told, retries=1, retry_delay=0),
            wf.submit(Child("child")),
        )

    bench.workflow(flow, name="flow")
    bench.start("flow")
    bench.orchestrate_and_die()
    assert bench.work_one()
    assert bench.step("a").settled_no is not None
    bench.orchestrate()
    bench.work()

    member, child = bench.step("a"), bench.step("child")
    assert member.settled_no is not None
    assert child.settled_no is not None
    assert child.begun_no < member.settled_no
    assert child.begun_no < child.settled_no


def test_what_settled_before_a_milestone_stays_though_a_pass_ended_the_last_of_the_fan() -> None:
    """Spec 2.12: the other members raised no news, and neither does a time-out that a pass writes."""
    shop = Shop()
    bench = shop.bench
    bench.task(lambda: None, name="slow")

    def flow(wf: Any) -> None:
        both = [
            wf.submit(step("a"), dispatch="queue"),
            wf.submit(Task("slow"), dispatch="queue", timeout=10, retries=0),
        ]
        wf.gather(*both, return_exceptions=True)
        wf.milestone("half")
        wf.do(step("b"))
        wf.do(Task("boom"), retries=0)

    bench.workflow(flow, name="flow")
    bench.start("flow")
    assert bench.work_one()
    assert bench.work_one()
    _hang(bench)
    bench.clock.advance(11)
    bench.orchestrate()
    shop.settle()

    assert shop.diary == ["a", "b", "boom", "unb[]"]
    assert shop.status is RunStatus.COMPENSATED


def test_what_follows_a_fan_that_a_pass_made_whole_before_it_died_is_undone_before_it() -> None:
    """Spec 2.12: no news says so to the next pass; the numbers of the rows do (simulation, seed 308566)."""
    shop = Shop()
    bench = shop.bench
    bench.task(lambda: None, name="slow")

    def flow(wf: Any) -> None:
        both = [
            wf.submit(step("a"), dispatch="queue"),
            wf.submit(Task("slow"), dispatch="queue", timeout=10, retries=0),
        ]
        wf.gather(*both, return_exceptions=True)
        bench.die_if_told()
        wf.do(step("b"), dispatch="queue")
        wf.do(Task("boom"), retries=0)

    rows: list[list[str]] = []
    bench.task(lambda _: rows.append(list(shop.undo_rows())), name="unb")
    bench.workflow(flow, name="flow")
    bench.start("flow")
    assert bench.work_one()
    assert bench.work_one()
    _hang(bench)
    bench.clock.advance(11)
    bench.orchestrate_and_die()
    bench.wake("flow")
    shop.settle()

    assert bench.step("a").settled_no < bench.step("b").begun_no < bench.step("b").settled_no  # type: ignore[operator]
    assert rows == [["b:compensate"]]
    assert shop.diary == ["a", "b", "boom", "una[]"]
