"""Commands out, results in: the whole conversation between a replay and the engine.

A body knows nothing of storage. Each durable call becomes a ``StepCall`` (made by the composition root from what the user wrote); the
replay gives it its physical name and place in order (``PlannedCall``), and asks for it with ``Reach``. The answer for each call is either
``Recorded`` (it has its final outcome) or ``Waiting`` (it is in flight; the pass parks when the body needs it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pikkuflow.domain.canvas import CanvasRun
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.gate import Terms
from pikkuflow.domain.ids import StepName
from pikkuflow.domain.status import Dispatch, StepKind
from pikkuflow.domain.step import Step

__all__ = ["PlannedCall", "Reach", "Recorded", "StepCall", "Waiting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCall:
    """One durable call as the body wrote it. Cheap to make: nothing is encoded, checked or routed until the call turns out to be new.

    ``name`` is the name given, or the task's. ``task`` is the Celery task of a TASK step, the workflow's name of a CHILD step, the reason
    or signal of a gate.
    ``function`` is the callable of a FUNCTION or STATE step (called without arguments). ``retries`` of None means the setting's.
    ``retry_delay``: None means the setting's, else ``"exponential"`` or a number of seconds as text. ``options`` are the signature's own
    (``queue``, ``priority``, ``time_limit``, ``countdown`` …). ``undo_task`` is the task that undoes it (a child run: its workflow), or
    None when it is not undone. ``detached``: a CHILD that nothing waits for. ``quick``: its outcome may be kept for a moment and written
    with others; None means as its workflow says. ``timeout_seconds``: how long one attempt may take,
    ``heartbeat_seconds``: and go without a heartbeat.
    """

    name: str
    kind: StepKind
    task: str | None = None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    function: Callable[[], Any] | None = None
    seconds: float | None = None
    """A sleep's length, a wait's time-out, an approval's expiry."""
    state_key: str | None = None
    terms: Terms | None = None
    """What an APPROVAL asks of its deciders."""
    retries: int | None = None
    retry_delay: str | None = None
    no_retry_on: tuple[type[BaseException], ...] = ()
    dispatch: Dispatch | None = None
    record_start: bool = False
    quick: bool | None = None
    undo_task: str | None = None
    detached: bool = False
    timeout_seconds: float | None = None
    heartbeat_seconds: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    group: str | None = None
    recovers: StepName | None = None
    """The step whose failure it takes over (a graph's recover node)."""
    canvas: Callable[[], CanvasRun] | None = None
    """What a CHILD that runs a canvas is made of; translated when the call is new. Raises ``WorkflowDefinitionError``."""

    @property
    def has_deadline(self) -> bool:
        """Someone other than its worker has to see that its time is over, so it is not worked in a pass."""
        return self.timeout_seconds is not None or self.heartbeat_seconds is not None

    @property
    def leaves_a_mark(self) -> bool:
        """Once it is reached, stopping the run goes through an unwind."""
        return self.undo_task is not None or self.kind is StepKind.MILESTONE or self.is_awaited_child

    @property
    def is_awaited_child(self) -> bool:
        """A child run that is stopped with its parent."""
        return self.kind is StepKind.CHILD and not self.detached


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """A call with its identity in this run: physical name, index among the run's durable calls, predecessor, and its row if it has one."""

    call: StepCall
    name: StepName
    seq: int
    from_step: StepName | None
    row: Step | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The body has reached these calls, which have no final outcome in the history.

    ``together`` is True for calls submitted together (a map, a gather, several submits): they are dispatched unless asked to be inline.
    ``joined`` is True when only their common end matters (a map or gather over all of them): they share a counter and wake the run once.
    ``chunk`` is how many members travel in one message.
    """

    calls: tuple[PlannedCall, ...]
    together: bool = False
    joined: bool = False
    chunk: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A final outcome: ``failure`` is None for a success, whose ``value`` is decoded from what was stored (so each pass sees the same).

    ``branch`` is the key that a graph's node chose.
    """

    value: Any = None
    failure: Failure | None = None
    attempts: int = 1
    branch: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """In flight: the pass parks when the body needs it. ``due_in_seconds`` is when it is worth looking again, if that is known."""

    due_in_seconds: float | None = None
