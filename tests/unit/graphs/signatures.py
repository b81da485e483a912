"""The bench's translator, for what a graph hands over: a signature as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pikkuflow.domain.command import StepCall
from pikkuflow.replay.options import StepOptions
from tests.unit.engine.bench import Child, Task
from tests.unit.engine.parts import Translate

__all__ = ["Signatures"]


class Signatures(Translate):
    """``child`` is a workflow, everything else a task, undone by that one if there is any."""

    def __init__(self, undone_by: str | None = None) -> None:
        self._undone_by = undone_by

    def __call__(self, what: Any, name: str | None, options: StepOptions) -> StepCall:
        """Read what a graph, or a body, handed over."""
        if isinstance(what, Mapping):
            args = tuple(what["args"])
            task = Task(what["task"], args, what["kwargs"], undone_by=self._undone_by)
            what = Child("child", args) if what["task"] == "child" else task
        return super().__call__(what, name, options)
