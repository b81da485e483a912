"""A few tasks that say what they were called with, and canvases of them worked over memory in one of three places."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery import Celery

from pikkuflow import PikkuFlow, Run, current_step
from pikkuflow.domain.step import Step
from pikkuflow.testing import MemoryWorld, in_memory

__all__ = ["PLACES", "Stage", "staged"]

PLACES = ("here", "away", "inline")
"""In the passes, by step messages, and in the process that starts the run."""


class Stage:
    """Tasks ``a`` to ``e``, each of which gives its name and what it was called with; ``says`` has what one does instead."""

    a: Any
    b: Any
    c: Any
    d: Any
    e: Any

    def __init__(self, place: str, pikku: PikkuFlow, world: MemoryWorld) -> None:
        self.place = place
        self.pikku = pikku
        self.world = world
        self.calls: list[list[Any]] = []
        self.says: dict[str, Any] = {}
        for name in "abcde":
            setattr(self, name, self.task(name))
        self.told = self._errback()
        self.run: Run[Any] = Run("none", lambda: world.runtime)

    def task(self, name: str) -> Any:
        """A task of that name."""

        def work(*args: Any, **kwargs: Any) -> Any:
            self.calls.append([name, *args, *([kwargs] if kwargs else [])])
            said = self.says.get(current_step().step, self.says.get(name))
            if isinstance(said, Exception):
                raise said
            return [name, *args, *([kwargs] if kwargs else [])]

        made: Any = self.pikku.app.task(name=name, shared=False, max_retries=0)(work)
        return made

    def _errback(self) -> Any:
        """An errback of the old kind: Celery takes every task of more than one argument for the new one."""

        def told(task_id: str) -> None:
            self.calls.append(["told", task_id])

        made: Any = self.pikku.app.task(name="told", shared=False)(told)
        return made

    def play(self, canvas: Any, *args: Any, **kwargs: Any) -> Run[Any]:
        """Start a canvas and work it as far as it goes by itself."""
        durable = self.pikku.durable(canvas)
        if self.place == "inline":
            self.run = durable.run_inline(*args, run_id="r1", **kwargs)
        else:
            self.run = durable.start(*args, run_id="r1", **kwargs)
            self.world.settle()
        return self.run

    def steps(self) -> tuple[Step, ...]:
        """The run's rows in their order."""
        return self.world.store.list_steps(self.run.run_id)

    def ends(self) -> dict[str, str]:
        """How each step ended."""
        return {step.name: step.status.value for step in self.steps()}

    @property
    def status(self) -> str:
        """The run's."""
        return self.run.head().status.value


@contextmanager
def staged(place: str, *, retries: int = 0) -> Iterator[Stage]:
    """A stage while the block runs. Steps are tried once, or once more for each of ``retries``."""
    app = Celery("canvases", broker="memory://", set_as_current=False)
    app.conf.update(pikkuflow_retries=retries, pikkuflow_dispatch="queue" if place == "away" else "auto")
    pikku = PikkuFlow(app)
    with in_memory(pikku) as world:
        yield Stage(place, pikku, world)
