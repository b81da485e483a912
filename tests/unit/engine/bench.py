"""An engine over memory adapters, with tasks that are plain functions and a broker that a test empties by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
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
from pikkuflow.domain.command import StepCall
from pikkuflow.domain.definition import Registry, WorkflowDefinition
from pikkuflow.domain.ids import Holder, RunId, StepName
from pikkuflow.domain.run import NewRun, Run
from pikkuflow.domain.status import StepKind
from pikkuflow.domain.step import Attempt, Step
from pikkuflow.engine.execute_step import execute_step
from pikkuflow.engine.fire_timer import fire_due
from pikkuflow.engine.orchestrate import orchestrate
from pikkuflow.engine.resume import resume_run
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.start import start_runs
from pikkuflow.engine.sweep import SweepCounts, recover
from pikkuflow.errors import TaskNotFound
from pikkuflow.ports import Attempted, AttemptEnd, PassEnded, Route, StepLost, StepWork
from pikkuflow.replay.options import StepOptions
from pikkuflow.settings import Settings

__all__ = ["Bench", "Child", "Died", "Life", "Say", "Task"]


@dataclass(frozen=True)
class Task:
    """What a body hands to ``wf``: a task by name, with its arguments."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    compensable: bool = False
    countdown: float | None = None


@dataclass(frozen=True)
class Child:
    """A workflow as a step."""

    workflow: str
    args: tuple[Any, ...] = ()


class Translate:
    """The least translator."""

    def __call__(self, what: Any, name: str | None, options: StepOptions) -> StepCall:
        """Read what the body wrote."""
        shared: dict[str, Any] = {
            "retries": options.retries,
            "retry_delay": options.retry_delay,
            "no_retry_on": options.no_retry_on,
            "dispatch": options.dispatch,
            "record_start": options.record_start,
        }
        if isinstance(what, Child):
            return StepCall(
                name=name or what.workflow, kind=StepKind.CHILD, task=what.workflow, args=what.args, **shared
            )
        if isinstance(what, Task):
            countdown = {} if what.countdown is None else {"countdown": what.countdown}
            return StepCall(
                name=name or what.name,
                kind=StepKind.TASK,
                task=what.name,
                args=what.args,
                kwargs=what.kwargs,
                compensable=what.compensable,
                options=countdown,
                **shared,
            )
        return StepCall(name=name or what.__name__, kind=StepKind.FUNCTION, function=what, **shared)

    def member(self, task: Any, item: Any) -> Any:
        """One member of a map."""
        return replace(task, args=(*task.args, item))


class Say(Exception):
    """A task's own word about its end: ``end``, a delay, changed arguments."""

    def __init__(
        self, end: AttemptEnd, *, delay: float | None = None, override: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(f"the task says {end}")
        self.end = end
        self.delay = delay
        self.override = override


class Died(BaseException):
    """The process is gone: nothing in it runs any more."""


class Mortal:
    """A port of a process that can die: from then on every call raises ``Died``.

    ``fatal`` is asked before and after each call, with the call's number: True kills the process there.
    """

    def __init__(self, port: Any, life: Life) -> None:
        self._port = port
        self._life = life

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if not callable(found):
            return found

        def call(*args: Any, **more: Any) -> Any:
            self._life.live(name)
            answer = found(*args, **more)
            self._life.live(name)
            return answer

        return call


class Life:
    """Whether a process still lives, and at which moment (counted over the calls of its ports) it dies."""

    def __init__(self, dies_at: int | None = None) -> None:
        self.dies_at = dies_at
        self.moments = 0
        self.is_over = False

    def live(self, what: str) -> None:
        """One more moment; raises ``Died`` at the fatal one and after it."""
        if not self.is_over:
            self.moments += 1
            self.is_over = self.moments == self.dies_at
        if self.is_over:
            raise Died(what)

    def end(self) -> None:
        """Die now."""
        self.is_over = True
        raise Died("told to die")


class Runner:
    """The least step runner: tasks are functions, ``leaves`` says which must leave the pass and why."""

    def __init__(self) -> None:
        self.tasks: dict[str, Callable[..., Any]] = {}
        self.leaves: dict[str, str] = {}
        self.works: list[StepWork] = []
        self.lasts: list[bool] = []

    def route(self, call: StepCall, workflow: str) -> Route:  # noqa: ARG002 - the port's signature
        """Send every task where ``leaves`` says."""
        task = call.task or ""
        leaves = self.leaves.get(task)
        if task not in self.tasks and leaves is None:
            raise TaskNotFound(f"no task {task!r}", task)
        return Route(
            leaves=leaves,
            queue=None if leaves is None else "other",
            options="{}",
            lease_seconds=60.0,
            args=call.args,
            kwargs=call.kwargs,
            delay_seconds=call.options.get("countdown"),
        )

    def is_known(self, task: str) -> bool:
        """It has a function."""
        return task in self.tasks

    def run(self, work: StepWork, commit: Callable[[Attempted], bool]) -> None:
        """Call the function and commit once."""
        if work.task not in self.tasks:
            raise TaskNotFound(f"no task {work.task!r}", work.task)
        self.works.append(work)
        self.lasts.append(commit(self._attempt(work)))

    def _attempt(self, work: StepWork) -> Attempted:
        try:
            return Attempted(end=AttemptEnd.SUCCEEDED, value=self.tasks[work.task](*work.args, **work.kwargs))
        except Say as said:
            return Attempted(end=said.end, error=said, delay_seconds=said.delay, override=said.override)
        except Exception as error:  # noqa: BLE001 - a task may raise anything
            final = isinstance(error, work.no_retry_on)
            return Attempted(end=AttemptEnd.GAVE_UP if final else AttemptEnd.RAISED, error=error)


class Ear:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.passes: list[PassEnded] = []
        self.losses: list[StepLost] = []
        self.warnings: list[str] = []

    def pass_ended(self, event: PassEnded) -> None:
        """Remember it."""
        self.passes.append(event)

    def step_lost(self, event: StepLost) -> None:
        """Remember it."""
        self.losses.append(event)

    def warn(self, message: str, *, run_id: RunId | None = None) -> None:  # noqa: ARG002 - the port's signature
        """Remember it."""
        self.warnings.append(message)


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
        return recover(self.rt, startup=startup)

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
