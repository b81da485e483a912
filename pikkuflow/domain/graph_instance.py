"""What the planner keeps of a run: begins of nodes, where edges have led, and what the run fails by."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pikkuflow.domain.graph import GraphNode
from pikkuflow.domain.graph_moves import Ended, Trouble
from pikkuflow.domain.ids import StepName

__all__ = ["Arrival", "InTrouble", "Instance", "failure_told", "recovers"]


@dataclass(slots=True, kw_only=True)
class Instance:
    """One begin of a node."""

    name: StepName
    node: GraphNode
    ordinal: int
    after: StepName | None
    round: int
    begun: int
    recovers: bool = False
    ended: Ended | None = None
    ended_no: int = 0
    items: list[Any] | None = None
    members: dict[int, Ended | None] = field(default_factory=dict)
    at_work: int = 0
    """Members that have not ended."""
    is_broken: bool = False
    """A member failed."""
    lists: bool = False
    """Its list was begun."""

    @property
    def has_output(self) -> bool:
        """Others may read what it gave."""
        return self.ended is not None and (self.ended.failure is None or self.node.ignores)

    def value(self) -> Any:
        """What it gave; None when it failed."""
        return None if self.ended is None or self.ended.failure is not None else self.ended.read()


@dataclass(frozen=True, slots=True)
class Arrival:
    """Where edges have led: to a node in a round; to it once more, by a back edge from ``source`` or to recover its failure."""

    target: str
    round: int
    source: StepName | None = None
    recovers: bool = False


class InTrouble(Exception):
    """Planning came upon what the run fails by."""

    def __init__(self, node: GraphNode, step: StepName, why: str, *, is_whole: bool = False) -> None:
        super().__init__(why)
        self.trouble = Trouble(node=node.id, step=step, why=why if is_whole else f"Node {node.id!r} {why}.")


def recovers(source: Instance | None, ended: Ended | None, node: GraphNode) -> bool:
    """``node`` takes over the failure of ``source``."""
    return source is not None and ended is not None and ended.failure is not None and node.id in source.node.recover


def failure_told(source: Instance | None, step_id: str) -> dict[str, Any] | None:
    """What ``$failure`` gives a node that was begun for ``source``'s failure; None when nothing failed."""
    failure = None if source is None or source.ended is None else source.ended.failure
    if source is None or failure is None:
        return None
    where = {"id": step_id, "step": source.name, "node": source.node.id, "task": source.node.what}
    return {**where, "type": failure.type, "error": failure.message, "traceback": failure.traceback}
