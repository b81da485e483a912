"""A process dies at every moment of a graph run; the rest of the fleet leaves the same rows (spec 3.3, 16.5, 16.6)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from pikkuflow.domain.definition import WorkflowDefinition
from pikkuflow.domain.graph_input import ref
from pikkuflow.domain.graph_read import graph_of
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.domain.undo import Undo
from tests.unit.engine.bench import Bench, Died, Life
from tests.unit.engine.test_crashes import live_through, recover_all, tick
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


FAILING = graph_of(
    "flow",
    entry="a",
    nodes={
        "a": {"task": "done", "next": ["b", "c"]},
        "b": {"task": "done", "for_each": "trigger", "next": "join"},
        "c": {"task": "dead", "retries": 0, "recover": "fix"},
        "fix": {"task": "done", "next": "join"},
        "join": {"task": "done", "input": [ref("b"), ref("fix")], "next": "end"},
        "end": {"task": "dead", "retries": 0, "compensate": False},
    },
)


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


@pytest.mark.parametrize("seed", range(12))
def test_processes_may_die_again_and_again(seed: int) -> None:
    """Seven deaths in a row, at scattered moments: still the same rows."""
    bench, _ = a_bench()
    bench.start("flow")
    for crash in range(7):
        rt = bench.process(Life(dies_at=1 + (seed * 37 + crash * 53) % 60), holder=f"node{crash}:2")
        with suppress(Died):
            bench.work(rt=rt)
            tick(bench, rt, seconds=20)
            bench.work(rt=rt)
        bench.clock.advance(31)
    recover_all(bench)

    assert rows(bench) == ROWS


def a_failing_bench() -> tuple[Bench, list[str]]:
    """A graph that fails at its end, over tasks that can be undone, and what was undone."""
    bench = Bench()
    undone: list[str] = []

    def done(*args: Any) -> Any:
        return list(args)

    def dead(*_: Any) -> None:
        raise ValueError("it is dead")

    def undo(undo: Undo, *_: Any) -> None:
        undone.append(undo.step)

    bench.task(done, name="done")
    bench.task(dead, name="dead")
    bench.task(undo, name="undo")
    bench.registry.add(WorkflowDefinition(name="flow", body=lambda _wf: None, version="v1", graph=FAILING))
    bench.rt = replace(bench.rt, translate=Signatures(undone_by="undo"))
    return bench, undone


def test_death_at_any_moment_undoes_each_node_once_and_no_recovered_one() -> None:
    """T13.17, T13.16, 16.6: recorded once each; the node that was recovered is left alone."""
    moment, died = 0, True
    while died:
        moment += 1
        bench, undone = a_failing_bench()
        bench.start("flow", [1, 2])
        died = live_through(bench, Life(dies_at=moment))
        if died:
            recover_all(bench)

        assert bench.run().status is RunStatus.COMPENSATED, f"killed at moment {moment}"
        assert bench.run().code == "GRAPH_NODE_FAILED"
        undos = [step for step in bench.steps() if step.name.endswith(":compensate")]
        assert {step.name for step in undos} == {f"{name}:compensate" for name in ("a", "b[0]", "b[1]", "fix", "join")}
        assert all(step.status is StepStatus.SUCCEEDED for step in undos)
        assert set(undone) == {"a", "b[0]", "b[1]", "fix", "join"}
        assert undone.index("join") < undone.index("fix") < undone.index("a")


class _Unreadable:
    """A codec that cannot read one text, for as long as that is so."""

    def __init__(self, codec: Any, text: str) -> None:
        self._codec = codec
        self._text = text

    def encode(self, value: Any, *, what: str) -> str:
        """As it does."""
        encoded: str = self._codec.encode(value, what=what)
        return encoded

    def decode(self, text: str) -> Any:
        """As it does, but for the one."""
        if text == self._text:
            raise ValueError("the key is away")
        return self._codec.decode(text)


@pytest.mark.parametrize("reader", [{"input": [ref("a")]}, {"for_each": "a"}])
def test_a_result_that_cannot_be_read_ends_the_pass_and_not_the_run(reader: dict[str, Any]) -> None:
    """As for functions: nothing is recorded against the node, and another pass goes on once it can be read."""
    bench = Bench()
    bench.task(lambda: [1, 2], name="list", leaves="queue")
    bench.task(lambda *args: list(args), name="near")
    graph = graph_of("flow", entry="a", nodes={"a": {"task": "list", "next": "b"}, "b": {"task": "near", **reader}})
    bench.registry.add(WorkflowDefinition(name="flow", body=lambda _wf: None, version="v1", graph=graph))
    bench.rt = bench.other(translate=Signatures())
    bench.start("flow")
    blind = bench.other(codec=_Unreadable(bench.rt.codec, "[1,2]"))
    with pytest.raises(ValueError, match="the key is away"):
        bench.work(rt=blind)
    assert bench.run().status is RunStatus.RUNNING
    assert [step.name for step in bench.steps()] == ["a"]

    recover_all(bench)

    assert bench.run().status is RunStatus.COMPLETED
