"""A shop whose steps can be undone, over memory, and a diary of all that was done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pikkuflow.domain.run import Run
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus
from pikkuflow.domain.undo import Undo
from tests.unit.engine.bench import Bench, Task

__all__ = ["PLACES", "Shop", "order", "step"]

PLACES = ("here", "away", "mixed")


class Shop:
    """A bench with steps ``a``, ``b``, ``c`` that can be undone, and a diary of all that was done."""

    def __init__(self, place: str = "here", **settings: Any) -> None:
        self.bench = Bench(**settings)
        self.diary: list[str] = []
        self.undos: list[Undo] = []
        self.fails: dict[str, int] = {}
        """How often an undo fails before it works, by name."""
        for at, name in enumerate("abc"):
            leaves = "queue" if place == "away" or (place == "mixed" and at % 2) else None
            self.bench.task(self._step(name), name=name, leaves=leaves)
            self.bench.task(self._undo(name), name=f"un{name}")
        self.bench.task(self._boom, name="boom", leaves="queue" if place == "away" else None)

    def _step(self, name: str) -> Callable[..., Any]:
        def work(*args: Any) -> Any:
            self.diary.append(name)
            return f"{name}{list(args)}"

        return work

    def _undo(self, name: str) -> Callable[..., Any]:
        def work(undo: Undo, *args: Any) -> None:
            self.undos.append(undo)
            if self.fails.get(name, 0) > 0:
                self.fails[name] -= 1
                raise RuntimeError(f"cannot undo {name}")
            self.diary.append(f"un{name}{list(args)}")

        return work

    def _boom(self, *_: Any) -> None:
        self.diary.append("boom")
        raise ValueError("payment dead")

    def run(self, body: Callable[..., Any], child: Callable[..., Any] | None = None, **more: Any) -> None:
        """Start and work until nothing moves. ``child`` is what the body may start as ``Child("child")``."""
        self.begin(body, child, **more)
        self.settle()

    def begin(self, body: Callable[..., Any], child: Callable[..., Any] | None = None, **more: Any) -> None:
        """Start and work the messages, until it is over or waits for a time."""
        if child is not None:
            self.bench.workflow(child, name="child")
        self.bench.workflow(body, name="flow")
        self.bench.start("flow", **more)
        self.bench.work()

    def settle(self) -> None:
        """Messages, and retries as they come due."""
        self.bench.work()
        for _ in range(30):
            if self.bench.run().is_settled:
                return
            self.bench.pass_time(self.bench.due() or 30)

    @property
    def status(self) -> RunStatus:
        """The run's."""
        return self.bench.run().status

    @property
    def child(self) -> Run:
        """The run that the body started as ``Child("child")``."""
        run_id = self.bench.step("child").child_run_id
        assert run_id is not None
        return self.bench.run(run_id)

    def undo_rows(self) -> dict[str, StepStatus]:
        """The compensations."""
        return {step.name: step.status for step in self.bench.steps() if step.kind is StepKind.COMPENSATION}


def step(name: str, *args: Any) -> Task:
    """A step of the shop."""
    return Task(name, args, undone_by=f"un{name}")


def order(wf: Any) -> None:
    """Three steps, and a fourth that fails for good."""
    wf.do(step("a", 1))
    wf.do("second", step("b", 2))
    wf.do(step("c"))
    wf.do(Task("boom"), retries=0)
