"""Graph workflows on the real engine over memory, worked in one of three places, with a diary of what was done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery import Celery

from pikkuflow import PikkuFlow, Run, current_step
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.step import Step
from pikkuflow.testing import MemoryWorld, in_memory

__all__ = ["ON_WORKERS", "PLACES", "Stage", "staged"]

PLACES = ("here", "away", "inline")

ON_WORKERS = ("here", "away")
"""Where a run that waits is met by others: an inline run stands still, and gets no messages."""
"""In the passes, by step messages, and in the process that starts the run."""


class Stage:
    """An app with a few tasks, and one graph at a time."""

    def __init__(self, place: str, pikku: PikkuFlow, world: MemoryWorld) -> None:
        self.place = place
        self.pikku = pikku
        self.world = world
        self.diary: list[str] = []
        self.says: dict[str, Any] = {}
        """What a step does instead of echoing its arguments: an exception to raise, a function to call, or what to return."""
        for name in ("do", "redo"):
            self.task(name)
        self.run: Run[Any] = Run("none", lambda: world.runtime)

    def task(self, name: str) -> Any:
        """A task that does what ``says`` has for its step, and can be undone."""

        def work(*args: Any, **kwargs: Any) -> Any:
            step = current_step().step
            self.diary.append(step)
            said = self.says.get(step, self.says.get(current_step().node or ""))
            if isinstance(said, Exception):
                raise said
            if callable(said):
                return said(*args, **kwargs)
            return [*args, *kwargs.values()] if said is None else said

        made: Any = self.pikku.app.task(name=name, shared=False)(work)

        def undo(undo: Any, *args: Any, **kwargs: Any) -> None:
            self.diary.append(f"un{undo.step}" if undo.ok else f"un{undo.step}?")

        self.pikku.compensates(made)(undo)
        return made

    def graph(self, entry: Any = "a", *, name: str = "flow", **nodes: Any) -> Any:
        """Register a graph; a text is a task's ``next``."""
        made = {}
        for node_id, said in nodes.items():
            fields = dict(said) if isinstance(said, dict) else {"next": said}
            own = {"task", "sleep", "suspend", "approval", "wait_for", "milestone"}
            made[node_id] = fields if own & fields.keys() else {"task": "do", **fields}
        dispatch = "queue" if self.place == "away" else None
        return self.pikku.graph(name, nodes=made, entry=entry, dispatch=dispatch)

    def play(self, entry: Any = "a", *, trigger: Any = None, **nodes: Any) -> Run[Any]:
        """Register a graph and run it as far as it goes by itself."""
        return self.start(self.graph(entry, **nodes), trigger)

    def start(self, flow: Any, trigger: Any = None, **using: Any) -> Run[Any]:
        """Run a graph as far as it goes by itself."""
        starter = flow.using(run_id="r1", **using)
        if self.place == "inline":
            self.run = starter.run_inline(trigger)
        else:
            self.run = starter.start(trigger)
            self.world.settle()
        return self.run

    def go_on(self) -> None:
        """What happened outside is worked."""
        if self.place == "inline":
            from pikkuflow.engine.run_inline import run_inline  # noqa: PLC0415 - the one place that needs it

            run_inline(self.world.runtime, RunId("r1"))
        else:
            self.world.settle()

    # --- looking ----------------------------------------------------------------------------------------------------
    def steps(self) -> tuple[Step, ...]:
        """The run's rows in their order."""
        return self.world.store.list_steps(self.run.run_id)

    def step(self, name: str) -> Step:
        """One row."""
        found = self.world.store.get_step(self.run.run_id, StepName(name))
        assert found is not None, f"no step {name}"
        return found

    def begun(self) -> list[tuple[str, str | None]]:
        """Each step and the one before it."""
        return [(step.name, step.from_step) for step in self.steps() if not step.name.endswith(":compensate")]

    def value(self, name: str) -> Any:
        """What a step gave."""
        return self.world.runtime.codec.decode(self.step(name).result or "null")

    @property
    def status(self) -> str:
        """The run's."""
        return self.run.head().status.value

    @property
    def code(self) -> str | None:
        """The run's."""
        return self.run.head().code


@contextmanager
def staged(place: str) -> Iterator[Stage]:
    """A stage while the block runs."""
    app = Celery("graphs", broker="memory://", set_as_current=False)
    app.conf.update(pikkuflow_retry_delay=1)
    pikku = PikkuFlow(app)
    with in_memory(pikku) as world:
        yield Stage(place, pikku, world)
