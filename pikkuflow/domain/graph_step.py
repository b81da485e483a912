"""What a graph run keeps beside its rows' results: where it began, what a node chose, and which failure another took over (spec 3.5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pikkuflow.domain.ids import StepName

__all__ = ["BRANCH", "RECOVERS", "START_NODE", "STATE", "NodeStep", "RecoveringFrom", "trigger_of"]

BRANCH: Final = "branch"
"""Key of a succeeded row's ``override``: the branch that the node chose."""

STATE: Final = "state"
"""Key of a succeeded row's ``override``: what the node kept for later ones, by key."""

RECOVERS: Final = "recovers"
"""Key of a row's ``options``: the step whose failure this one recovers. On the row, so that an unwind and a worker ask no code."""

START_NODE: Final = "startNode"
"""Key of a run's wire: the entry that it was asked to begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveringFrom:
    """The failure that a recover node takes over: the node and its step, the error's message and its type."""

    node: str
    step: StepName
    error: str
    error_type: str


@dataclass(slots=True, kw_only=True)
class NodeStep:
    """One attempt at a node. ``branch`` is what it has chosen so far, ``state`` what it has kept; ``ask_state`` is what others kept."""

    node: str
    ask_recovering: Callable[[], RecoveringFrom | None]
    ask_state: Callable[[], Mapping[str, Any]]
    branch: str | None = None
    state: dict[str, Any] = field(default_factory=dict)

    @property
    def said(self) -> Mapping[str, Any]:
        """What is stored with its success; empty when there is nothing."""
        return ({} if self.branch is None else {BRANCH: self.branch}) | ({STATE: self.state} if self.state else {})


def trigger_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What a graph run was started with: its keyword arguments as a mapping, or its one positional argument.

    Raises ``TypeError`` for both, unless both are mappings, which are put together.
    """
    if not args:
        return dict(kwargs)
    trigger = args[0]
    if not kwargs:
        return trigger
    if not isinstance(trigger, Mapping):
        raise TypeError("A graph is started with one value or with keyword arguments.")
    return {**trigger, **kwargs}
