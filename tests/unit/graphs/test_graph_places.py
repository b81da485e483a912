"""Made-up graphs run on the engine, in place and by messages that arrive in any order: the rows are the same (spec 3.3)."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings

from pikkuflow.domain.definition import WorkflowDefinition
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import Dispatch, RunStatus
from pikkuflow.engine.execute_step import execute_step
from pikkuflow.engine.orchestrate import orchestrate
from pikkuflow.engine.run_inline import run_inline
from tests.unit.domain.made_graphs import Made, check_begun, onward_graphs
from tests.unit.engine.bench import Bench
from tests.unit.graphs.signatures import Signatures


def _bench(made: Made, dispatch: Dispatch | None) -> Bench:
    bench = Bench(retries=0)

    def task(*args: Any) -> Any:
        work = bench.runner.works[-1]
        assert work.node is not None
        ended = made.outcomes[work.node.node]
        if ended.failure is not None:
            raise ValueError(ended.failure.message)
        work.node.branch = ended.branch
        return [work.node.node, *args]

    bench.task(task, name="t")
    bench.rt = bench.other(translate=Signatures())
    bench.registry.add(
        WorkflowDefinition(name="g", body=lambda _wf: None, version="v1", graph=made.graph, dispatch=dispatch)
    )
    return bench


def _work_in_any_order(bench: Bench, made: Made) -> None:
    broker = bench.broker
    while broker.messages or broker.wakes:
        at = made.choose(len(broker.messages) + len(broker.wakes))
        if at < len(broker.messages):
            steps = broker.messages.pop(at)
            named = [(one.name, one.attempt) for one in steps]
            execute_step(bench.rt, steps[0].run_id, named, steps[0].task, may_continue=False)
        else:
            orchestrate(bench.rt, [broker.wakes.pop(at - len(broker.messages)).id])


def _rows(bench: Bench) -> list[tuple[Any, ...]]:
    """Which of several recoveries by one node has which number depends on what failed first: the number is left out."""
    return sorted(
        (step.name.partition("#")[0], step.status, step.result or "", "" if step.error is None else step.error.message)
        for step in bench.steps()
    )


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(onward_graphs())
def test_the_rows_are_the_same_wherever_and_in_whatever_order(made: Made) -> None:
    """Spec 3.3, T13.5, T13.6: those of a brute-force walk, each once, with the same results, after a node that led to it."""
    left = []
    for dispatch in (None, Dispatch.QUEUE, Dispatch.INLINE):
        bench = _bench(made, dispatch)
        bench.start("g", inline=dispatch is Dispatch.INLINE)
        if dispatch is Dispatch.INLINE:
            bench.broker.wakes.clear()
            run_inline(bench.rt, RunId("r1"))
        else:
            _work_in_any_order(bench, made)
        assert bench.run().status is RunStatus.COMPLETED
        check_begun(made, [(step.name, step.from_step) for step in bench.steps()])
        left.append(_rows(bench))

    assert left[0] == left[1] == left[2]
