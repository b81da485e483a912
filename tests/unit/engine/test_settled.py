"""How runs end, and who is told (spec 16.7, design 7)."""

from __future__ import annotations

from typing import Any

from pikkuflow.domain.status import RunStatus
from pikkuflow.ports import PassOutcome
from tests.unit.engine.bench import Bench


def a_bench(**settings: Any) -> Bench:
    """A workflow of two functions in place."""
    bench = Bench(**settings)

    def flow(wf: Any) -> list[int]:
        return [wf.do("one", lambda: 1), wf.do("two", lambda: 2)]

    bench.workflow(flow)
    bench.start("flow")
    bench.broker.lose_all()
    return bench


def test_a_body_that_raises_fails_its_run_with_type_text_and_trace() -> None:
    """Spec 16.7: what a person needs to find the line."""
    bench = Bench()

    def flow(wf: Any) -> None:
        raise LookupError("nothing here")

    bench.workflow(flow)
    bench.start("flow")
    bench.work()

    error = bench.run().error
    assert error is not None
    assert (error.type, error.message) == ("LookupError", "nothing here")
    assert "test_settled.py" in (error.traceback or "")
    assert bench.ear.passes[-1].outcome is PassOutcome.FAILED


def test_an_error_whose_text_cannot_be_made_is_stored_all_the_same() -> None:
    """Scenario 48: an exception with a constructor and a text of its own keeps its type by name."""

    class Odd(Exception):
        def __init__(self, a: int, b: int) -> None:
            self.a, self.b = a, b

        def __str__(self) -> str:
            raise RuntimeError("no text")

    bench = Bench()

    def flow(wf: Any) -> None:
        raise Odd(1, 2)

    bench.workflow(flow)
    bench.start("flow")
    bench.work()

    error = bench.run().error
    assert error is not None
    assert error.type.endswith("Odd")


def test_an_outcome_is_handed_on_when_it_is_wanted_and_repeated_by_the_sweep() -> None:
    """Design 7: at least once; marked delivered; a backend that is down fails nothing."""
    bench = Bench()

    def flow(wf: Any) -> int:
        return 1

    bench.workflow(flow)
    bench.start("flow", handover="{}")
    bench.deliverer.is_down = True
    bench.work()
    assert bench.run().status is RunStatus.COMPLETED
    assert bench.run().delivered_at is None
    bench.deliverer.is_down = False

    assert bench.recover().delivered == 1
    assert bench.recover().delivered == 0

    assert [run.id for run in bench.deliverer.delivered] == ["r1"]
    assert bench.run().delivered_at is not None


def test_an_observer_that_fails_changes_nothing() -> None:
    """I12: logged, and that is all."""

    class Deaf:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("no ears")

    bench = a_bench()

    bench.orchestrate(observer=Deaf())

    assert bench.output() == [1, 2]
