"""The planner's words: what it is told of a graph run, and what it answers (spec 3.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pikkuflow.domain.failure import Failure
from pikkuflow.domain.graph import GraphNode
from pikkuflow.domain.ids import StepName

__all__ = ["Begin", "Ended", "Part", "Plan", "Seen", "Trouble"]


class Part(StrEnum):
    """What a step is of its node."""

    WHOLE = "whole"
    ITEM = "item"
    """One member of a ``for_each``."""
    LIST = "list"
    """The results of a ``for_each``, in the order of its items."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a step ended. ``read`` gives its result when somebody asks; ``branch`` is the key that it chose."""

    read: Callable[[], Any] = field(default=lambda: None, compare=False)
    failure: Failure | None = None
    attempts: int = 1
    branch: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A recorded step. ``begun`` and ``ended_no`` are its places in the order of the run; ``ended`` is None while it is in flight."""

    name: StepName
    after: StepName | None
    begun: int
    ended: Ended | None = None
    ended_no: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """A step to begin: ``part`` of the ``ordinal``-th begin of a node, after the step that led to it.

    ``group`` is the name of the whole for an ITEM; ``of`` is how many items there are. ``recovers``: it takes over ``after``'s failure.
    """

    name: StepName
    node: GraphNode
    ordinal: int
    after: StepName | None
    part: Part = Part.WHOLE
    group: StepName | None = None
    index: int = 0
    of: int = 0
    recovers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why the run fails: a step that failed for good and is not recovered, or something that only its progress could show."""

    node: str
    step: StepName
    failure: Failure | None = None
    attempts: int = 1
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is next: ``begin`` these, or the run fails by ``trouble``; with neither, and nothing in flight, it is complete."""

    begin: tuple[Begin, ...] = ()
    trouble: Trouble | None = None
