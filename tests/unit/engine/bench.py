"""An engine over memory adapters, with tasks that are plain functions and a broker that a test empties by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pikkuflow.adapters.json_codec import JsonCodec
from pikkuflow.adapters.memory.clock import MovableClock
from pikkuflow.adapters.memory.dispatcher import MemoryDeliverer, MemoryDispatcher
from pikkuflow.adapters.memory.hints import MemoryHints
from pikkuflow.adapters.memory.ids import SeededIds
from pikkuflow.adapters.memory.leases import MemoryLeases
from pikkuflow.adapters.memory.run_store import MemoryRunStore
from pikkuflow.domain.act import RunRef
from pikkuflow.domain.definition import Registry, WorkflowDefinition
from pikkuflow.domain.ids import Holder, RunId, StepName
from pikkuflow.domain.run import NewRun, Run
from pikkuflow.domain.step import Attempt, Step
from pikkuflow.engine.execute_step import execute_step
from pikkuflow.engine.fire_timer import fire_due
from pikkuflow.engine.orchestrate import orchestrate
from pikkuflow.engine.resume import resume_run
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.start import start_runs
from pikkuflow.engine.sweep import SweepCounts, recover
from pikkuflow.settings import Settings
from tests.unit.engine.parts import Child, Died, Ear, Life, Mortal, Runner, Say, Task, Translate

__all__ = ["Bench", "Child", "Died", "Life", "Say", "Task"]


class Bench:
    """A runtime and the words to drive it."""

    def __init__(self, **settings: Any) -> None:
        self.clock = MovableClock()
        self.store = MemoryRunStore(self.clock)
        self.leases = MemoryLeases(self.clock)
        self.hints = MemoryHints(self.clock)
        self.broker = MemoryDispatcher()
        self.deliverer = MemoryDeliverer()
        self.runner = Runner()
        self.ear = Ear()
        self.registry = Registry()
        self.stopping = False
        self.doomed: Life | None = None
        self.rt = Runtime(
            store=self.store,
            leases=self.leases,
            hints=self.hints,
            dispatcher=self.broker,
            runner=self.runner,
            translate=Translate(),
            deliverer=self.deliverer,
            codec=JsonCodec(8 * 1024 * 1024),
            clock=self.clock,
            ids=SeededIds(),
            observer=self.ear,
            registry=self.registry,
            settings=Settings.from_mapping({f"pikkuflow_{key}": value for key, value in settings.items()}, {}),
            holder=lambda: Holder("node:1"),
            is_stopping=lambda: self.stopping,
            consumes=lambda _workflow: True,
            has_broker=True,
        )

    # --- processes --------------------------------------------------------------------------------------------------
    def other(self, **changed: Any) -> Runtime:
        """Another process' runtime."""
        return replace(self.rt, **changed)

    def process(self, life: Life, holder: str = "node:2") -> Runtime:
        """The runtime of a process that lives as long as that."""
        return replace(
            self.rt,
            store=Mortal(self.store, life),
            leases=Mortal(self.leases, life),
            hints=Mortal(self.hints, life),
            dispatcher=Mortal(self.broker, life),
            holder=lambda: Holder(holder),
        )

    def die_if_told(self) -> None:
        """Kills the process that is working, when it is one that shall die."""
        if self.doomed is not None:
            life, self.doomed = self.doomed, None
            life.end()

    def orchestrate_and_die(self, run_id: str = "r1") -> None:
        """A process works a pass until ``die_if_told``; its lease lapses then."""
        life = self.doomed = Life()
        with pytest.raises(Died):
            orchestrate(self.process(life), [RunId(run_id)])
        self.clock.advance(31)

    # --- defining ---------------------------------------------------------------------------------------------------
    def task(self, function: Callable[..., Any], *, leaves: str | None = None, name: str | None = None) -> str:
        """Register a task under its function's name."""
        known = name or function.__name__
        self.runner.tasks[known] = function
        if leaves is not None:
            self.runner.leaves[known] = leaves
        return known

    def workflow(self, body: Callable[..., Any], *, name: str | None = None, version: str = "v1", **more: Any) -> str:
        """Register a workflow under its function's name."""
        known = name or body.__name__
        self.registry.add(WorkflowDefinition(name=known, body=body, version=version, **more))
        return known

    # --- driving ----------------------------------------------------------------------------------------------------
    def start(self, workflow: str, *args: Any, run_id: str = "r1", **more: Any) -> RunId:
        """Start a run; its wake-up is in the broker."""
        start_runs(self.rt, [self.new_run(workflow, *args, run_id=run_id, **more)])
        return RunId(run_id)

    def new_run(self, workflow: str, *args: Any, run_id: str = "r1", **more: Any) -> NewRun:
        """A run about to be started."""
        text = self.rt.codec.encode({"args": list(args), "kwargs": {}}, what="input")
        return NewRun(id=RunId(run_id), workflow=workflow, version="v1", input=text, **more)

    def work(self, *, rt: Runtime | None = None, limit: int = 100) -> int:
        """Handle messages until the broker is empty; the number handled."""
        for handled in range(limit):
            if not self.work_one(rt):
                return handled
        raise AssertionError("the broker does not run empty")

    def orchestrate(self, run_id: str = "r1", **changed: Any) -> None:
        """One message, handled by this process, or by one with other surroundings."""
        orchestrate(replace(self.rt, **changed), [RunId(run_id)])

    def orchestrate_all(self, *run_ids: str, **changed: Any) -> None:
        """One message for many runs."""
        orchestrate(replace(self.rt, **changed), [RunId(run_id) for run_id in run_ids])

    def wake(self, workflow: str, run_id: str = "r1") -> None:
        """Put a wake-up into the broker."""
        self.broker.wake([RunRef(id=RunId(run_id), workflow=workflow)])

    def work_one(self, rt: Runtime | None = None) -> bool:
        """Handle one message: steps first. False: there was none."""
        rt = rt or self.rt
        if self.broker.messages:
            message = self.broker.messages.pop(0)
            steps = [(one.name, one.attempt) for one in message]
            execute_step(rt, message[0].run_id, steps, message[0].task, may_continue=True)
            return True
        if self.broker.wakes:
            orchestrate(rt, [self.broker.wakes.pop(0).id])
            return True
        return False

    def pass_time(self, seconds: float) -> None:
        """Move the clock, fire what is due, work."""
        self.clock.advance(seconds)
        fire_due(self.rt)
        self.work()

    def recover(self, *, startup: bool = False) -> SweepCounts:
        """All sweeps once."""
        return recover(self.rt, began_at=self.clock.monotonic() if startup else None)

    def resume(self, run_id: str = "r1") -> bool:
        """Resume a suspended run."""
        return resume_run(self.rt, RunId(run_id))

    # --- looking ----------------------------------------------------------------------------------------------------
    def run(self, run_id: str = "r1") -> Run:
        """The run."""
        run = self.store.get_run(RunId(run_id))
        assert run is not None
        return run

    def output(self, run_id: str = "r1") -> Any:
        """The decoded output."""
        return self.rt.codec.decode(self.run(run_id).output or "null")

    def error(self, run_id: str = "r1") -> str:
        """The run's error message."""
        error = self.run(run_id).error
        assert error is not None
        return error.message

    def steps(self, run_id: str = "r1") -> tuple[Step, ...]:
        """The run's steps."""
        return self.store.list_steps(RunId(run_id))

    def attempts(self, run_id: str = "r1") -> tuple[Attempt, ...]:
        """Earlier attempts."""
        return self.store.list_attempts(RunId(run_id))

    def due(self, run_id: str = "r1") -> float | None:
        """How far ahead the run's hint is."""
        return self.hints.due_in_seconds(RunId(run_id))

    def step(self, name: str, run_id: str = "r1") -> Step:
        """One step."""
        step = self.store.get_step(RunId(run_id), StepName(name))
        assert step is not None, f"no step {name}"
        return step
