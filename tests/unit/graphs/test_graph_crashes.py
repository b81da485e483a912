"""A process dies at every moment of a graph run; the rest of the fleet leaves the same rows (spec 3.3, 16.5, 16.6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pikkuflow.domain.definition import WorkflowDefinition
from pikkuflow.domain.graph_input import ref
from pikkuflow.domain.graph_read import graph_of
from pikkuflow.domain.status import RunStatus, StepStatus
from tests.unit.engine.bench import Bench, Life
from tests.unit.engine.test_crashes import live_through, recover_all
from tests.unit.graphs.signatures import Signatures

GRAPH = graph_of(
    "flow",
    entry="a",
    nodes={
        "a": {"task": "pick", "next": ["b", "items", "nap"]},
        "nap": {"sleep": 20, "next": "child"},
        "child": {"task": "child", "input": [3]},
        "b": {"task": "pick", "next": {"again": "b2", "out": "shaky"}},
        "b2": {"task": "far", "next": "b"},
        "shaky": {"task": "shaky", "retry_delay": "7s", "next": "dead"},
        "dead": {"task": "dead", "retries": 0, "recover": "fix"},
        "fix": {"task": "near"},
        "items": {"task": "pick", "next": ["each", "turn"]},
        "each": {"task": "near", "for_each": "items", "next": "join"},
        "turn": {"task": "far", "for_each": "items", "mode": "sequential", "next": "join"},
        "join": {"task": "near", "input": [ref("each"), ref("turn"), ref("child")]},
    },
)
CHOICES = {"b": "again", "b#1": "out"}


def a_bench() -> tuple[Bench, list[tuple[str, int]]]:
    """The graph, over tasks that are in place, elsewhere, failing once, and failing for good."""
    bench = Bench()
    ledger: list[tuple[str, int]] = []

    def task(*args: Any) -> Any:
        work = bench.runner.works[-1]
        ledger.append((work.step, work.attempt))
        assert work.node is not None
        if work.step in CHOICES:
            work.node.branch = CHOICES[work.step]
        if work.task == "shaky" and sum(step == work.step for step, _ in ledger) == 1:
            raise ValueError("the first one fails")
        if work.task == "dead":
            raise ValueError("it is dead")
        if work.step == "fix":
            found = work.node.ask_recovering()
            return None if found is None else found.step
        return [1, 2] if work.step == "items" else list(args)

    for name in ("pick", "near", "shaky", "dead"):
        bench.task(task, name=name)
    bench.task(task, name="far", leaves="queue")

    def child(wf: Any, number: int) -> int:
        wf.sleep(5)
        return number * 2

    bench.workflow(child)
    bench.registry.add(WorkflowDefinition(name="flow", body=lambda _wf: None, version="v1", graph=GRAPH))
    bench.rt = replace(bench.rt, translate=Signatures())
    return bench, ledger


def rows(bench: Bench) -> dict[str, tuple[Any, ...]]:
    """What every life of the run must leave; only a step of one attempt may have lost it with its process."""
    return {step.name: (step.status, step.result, step.from_step, step.kind, step.group) for step in bench.steps()}


def healthy() -> tuple[dict[str, tuple[Any, ...]], int]:
    """The rows of a life without accidents, and its moments."""
    bench, _ = a_bench()
    bench.start("flow")
    life = Life()
    assert not live_through(bench, life)
    assert bench.run().status is RunStatus.COMPLETED, bench.error()
    return rows(bench), life.moments


ROWS, MOMENTS = healthy()


def test_the_healthy_life_has_everything() -> None:
    """What is killed below walks branches, a cycle, both fan-outs, a recovery, a retry, a sleep and a child."""
    names = ["a", "b", "b#1", "b2", "child", "dead", "each", "each[0]", "each[1]", "fix", "items", "join", "nap"]
    assert sorted(ROWS) == [*names, "shaky", "turn", "turn[0]", "turn[1]"]
    assert ROWS["join"][1] == "[[[1],[2]],[[1],[2]],6]"
    assert ROWS["fix"][1] == '"dead"'
    assert ROWS["dead"][0] is StepStatus.FAILED


@pytest.mark.parametrize("part", range(8))
def test_death_at_any_moment_leaves_the_same_rows(part: int) -> None:
    """Spec 3.3, 16.6: names, results, predecessors and branches; nothing settled is worked again, no attempt twice."""
    for moment in range(1 + part, MOMENTS + 1, 8):
        bench, ledger = a_bench()
        bench.start("flow")
        assert live_through(bench, Life(dies_at=moment))

        recover_all(bench)

        assert rows(bench) == ROWS, f"killed at moment {moment}"
        assert bench.run().status is RunStatus.COMPLETED
        for step in bench.steps():
            assert step.attempt <= step.attempts_allowed
        # Without retries, "dead" may have been ended before it ran (design 3.11).
        assert {step for step, _ in ledger} | {"dead"} == ROWS.keys() - {"nap", "child", "each", "turn"}
