"""Running a user's tasks, and handing a run's outcome on to Celery."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from pikkuflow.domain.command import StepCall
from pikkuflow.domain.graph_step import NodeStep
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.run import Run
from pikkuflow.domain.stop import StepStanding

__all__ = ["AttemptEnd", "Attempted", "Deliverer", "Route", "StepRunner", "StepWork"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where a new step's message would go, and whether it must leave the pass.

    ``leaves`` is the reason to leave (``"queue"``: routed to a queue other than the workflow's own; ``"limit"``: a time limit of its own;
    ``"unknown"``: the task is known by name only), or None. ``options`` is JSON of routed message options.
    ``args`` and ``kwargs`` are the call's, checked (``typing``, ``pydantic=True``) and dumped.
    """

    leaves: str | None
    queue: str | None
    options: str
    lease_seconds: float
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    delay_seconds: float | None = None
    expires_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """One attempt about to be worked, in place or claimed."""

    run_id: RunId
    step: StepName
    workflow: str
    owner: str | None
    task: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    attempt: int
    attempts_allowed: int
    options: Mapping[str, Any]
    wire: str = "{}"
    from_step: StepName | None = None
    no_retry_on: tuple[type[BaseException], ...] = ()
    details: Any = None
    """What an attempt at this step said last at a heartbeat."""
    beat: Callable[[Any, bool], StepStanding] | None = None
    """Says how this attempt stands; given details (not None) are kept for the next one, and True says that it is a heartbeat."""
    node: NodeStep | None = None
    """The node of a graph that it works; what it chooses is read when it has succeeded."""


class AttemptEnd(StrEnum):
    """How an attempt ended, before retries are decided."""

    SUCCEEDED = "succeeded"
    RAISED = "raised"
    """It may be tried again while attempts are left."""
    GAVE_UP = "gave_up"
    """The task's own ``max_retries`` are spent, or ``no_retry_on`` matched: final whatever attempts remain."""
    IGNORED = "ignored"
    """``Ignore`` or ``Reject(requeue=False)``: final, ``StepIgnored``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    """What a task did. ``delay_seconds`` and ``override`` are what the task itself asked for by ``retry(countdown=…, args=…)``."""

    end: AttemptEnd
    value: Any = None
    error: BaseException | None = None
    delay_seconds: float | None = None
    override: Mapping[str, Any] | None = None
    said: Mapping[str, Any] | None = None
    """What a graph's node said of what follows (``NodeStep.said``); the engine's to fill in."""


class StepRunner(Protocol):
    """Runs users' tasks under a step request (recipes.md 1). Publishes nothing, stores nothing."""

    def route(self, call: StepCall, workflow: str) -> Route:
        """Check the arguments and route a new step.

        Raises ``TypeError`` or the task's own validation error when the arguments do not fit; ``TaskNotFound`` when the task is not
        registered here and its message could not be routed either.
        """
        ...

    def is_known(self, task: str) -> bool:
        """The task is registered on this worker."""
        ...

    def run(self, work: StepWork, commit: Callable[[Attempted], bool]) -> None:
        """Run the task; call ``commit`` once with what it did, between the body and the success/retry/failure hooks, as Celery does.

        ``commit`` answers whether the attempt was the last (no retry follows), which decides the hooks: ``on_failure`` once at the end,
        ``on_retry`` for every attempt that will be tried again. For a SUCCEEDED attempt False means that its result could not be
        stored: the step failed for good, and the hooks are a failure's. Hooks and signals after the commit cannot change the outcome.
        ``SystemExit`` and other BaseExceptions pass through without a commit. What ``commit`` raises passes through.
        Raises ``TaskNotFound`` before anything was run.
        """
        ...


class Deliverer(Protocol):
    """Hands a settled run's outcome on to Celery: result backend, canvas (design 7; at least once)."""

    def wants(self, run: Run) -> bool:
        """There is something to hand on: a ``handover``, or a result backend that keeps results."""
        ...

    def deliver(self, run: Run) -> None:
        """Hand it on; may be called again for the same run, since a sweep repeats what failed.

        Raises ``ConnectionError`` when the backend or the broker does not answer, so that other runs would fare no better; anything else
        that they raise is about this run.
        """
        ...
