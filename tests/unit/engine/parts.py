"""The parts of an engine bench: tasks as plain functions, a translator, a runner, an observer, and processes that can die."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pikkuflow.adapters.schemas import schema_of
from pikkuflow.domain.command import StepCall
from pikkuflow.domain.gate import Schema
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import StepKind
from pikkuflow.errors import TaskNotFound
from pikkuflow.ports import Attempted, AttemptEnd, PassEnded, Route, StepLost, StepWork
from pikkuflow.replay.options import StepOptions

__all__ = ["Child", "Died", "Ear", "Life", "Mortal", "Runner", "Say", "Task", "Translate"]


@dataclass(frozen=True)
class Task:
    """What a body hands to ``wf``: a task by name, with its arguments."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    undone_by: str | None = None
    countdown: float | None = None
    expires: float | None = None


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
            "timeout_seconds": options.timeout_seconds,
            "heartbeat_seconds": options.heartbeat_seconds,
            "quick": options.quick,
        }
        if isinstance(what, Child):
            return StepCall(
                name=name or what.workflow,
                kind=StepKind.CHILD,
                task=what.workflow,
                args=what.args,
                undo_task=what.workflow if options.compensate else None,
                detached=options.detached,
                **shared,
            )
        if isinstance(what, Task):
            own = {"countdown": what.countdown, "expires": what.expires}
            return StepCall(
                name=name or what.name,
                kind=StepKind.TASK,
                task=what.name,
                args=what.args,
                kwargs=what.kwargs,
                undo_task=what.undone_by if options.compensate else None,
                options={key: value for key, value in own.items() if value is not None},
                **shared,
            )
        return StepCall(name=name or what.__name__, kind=StepKind.FUNCTION, function=what, **shared)

    def schema(self, schema: Any) -> Schema:
        """As the application has it."""
        return schema_of(schema)

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
            expires_seconds=call.options.get("expires"),
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
