"""Walking a graph with made-up outcomes, in any order, and looking at what was begun."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pikkuflow.domain.failure import Failure
from pikkuflow.domain.graph import Graph, Node
from pikkuflow.domain.graph_moves import Begin, Ended, Part, Plan, Seen
from pikkuflow.domain.graph_plan import Walk
from pikkuflow.domain.graph_read import graph_of
from pikkuflow.domain.ids import StepName

__all__ = ["Strider", "failed", "gave", "graph"]

Outcomes = Callable[[Begin], Ended]


def gave(value: Any = None, branch: str | None = None) -> Ended:
    """A success."""
    return Ended(read=lambda: value, branch=branch)


def failed(text: str = "boom") -> Ended:
    """A failure for good."""
    return Ended(failure=Failure(type="ValueError", message=text), attempts=6)


def graph(entry: str | list[str] = "a", **nodes: Any) -> Graph:
    """A graph whose nodes are given by what differs: a text is a task's ``next``."""
    made: dict[str, Node | Mapping[str, Any]] = {}
    for node_id, said in nodes.items():
        fields = said if isinstance(said, dict) else {"next": said}
        is_own = fields.keys() & {"task", "sleep", "suspend", "approval", "wait_for", "milestone"}
        made[node_id] = fields if is_own else {"task": "t", **fields}
    return graph_of("g", nodes=made, entry=entry)


@dataclass
class Strider:
    """Walks a graph; ``outcomes`` says how each step ends, ``choose`` which of the open ones ends next."""

    graph: Graph
    outcomes: Outcomes | Mapping[str, Ended] = field(default_factory=dict)
    trigger: Any = None
    choose: Callable[[int], int] = lambda _count: 0
    reloads: bool = False
    """Plan each time from what is recorded, as a fresh pass does, and with the walk that went on: both must say the same."""

    def __post_init__(self) -> None:
        self.walk = Walk(self.graph, self.trigger)
        self.begun: list[tuple[str, str | None]] = []
        self._seen: dict[StepName, Seen] = {}
        self._no = 0

    def plan(self) -> Plan:
        """What is next."""
        plan = self.walk.plan()
        if self.reloads:
            fresh = Walk(self.graph, self.trigger, reversed(self._seen.values()))
            assert fresh.plan() == plan
            assert fresh.open.keys() == self.walk.open.keys()
        return plan

    def begin(self) -> Plan:
        """Begin what is next."""
        plan = self.plan()
        for begin in plan.begin:
            self._no += 1
            self._seen[begin.name] = Seen(name=begin.name, after=begin.after, begun=self._no)
            self.walk.begin(begin)
            self.begun.append((begin.name, begin.after))
        return plan

    def end(self, name: str, ended: Ended | None = None) -> None:
        """One step ends."""
        step = StepName(name)
        ended = ended or self._outcome(self.walk.open[step])
        self._no += 1
        begun = self._seen[step]
        self._seen[step] = Seen(name=step, after=begun.after, begun=begun.begun, ended=ended, ended_no=self._no)
        self.walk.end(step, ended)

    def go(self, most: int = 10_000) -> Plan:
        """Begin and end until nothing is left, or the run has failed."""
        for _ in range(most):
            plan = self.begin()
            if plan.trouble is not None or not self.walk.open:
                return plan
            names = list(self.walk.open)
            self.end(names[self.choose(len(names))])
        raise AssertionError("it goes on for ever")

    @property
    def names(self) -> list[str]:
        """The steps that were begun, in order."""
        return [name for name, _ in self.begun]

    def _outcome(self, begin: Begin) -> Ended:
        if begin.part is Part.LIST:
            members = self.walk.members(begin)
            failure = next((ended for _, ended in members if ended.failure is not None), None)
            return failure or gave([ended.read() for _, ended in members])
        if callable(self.outcomes):
            return self.outcomes(begin)
        return self.outcomes.get(begin.name, gave(f"of {begin.name}"))
