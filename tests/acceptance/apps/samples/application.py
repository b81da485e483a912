"""The application of the samples, and what a sample is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from celery import Celery

from pikkuflow import PikkuFlow
from tests.acceptance.apps.configured import configure

app = configure(Celery("samples"))
pikku = PikkuFlow(app)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A workflow with an input, and how its run must end: its output, or its error's text."""

    name: str
    workflow: Any
    args: tuple[Any, ...] = ()
    output: Any = None
    error: str | None = None

    @property
    def status(self) -> str:
        """The status the run must reach."""
        return "completed" if self.error is None else "failed"


SAMPLES: list[Sample] = []


def sample(*args: Any, output: Any = None, error: str | None = None, name: str = "") -> Callable[[Any], Any]:
    """Add a workflow to the samples, with one input; may be used several times on one workflow."""

    def add(workflow: Any) -> Any:
        called = f"{workflow.name}{f'-{name}' if name else ''}"
        SAMPLES.append(Sample(name=called, workflow=workflow, args=args, output=output, error=error))
        return workflow

    return add
