"""Processes of the simulated deployment: nodes (worker services), their children, and clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pikkuflow.domain.ids import ClaimId, Holder, PassId, RunId

__all__ = ["Node", "Process", "Watched"]


@dataclass(slots=True)
class Watched:
    """An attempt whose start is recorded at a time, unless it ends before."""

    at: float
    record: Callable[[], None]


@dataclass(slots=True, eq=False)
class Node:
    """A machine with one service on it. ``uuid`` is new for each start."""

    name: str
    uuid: str
    skew: float = 0.0
    frozen_until: float = 0.0
    is_stopping: bool = False
    is_gone: bool = False
    """A warm shutdown is over but for the duties in hand, of which there are ``duties``."""
    duties: int = 0
    children: list[Process] = field(default_factory=list)
    dead: list[Process] = field(default_factory=list)
    """Children that died and are not seen yet."""
    main: Process | None = None
    pids: int = 0


@dataclass(slots=True, eq=False)
class Process:
    """One process. ``patience``: how long its store waits for a database that is away; None is for ever."""

    node: Node
    pid: int
    name: str
    patience: float | None = None
    is_dead: bool = False
    handles: tuple[RunId, ...] = ()
    """The runs of the message in hand."""
    watched: dict[int, Watched] = field(default_factory=dict)
    passes: dict[RunId, PassId] = field(default_factory=dict)
    """The latest pass that this process opened over each run."""
    claims: dict[RunId, ClaimId] = field(default_factory=dict)

    @property
    def holder(self) -> Holder:
        """As it is written beside what the process holds."""
        return Holder(f"{self.node.uuid}:{self.pid}")

    def frozen_until(self) -> float:
        """When it goes on; in the past when it is not frozen."""
        return self.node.frozen_until
