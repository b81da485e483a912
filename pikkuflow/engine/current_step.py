"""The step that this thread is working: what ``pikkuflow.current_step()`` answers inside a task (design 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from pikkuflow.domain.graph_step import NodeStep, RecoveringFrom
from pikkuflow.domain.ids import RunId, StepName, invocation_id
from pikkuflow.domain.stop import StepStanding
from pikkuflow.errors import PikkuFlowError, RunCancelled, StepSuperseded
from pikkuflow.ports import StepWork

__all__ = ["CurrentStep", "current_step", "step_context"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentStep:
    """Which attempt at which step is worked here.

    ``attempt`` counts from 1. ``invocation_id`` is the idempotency key: the same for every attempt at this step of this run (spec 1.2).
    ``owner`` is who started the run, or None. ``details`` is what an attempt at this step last said to ``heartbeat``, or None.
    """

    run_id: RunId
    step: StepName
    attempt: int
    invocation_id: str
    workflow: str
    owner: str | None
    details: Any = None
    _node: NodeStep | None = field(default=None, repr=False, compare=False)
    _beat: Callable[[Any, bool], StepStanding] | None = field(default=None, repr=False, compare=False)

    @property
    def node(self) -> str | None:
        """The node of the graph that this step works, without its number and item; None in a workflow function."""
        return None if self._node is None else self._node.node

    @property
    def recovering_from(self) -> RecoveringFrom | None:
        """The failure that this node of a graph takes over as its ``recover``; None when it was reached otherwise.

        One read of the database. Raises ``StoreUnavailable``.
        """
        return None if self._node is None else self._node.ask_recovering()

    def branch(self, key: str) -> None:
        """Choose which branch of ``next`` follows this node of a graph. It counts when the task succeeds; the last choice does.

        Raises:
            PikkuFlowError: the step is no node of a graph.
            TypeError: the key is no text.
        """
        self._of_graph().branch = _text("the key of a branch", key)

    def set_state(self, key: str, value: Any) -> None:
        """Keep a JSON value for later nodes of this graph run. It is stored with the outcome of this step, when it succeeds.

        Raises as ``branch`` does. A value that cannot be stored fails the step.
        """
        self._of_graph().state[_text("the key of a state value", key)] = value

    def get_state(self, key: str, default: Any = None) -> Any:
        """What a node of this graph run has kept under the key, this one included; else ``default``. Of several, the last that ended.

        One read of the run's steps. Raises ``PikkuFlowError`` as ``branch`` does, and ``StoreUnavailable``.
        """
        node = self._of_graph()
        return node.state[key] if key in node.state else node.ask_state().get(key, default)

    def _of_graph(self) -> NodeStep:
        if self._node is None:
            raise PikkuFlowError(
                f"Step {self.step!r} is no node of a graph.",
                hint="In a workflow function, return a value: the function has if, and wf.state.",
            )
        return self._node

    def is_cancelled(self) -> bool:
        """Whether this attempt works in vain: its run was stopped, or another attempt took its place. One read of the database.

        What a stopped run's step still does is undone with the rest. Raises ``StoreUnavailable``.
        """
        return self._standing() is not StepStanding.WORKING

    def raise_if_cancelled(self) -> None:
        """Leave the task when it works in vain.

        Raises:
            RunCancelled: the run was stopped.
            StepSuperseded: another attempt took this one's place.
            StoreUnavailable: the database stayed away.
        """
        self._raise(self._standing())

    def heartbeat(self, details: Any = None) -> None:
        """Say that the work goes on: the step's ``heartbeat_timeout``, if it has one, begins again.

        ``details`` (a JSON value) are what the next attempt finds in ``current_step().details``.

        Raises:
            RunCancelled: the run was stopped: the work is wanted no more.
            StepSuperseded: another attempt took this one's place.
            PayloadError: the details cannot be stored.
            StoreUnavailable: the database stayed away.
        """
        self._raise(self._standing(details, lives=True))

    def _standing(self, details: Any = None, *, lives: bool = False) -> StepStanding:
        return StepStanding.WORKING if self._beat is None else self._beat(details, lives)

    def _raise(self, standing: StepStanding) -> None:
        if standing is StepStanding.STOPPED:
            raise RunCancelled(f"Run {self.run_id!r} was stopped while step {self.step!r} worked.", self.run_id)
        if standing is StepStanding.OUTDATED:
            raise StepSuperseded(
                f"Attempt {self.attempt} of step {self.step!r} was outdated by another.", self.step, self.attempt
            )


def _text(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} is text, not {type(value).__name__}")
    return value


_STEP: ContextVar[CurrentStep | None] = ContextVar("pikkuflow_current_step", default=None)


def current_step() -> CurrentStep:
    """The step that is worked here.

    Raises ``PikkuFlowError`` outside a step. A thread that a task starts for itself is outside, unless it runs in a copy of the task's
    context (``contextvars.copy_context``).
    """
    step = _STEP.get()
    if step is None:
        raise PikkuFlowError(
            "current_step() was called outside a step.",
            hint="It answers inside a task or a function that a workflow runs with wf.do, wf.submit or wf.map.",
        )
    return step


@contextmanager
def step_context(work: StepWork) -> Iterator[CurrentStep]:
    """Let ``current_step()`` answer with this attempt while the block runs; what was current before comes back after it."""
    step = CurrentStep(
        run_id=work.run_id,
        step=work.step,
        attempt=work.attempt,
        invocation_id=invocation_id(work.run_id, work.step),
        workflow=work.workflow,
        owner=work.owner,
        details=work.details,
        _node=work.node,
        _beat=work.beat,
    )
    token = _STEP.set(step)
    try:
        yield step
    finally:
        _STEP.reset(token)
