"""Processes with the code before a change and processes with that after it, over one store and broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

from pikkuflow.domain.definition import Registry, WorkflowDefinition
from pikkuflow.engine.runtime import Runtime
from tests.unit.engine.bench import Bench, Died, Life, Task
from tests.unit.engine.parts import Runner

__all__ = ["NEW_WAY", "OLD_WAY", "Fleet"]

OLD_WAY, NEW_WAY = ["reserve", "charge", "ship"], ["reserve", "pay", "receipt", "ship"]


class Fleet:
    """One store and broker; processes with the code before a change, and with that after it. ``done`` is what was worked, by code."""

    def __init__(self, leaves: str | None = None, **settings: Any) -> None:
        self.bench = Bench(**settings)
        self.done: list[tuple[str, str]] = []
        self.leaves = leaves
        self.old = self._process("old", ["reserve", "charge", "ship"], before, "v1")
        self.new = self._process("new", ["reserve", "charge", "pay", "receipt", "ship"], after, "v2")

    def _process(self, code: str, tasks: list[str], body: Callable[..., Any], version: str) -> Runtime:
        runner, registry = Runner(), Registry()
        for task in tasks:
            runner.tasks[task] = self._noting(code, task)
            if self.leaves is not None:
                runner.leaves[task] = self.leaves
        registry.add(WorkflowDefinition(name="order", body=body, version=version))
        if code == "new":
            registry.add(WorkflowDefinition(name="gift", body=lambda wf: wf.do(Task("receipt")), version="v1"))
        return self.bench.other(registry=registry, runner=runner)

    def _noting(self, code: str, task: str) -> Callable[..., str]:
        def work(*_: Any) -> str:
            self.done.append((task, code))
            return task

        return work

    def nights(self, *processes: Runtime, run_id: str = "r1") -> None:
        """Messages and timers, each handled by one of these processes, until the run has ended."""
        # As uneven as a broker: the Thue-Morse sequence has no period that a run could fall in step with.
        turns = (number.bit_count() % len(processes) for number in count())
        for _ in range(60):
            while self.bench.work_one(processes[next(turns)]):
                pass
            if self.bench.run(run_id).is_settled:
                return
            self.bench.clock.advance(30)
            self.bench.wake("order", run_id)
        raise AssertionError(f"it does not end: {self.bench.run(run_id)}")

    def begin(self, *, nights: int, process: Runtime | None = None) -> None:
        """A run that a process (an old one unless given) works until it sleeps, and for each further night until it sleeps again."""
        self.bench.start("order")
        for night in range(nights):
            if night:
                self.bench.wake("order")
            self.bench.work(rt=process or self.old)
            self.bench.clock.advance(100)

    def works_until(self, dies_at: int) -> bool:
        """A new process handles messages until it dies at that moment; its leases lapse then. True: it survived."""
        mortal = self.bench.process(Life(dies_at))
        doomed = replace(mortal, registry=self.new.registry, runner=self.new.runner)
        self.bench.wake("order")
        try:
            self.bench.work(rt=doomed)
        except Died:
            self.bench.clock.advance(61)
            return False
        return True

    def recover_with(self, process: Runtime) -> None:
        """Sweeps, and all that they find, until the run has ended."""
        for _ in range(8):
            self.bench.clock.advance(61)
            self.bench.recover()
            self.bench.work(rt=process)
        self.nights(process)

    @property
    def way(self) -> list[str]:
        """What was worked, in order."""
        return [task for task, _ in self.done]


def before(wf: Any) -> None:
    """The code before the change."""
    wf.do(Task("reserve"))
    wf.sleep("first", 100)
    wf.do(Task("charge"))
    wf.sleep("second", 100)
    wf.do(Task("ship"))


def after(wf: Any) -> None:
    """The code after it."""
    wf.do(Task("reserve"))
    wf.sleep("first", 100)
    if wf.patched("receipts"):
        wf.do(Task("pay"))
        wf.do(Task("receipt"))
    else:
        wf.do(Task("charge"))
    wf.sleep("second", 100)
    wf.do(Task("ship"))
