"""What replay asks of the composition root: to read what a user handed to ``wf`` (signatures, tasks, functions, workflows)."""

from __future__ import annotations

from typing import Any, Protocol

from pikkuflow.domain.command import StepCall
from pikkuflow.domain.gate import Schema
from pikkuflow.replay.options import StepOptions

__all__ = ["Translate"]


class Translate(Protocol):
    """Makes plain records of what a user wrote. Called once for every durable call of every pass, so it has to be cheap."""

    def __call__(self, what: Any, name: str | None, options: StepOptions) -> StepCall:
        """The call that ``what`` stands for: a task's signature or task (TASK), a workflow's (CHILD), a callable (FUNCTION).

        ``name`` is the user's, checked; None means the task's full name or the function's. ``undo_task`` is None when
        ``options.compensate`` is. Raises ``WorkflowDefinitionError`` for what can be no step, and for options that a signature
        must not carry (``link``, ``link_error``, ``task_id``).
        """
        ...

    def schema(self, schema: Any) -> Schema:
        """What an approval's ``schema=`` stands for; a text names it, ``module:name``.

        Raises ``WorkflowDefinitionError`` for what validates nothing, or is not there.
        """
        ...

    def member(self, task: Any, item: Any) -> Any:
        """``task`` with ``item`` as its argument, as something that ``__call__`` takes: one member of a map."""
        ...
