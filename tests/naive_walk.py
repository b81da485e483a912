"""A graph run worked out the slow way: from everything that has happened, again at every question, by the rules of docs/graphs.md.

It shares nothing with the planner but the graph as it was read. Nothing is kept but what happened, nothing is quick, and every rule is a
sentence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from pikkuflow.domain.graph import Graph, GraphNode
from pikkuflow.domain.graph_moves import Ended
from pikkuflow.domain.graph_names import step_name
from pikkuflow.domain.status import StepKind

__all__ = ["ABSENT", "Found", "NaiveWalk"]

ABSENT = "<absent>"


@dataclass(frozen=True)
class Way:
    """How a node is come to: in a round; by a back edge or a recovery, from a source of its own."""

    node: str
    round: int
    source: str | None = None
    recovers: bool = False


@dataclass
class Visit:
    """One begin of a node."""

    name: str
    way: Way
    ordinal: int
    after: str | None
    begun: int
    items: int | None = None
    members: dict[int, Ended | None] = field(default_factory=dict)
    has_list: bool = False
    ended: Ended | None = None
    ended_at: int = 0

    @property
    def node(self) -> str:
        return self.way.node


@dataclass(frozen=True)
class Found:
    """A step to begin, as the planner should say it."""

    name: str
    after: str | None
    recovers: bool
    way: Way
    ordinal: int
    index: int | None = None
    is_list: bool = False
    of: int | None = None
    sources: frozenset[str | None] = field(default=frozenset(), compare=False)
    """Whatever has led to it by now."""
    planned: int = field(default=0, compare=False)
    """The time at which that was."""


class NaiveWalk:
    """One run."""

    def __init__(self, graph: Graph, trigger: Any) -> None:
        self.graph = graph
        self.trigger = trigger
        self.visits: list[Visit] = []
        self.clock = 0
        self.open: dict[str, Found] = {}
        self.back = set(self._back_edges())

    # --- the graph's form -------------------------------------------------------------------------------------------
    def _targets(self, node: str) -> list[str]:
        """Branches come in the order of their keys: how a mapping is written decides nothing."""
        read = self.graph.nodes[node]
        edges = sorted(read.next, key=lambda edge: edge.key or "")
        return list(dict.fromkeys([*(edge.target for edge in edges), *read.recover]))

    def _back_edges(self) -> Iterable[tuple[str, str]]:
        """Going down from the entries, in the order of the definition: an edge to a node that one is still below."""
        done: set[str] = set()

        def down(node: str, above: tuple[str, ...]) -> Iterable[tuple[str, str]]:
            done.add(node)
            for target in self._targets(node):
                if target in (*above, node):
                    yield node, target
                elif target not in done:
                    yield from down(target, (*above, node))

        for start in [*self.graph.entry, *self.graph.nodes]:
            if start not in done:
                yield from down(start, ())

    def _reaches(self, source: str, target: str, *, forward: bool) -> bool:
        seen: set[str] = set()
        left = [source]
        while left:
            node = left.pop()
            for following in self._targets(node):
                if forward and (node, following) in self.back:
                    continue
                if following == target:
                    return True
                if following not in seen:
                    seen.add(following)
                    left.append(following)
        return False

    def _is_ring(self, one: str, other: str) -> bool:
        both = self._reaches(one, other, forward=False) and self._reaches(other, one, forward=False)
        return one == other or both

    # --- what happens -----------------------------------------------------------------------------------------------
    def begin(self, found: Found) -> None:
        """A step that ``plan`` found is begun."""
        self.clock += 1
        self.open[found.name] = found
        visit = self._visit(found.way.node, found.ordinal)
        if visit is None:
            name = self._name(found.way.node, found.ordinal)
            visit = Visit(name, found.way, found.ordinal, found.after, self.clock)
            self.visits.append(visit)
        if found.index is not None:
            visit.items = found.of
            visit.members[found.index] = None
        visit.has_list = visit.has_list or found.is_list

    def end(self, name: str, ended: Ended) -> None:
        """A step has ended."""
        self.clock += 1
        found = self.open.pop(name)
        visit = self._visit(found.way.node, found.ordinal)
        assert visit is not None
        if found.index is not None:
            visit.members[found.index] = ended
        else:
            visit.ended, visit.ended_at = ended, self.clock

    def list_of(self, found: Found) -> Ended:
        """How the list of a ``for_each`` ends: by its first failed item, or with the results in their order."""
        visit = self._visit(found.way.node, found.ordinal)
        members = [visit.members[index] for index in sorted(visit.members)] if visit is not None else []
        for one in members:
            assert one is not None
            if one.failure is not None:
                return one
        results = [one.read() for one in members if one is not None]
        return Ended(read=lambda: results)

    def is_open(self, found: Found) -> bool:
        """What could be begun once still can: nobody has gone its way, but for items of the same list."""
        visit = self._visit(found.way.node, found.ordinal)
        return not self._is_gone(found.way) if visit is None else visit.way == found.way

    def began(self, found: Found) -> Visit:
        """The begin of a node that a step which is begun belongs to."""
        visit = self._visit(found.way.node, found.ordinal)
        assert visit is not None
        return visit

    def _visit(self, node: str, ordinal: int) -> Visit | None:
        return next((one for one in self.visits if (one.node, one.ordinal) == (node, ordinal)), None)

    def _name(self, node: str, ordinal: int) -> str:
        read = self.graph.nodes[node]
        if read.kind is not StepKind.TASK:
            return step_name(read, ordinal)
        return f"{node}#{ordinal}" if ordinal else node

    # --- what follows -----------------------------------------------------------------------------------------------
    def plan(self) -> list[Found] | str:
        """What to begin, in order; or the step that the run fails by."""
        ended = self._ended()
        for visit in ended:
            if self._fails(visit):
                return visit.name
        return self.following()

    def _ended(self) -> list[Visit]:
        return sorted((one for one in self.visits if one.ended is not None), key=lambda one: one.ended_at)

    def following(self) -> list[Found] | str:
        """As ``plan``, whatever has failed."""
        ended = self._ended()
        found: list[Found] = []
        for visit in self.visits:
            found += self._next_items(visit)
        for way, sources in self._ready(self._ways(ended)):
            begun = self._first(way, sources, found)
            if isinstance(begun, str):
                return begun
            found += begun
        return found

    def _fails(self, visit: Visit) -> bool:
        node, ended = self.graph.nodes[visit.node], visit.ended
        assert ended is not None
        if ended.failure is not None:
            return not node.ignores and not node.recover
        return bool(node.keys) and ended.branch is not None and ended.branch not in node.keys

    def _followed(self, visit: Visit) -> list[tuple[str, bool]]:
        node, ended = self.graph.nodes[visit.node], visit.ended
        assert ended is not None
        if ended.failure is not None and not node.ignores:
            return [(target, True) for target in node.recover]
        key = ended.branch if ended.failure is None else None
        return [(edge.target, False) for edge in node.next if edge.key is None or edge.key == key]

    def _ways(self, ended: list[Visit]) -> dict[Way, list[Visit | None]]:
        """Every way that is open: gone by nobody yet."""
        ways: dict[Way, list[Visit | None]] = {Way(entry, 0): [None] for entry in self.graph.entry}
        for visit in ended:
            for target, recovers in self._followed(visit):
                sources = ways.setdefault(self._way(visit, target, recovers=recovers), [])
                if visit not in sources:
                    sources.append(visit)
        return {way: sources for way, sources in ways.items() if not self._is_gone(way)}

    def _way(self, visit: Visit, target: str, *, recovers: bool) -> Way:
        """Going back begins another round; each turn and each failure is a way of its own."""
        is_back = (visit.node, target) in self.back
        round_ = visit.way.round + int(is_back) if self._is_ring(visit.node, target) else 0
        return Way(target, round_, visit.name if is_back or recovers else None, recovers)

    def _is_gone(self, way: Way) -> bool:
        if way.source is not None:
            return any(visit.way == way for visit in self.visits)
        return any(
            (visit.node, visit.way.round, visit.way.recovers) == (way.node, way.round, False) for visit in self.visits
        )

    def _ready(self, ways: dict[Way, list[Visit | None]]) -> list[tuple[Way, list[Visit | None]]]:
        at_work = {visit.node for visit in self.visits if visit.ended is None}
        coming = at_work | {way.node for way in ways}
        order = list(self.graph.nodes)

        def place(way: Way) -> tuple[int, int, int]:
            begun = next((visit.begun for visit in self.visits if visit.name == way.source), 0)
            return order.index(way.node), way.round, begun

        listed = sorted(ways, key=place)
        ready = [way for way in listed if self._has_all(way, coming)]
        if not ready and not at_work:
            ready = [way for way in listed if self._has_all(way, set())]
        return [(way, ways[way]) for way in ready]

    def _has_all(self, way: Way, coming: set[str]) -> bool:
        return all(self._has(read, way, coming) for read in _read_by(self.graph.nodes[way.node]))

    def _has(self, read: str, way: Way, coming: set[str]) -> bool:
        given = [visit for visit in self.visits if visit.node == read and self._gave(visit)]
        if not self._is_ring(read, way.node):
            return bool(given)
        if read == way.node or not self._reaches(read, way.node, forward=True):
            # It comes after the reader in a round: what is read is of the round before, or nothing.
            return True
        own = [visit for visit in self.visits if visit.node == read and visit.way.round == way.round]
        if own:
            return any(self._gave(visit) for visit in own)
        for node in coming - {way.node}:
            if node == read or self._reaches(node, read, forward=True):
                return False
        return bool(given)

    def _gave(self, visit: Visit) -> bool:
        return visit.ended is not None and (visit.ended.failure is None or self.graph.nodes[visit.node].ignores)

    def _first(self, way: Way, sources: list[Visit | None], found: list[Found]) -> list[Found] | str:
        node = self.graph.nodes[way.node]
        before = {visit.ordinal for visit in self.visits if visit.node == node.id}
        before |= {one.ordinal for one in found if one.way.node == node.id}
        ordinal = max(before, default=-1) + 1
        name = self._name(node.id, ordinal)
        if ordinal >= self.graph.max_visits:
            return name
        order = list(self.graph.nodes)
        known = [source for source in sources if source is not None]
        first = min(known, key=lambda one: (order.index(one.node), one.ordinal)) if None not in sources else None
        after = None if first is None else first.name
        led = frozenset(None if source is None else source.name for source in sources)
        begin = Found(name, after, way.recovers, way, ordinal, sources=led, planned=self.clock)
        if node.for_each is None:
            return [begin]
        items = self.read(node.for_each.fields(), node, way, None)
        if not isinstance(items, list):
            return name
        if not items:
            return [Found(name, after, way.recovers, way, ordinal, is_list=True, sources=led)]
        count = 1 if node.is_sequential else len(items)
        return [self._item(begin, index, len(items)) for index in range(count)]

    @staticmethod
    def _item(begin: Found, index: int, of: int) -> Found:
        name = f"{begin.name}[{index}]"
        return replace(begin, name=name, index=index, of=of, is_list=False)

    def _next_items(self, visit: Visit) -> list[Found]:
        """A list is closed when all of its items have ended; one after the other, the first failure ends it."""
        node = self.graph.nodes[visit.node]
        if node.for_each is None or visit.has_list:
            return []
        led = frozenset({visit.after})
        whole = Found(visit.name, visit.after, visit.way.recovers, visit.way, visit.ordinal, is_list=True, sources=led)
        count, of = len(visit.members), visit.items or 0
        if not node.is_sequential and count < of:
            # All of them are begun at once; whoever begins them may not have come to the last.
            return [self._item(whole, index, of) for index in range(of) if index not in visit.members]
        if any(one is None for one in visit.members.values()):
            return []
        is_broken = any(one is not None and one.failure is not None for one in visit.members.values())
        if node.is_sequential and not is_broken and count < of:
            return [self._item(whole, count, of)]
        return [whole]

    # --- what is taken ----------------------------------------------------------------------------------------------
    def taken(self, found: Found) -> list[Any]:
        """What a step gets, once it is begun: an input is a list of references here."""
        node, visit = self.graph.nodes[found.way.node], self.began(found)
        return [self.given(one, node, found.way, visit.begun) for one in node.input or ()]

    def given(self, said: dict[str, Any], reader: GraphNode, way: Way, before: int) -> Any:
        """As ``read``: the place of a positional argument is kept when there is nothing for it."""
        found = self.read(said, reader, way, before)
        return None if found is ABSENT else found

    def read(self, said: dict[str, Any], reader: GraphNode, way: Way, before: int | None) -> Any:
        """The newest that was given before the reader began; within a cycle, of the reader's round or one before it, if there is one."""
        if said["$ref"] == "trigger":
            return _at(self.trigger, said.get("path"))
        given = [visit for visit in self.visits if visit.node == said["$ref"] and self._gave(visit)]
        given = [visit for visit in given if before is None or visit.ended_at < before]
        given.sort(key=lambda visit: visit.ended_at)
        node = said["$ref"]
        if node != reader.id and self._is_ring(node, reader.id) and self._reaches(node, reader.id, forward=True):
            given = [visit for visit in given if visit.way.round <= way.round] or given
        if not given:
            return ABSENT
        ended = given[-1].ended
        return None if ended is None or ended.failure is not None else ended.read()


def _at(value: Any, path: str | None) -> Any:
    """By indexes of lists: no other paths are made up."""
    for index in [] if path is None else path.split("."):
        value = value[int(index)]
    return value


def _read_by(node: GraphNode) -> set[str]:
    read = {one["$ref"] for one in node.input or () if isinstance(one, dict) and "$ref" in one}
    if node.for_each is not None:
        read.add(node.for_each.node)
    return read - {"trigger", "$item"}
