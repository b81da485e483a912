"""Graphs as child runs of workers that do not know them: they belong to the first that does (spec 3.7, D17)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from pikkuflow.domain.definition import Registry, WorkflowDefinition
from pikkuflow.domain.graph_read import graph_of
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import RunStatus
from pikkuflow.engine.runtime import Runtime
from tests.unit.engine.bench import Bench, Child, Died, Life
from tests.unit.graphs.signatures import Signatures


def _inner(*follow: str) -> WorkflowDefinition:
    """A graph that waits for a night between its first step and those."""
    nodes: dict[str, Any] = {"first": {"task": "do", "next": "night"}, "night": {"sleep": 60, "next": list(follow)}}
    graph = graph_of("inner", entry="first", nodes=nodes | {node_id: {"task": "do"} for node_id in follow})
    return WorkflowDefinition(name="inner", body=lambda _wf: None, version=graph.version, graph=graph)


OLD, NEW = _inner("charge"), _inner("pay", "receipt")


class _Shop:
    """A worker that has the parent alone, and workers that have the child before and after its change."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.bench.task(lambda: None, name="do")
        self.bench.workflow(lambda wf: wf.do(Child("inner")), name="outer")
        self.knows = {"outer": self.bench.rt, "old": self.worker(OLD), "new": self.worker(NEW)}

    def worker(self, inner: WorkflowDefinition) -> Runtime:
        registry = Registry()
        registry.add(inner)
        return self.bench.other(registry=registry, translate=Signatures(), versions={})

    def begin(self) -> RunId:
        """The parent has started its child, which nobody has worked."""
        self.bench.start("outer")
        assert self.bench.work_one(self.knows["outer"])
        child = self.bench.step("inner").child_run_id
        assert child is not None
        assert self.bench.run(child).version == ""
        self.bench.broker.messages.clear()
        return child

    def work(self, who: str, child: RunId) -> None:
        self.bench.wake("inner", child)
        self.bench.work(rt=self.knows[who])

    def names(self, child: RunId) -> list[str]:
        return [row.name for row in self.bench.steps(child)]


def test_a_child_run_belongs_to_the_first_worker_that_knows_it() -> None:
    """Spec 3.7: its starter has no version for it; it finishes on the graph that it was begun on, whoever goes on with it."""
    shop = _Shop()
    child = shop.begin()
    shop.work("old", child)
    assert shop.bench.run(child).version == OLD.version
    shop.bench.clock.advance(61)
    shop.work("new", child)

    assert shop.bench.run(child).status is RunStatus.COMPLETED
    assert shop.names(child) == ["first", "night", "charge"]


def test_a_child_run_waits_for_a_worker_that_knows_it() -> None:
    """D5: one that does not know it spends nothing and gives it no version."""
    shop = _Shop()
    child = shop.begin()
    shop.work("outer", child)
    assert (shop.bench.run(child).code, shop.bench.run(child).version) == ("WORKFLOW_NOT_FOUND", "")
    shop.work("new", child)
    shop.bench.clock.advance(61)
    shop.work("old", child)

    assert shop.bench.run(child).status is RunStatus.COMPLETED
    assert shop.names(child) == ["first", "night", "pay", "receipt"]


@pytest.mark.parametrize("dies_at", range(12))
def test_a_worker_that_dies_over_its_first_pass_mixes_no_graphs(dies_at: int) -> None:
    """Spec 16.5: whenever it dies, the child ends on one graph: the one that its rows were recorded on."""
    shop = _Shop()
    child = shop.begin()
    mortal = shop.bench.process(Life(dies_at))
    shop.knows["doomed"] = shop.bench.other(
        registry=shop.knows["old"].registry,
        translate=Signatures(),
        versions={},
        store=mortal.store,
        leases=mortal.leases,
    )
    with suppress(Died):
        shop.work("doomed", child)
    left = shop.names(child)
    shop.bench.clock.advance(61)
    for _ in range(3):
        shop.work("new", child)
        shop.bench.clock.advance(61)

    run = shop.bench.run(child)
    assert run.status is RunStatus.COMPLETED
    assert not left or run.version == OLD.version
    assert shop.names(child)[2:] == (["charge"] if run.version == OLD.version else ["pay", "receipt"])


def test_a_child_run_whose_steps_were_recorded_without_a_version_is_compared() -> None:
    """Nobody knows what they were recorded on: it gets no version after the fact, and is suspended where it does not fit."""
    shop = _Shop()
    child = shop.begin()
    shop.work("old", child)
    shop.bench.store._tables.runs[child].version = ""
    shop.bench.clock.advance(61)
    shop.work("new", child)

    assert (shop.bench.run(child).status, shop.bench.run(child).version) == (RunStatus.COMPLETED, "")
    assert shop.names(child) == ["first", "night", "pay", "receipt"]
