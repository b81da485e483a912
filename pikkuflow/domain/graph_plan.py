"""What a graph run does next: one pure planner for runs in place and dispatched ones (spec 3.3 to 3.6).

A ``Walk`` is told what is recorded: which steps were begun, after which other, and how they ended. It answers what to begin. The same
records give the same answer in any order, so a pass that dies is followed by one that plans the same; and a pass goes on with one walk,
for the price of what is new.

The rules, in short. A node that has ended is followed by those that its ``next`` names, or its ``recover`` when it failed for good. A node
is begun once however many edges lead to it; going round a ring begins it again, once for each time that a back edge is followed. A node
waits for what it refers to, for as long as that may still come.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from pikkuflow.domain.graph import Edge, Graph, GraphNode
from pikkuflow.domain.graph_input import ABSENT, FAILURE, ITEM, TRIGGER, Ref, resolved
from pikkuflow.domain.graph_instance import Arrival, Instance, InTrouble, failure_told, recovers
from pikkuflow.domain.graph_moves import Begin, Ended, Part, Plan, Seen, Trouble
from pikkuflow.domain.graph_names import Ambiguous, StepNames, Unknown, meant, step_name
from pikkuflow.domain.graph_read import not_a_list, reads_of
from pikkuflow.domain.graph_shape import shape_of
from pikkuflow.domain.ids import RunId, StepName, invocation_id

__all__ = ["Walk"]


_NOBODY: Final = RunId("")


class Walk:
    """The planner of one run.

    Parameters
    ----------
    graph:
        What to walk.
    trigger:
        What the run was started with.
    seen:
        What is recorded.
    start:
        The entry to begin with; None begins with all of them.
    run_id:
        The run, for the ids of its steps.
    """

    def __init__(
        self,
        graph: Graph,
        trigger: Any,
        seen: Iterable[Seen] = (),
        *,
        start: str | None = None,
        run_id: RunId = _NOBODY,
    ) -> None:
        self._run_id = run_id
        self.graph = graph
        self.trigger = trigger
        self._shape = shape_of(graph)
        self._names = StepNames(graph.nodes)
        self._instances: dict[StepName, Instance] = {}
        self._count: dict[str, int] = dict.fromkeys(graph.nodes, 0)
        self._rounds: dict[tuple[str, int], list[Instance]] = {}
        self._given: dict[str, list[Instance]] = {node_id: [] for node_id in graph.nodes}
        self._arrived: dict[Arrival, list[StepName | None]] = {}
        self._followed: set[Arrival] = set()
        self._fans: dict[StepName, Instance] = {}
        self._troubles: list[Trouble] = []
        self._late: list[Trouble] = []
        self._reads: Final = {
            node.id: tuple(
                dict.fromkeys(one.node for one in reads_of(node) if one.node not in {TRIGGER, ITEM, FAILURE})
            )
            for node in graph.nodes.values()
        }
        self.open: dict[StepName, Begin] = {}
        """What is begun and has not ended."""
        self._no = 0
        for entry in graph.entry if start is None else (start,):
            self._arrive(None, entry)
        self._load(tuple(seen))

    # --- what is known ------------------------------------------------------------------------------------------------
    def begin(self, begin: Begin) -> None:
        """The step is begun."""
        self._no += 1
        self._begin(begin, self._no)

    def end(self, name: StepName, ended: Ended) -> None:
        """The step has ended."""
        self._no += 1
        self._end(name, ended, self._no)

    def _load(self, seen: tuple[Seen, ...]) -> None:
        ended = {one.name: one.ended for one in seen}
        for one in sorted(seen, key=lambda one: one.begun):
            before = None if one.after is None else ended.get(one.after)
            self._begin(self._begun(one, before), one.begun)
        for one in sorted(seen, key=lambda one: (one.ended_no, one.begun)):
            if one.ended is not None:
                self._end(one.name, one.ended, one.ended_no)
        self._no = max((max(one.begun, one.ended_no) for one in seen), default=0)

    def _begun(self, seen: Seen, before: Ended | None) -> Begin:
        step = self._names.read(seen.name)
        if step is None:
            raise ValueError(f"step {seen.name!r} is none of graph {self.graph.name!r}")
        node = self.graph.nodes[step.node]
        whole = step_name(node, step.ordinal)
        source = None if seen.after is None else self._instances.get(seen.after)
        takes_over = recovers(source, before, node)
        begin = Begin(name=seen.name, node=node, ordinal=step.ordinal, after=seen.after, recovers=takes_over)
        if step.index is not None:
            return replace(begin, part=Part.ITEM, group=whole, index=step.index)
        return begin if node.for_each is None else replace(begin, part=Part.LIST)

    def _begin(self, begin: Begin, no: int) -> None:
        self.open[begin.name] = begin
        whole = begin.group or begin.name
        instance = self._instances.get(whole)
        if instance is None:
            instance = self._new_instance(begin, whole, no)
        instance.begun = min(instance.begun, no)
        if begin.part is Part.ITEM:
            instance.members[begin.index] = None
            instance.at_work += 1
            self._fans[whole] = instance
        if begin.part is Part.LIST:
            instance.lists = True

    def _new_instance(self, begin: Begin, whole: StepName, no: int) -> Instance:
        node = begin.node.id
        source = None if begin.after is None else self._instances.get(begin.after)
        arrival = self._arrival(source, node, recovers=begin.recovers)
        instance = self._instances[whole] = Instance(
            name=whole,
            node=begin.node,
            ordinal=begin.ordinal,
            after=begin.after,
            round=arrival.round,
            begun=no,
            recovers=begin.recovers,
        )
        self._count[node] = max(self._count[node], begin.ordinal + 1)
        self._rounds.setdefault((node, arrival.round), []).append(instance)
        for followed in {arrival} if begin.recovers else {arrival, Arrival(node, arrival.round)}:
            self._followed.add(followed)
            self._arrived.pop(followed, None)
        return instance

    def _end(self, name: StepName, ended: Ended, no: int) -> None:
        begin = self.open.pop(name)
        instance = self._instances[begin.group or name]
        if begin.part is Part.ITEM:
            instance.members[begin.index] = ended
            instance.at_work -= 1
            instance.is_broken = instance.is_broken or ended.failure is not None
            return
        self._fans.pop(name, None)
        instance.ended, instance.ended_no = ended, no
        if instance.has_output:
            self._given[begin.node.id].append(instance)
        for target in self._following(instance, ended):
            self._arrive(instance, target, recovers=recovers(instance, ended, self.graph.nodes[target]))

    def _following(self, instance: Instance, ended: Ended) -> Iterable[str]:
        node = instance.node
        if ended.failure is None:
            return self._chosen(instance, ended.branch)
        if node.ignores:
            return self._chosen(instance, None)
        if not node.recover and not node.may_fail:
            trouble = Trouble(node=node.id, step=instance.name, failure=ended.failure, attempts=ended.attempts)
            (self._late if self.graph.fail_late else self._troubles).append(trouble)
        return (*node.recover, *node.on_failure)

    def _chosen(self, instance: Instance, branch: str | None) -> Iterable[str]:
        node = instance.node
        key = None
        if branch is not None and node.keys:
            try:
                key = meant(branch, node.keys)
            except (Unknown, Ambiguous) as error:
                why = f"chose a branch: {error} among its branches {', '.join(map(repr, node.keys))}"
                self._troubles.append(Trouble(node=node.id, step=instance.name, why=why))
                return ()
        return dict.fromkeys(edge.target for edge in node.next if _is_followed(edge, key))

    def _arrive(self, source: Instance | None, target: str, *, recovers: bool = False) -> None:
        arrival = self._arrival(source, target, recovers=recovers)
        if arrival not in self._followed:
            self._arrived.setdefault(arrival, []).append(None if source is None else source.name)

    def _arrival(self, source: Instance | None, target: str, *, recovers: bool = False) -> Arrival:
        if source is None:
            return Arrival(target, 0)
        is_back = self._shape.is_back(source.node.id, target)
        round_ = source.round + is_back if self._shape.is_one_ring(source.node.id, target) else 0
        # Each failure has its own recovery, as each turn of a ring begins its nodes again.
        return Arrival(target, round_, source.name if is_back or recovers else None, recovers)

    # --- what is next -------------------------------------------------------------------------------------------------
    def plan(self) -> Plan:
        """What to begin now, in the order of the definition."""
        if self._troubles:
            return Plan(trouble=self._troubles[0])
        try:
            begin = (*self._next_items(), *self._next_nodes())
        except InTrouble as found:
            return Plan(trouble=found.trouble)
        is_over = not begin and not self.open
        return Plan(begin=begin, trouble=self._late[0] if self._late and is_over else None)

    def _next_nodes(self) -> Iterator[Begin]:
        arrived = sorted(self._arrived, key=self._rank)
        busy = {begin.node.id for begin in self.open.values()} | {fan.node.id for fan in self._fans.values()}
        coming = busy | {arrival.target for arrival in arrived}
        ready = [arrival for arrival in arrived if self._is_ready(arrival, coming)]
        if not ready and not busy:
            # What they wait for comes no more: they take what is there.
            ready = [arrival for arrival in arrived if self._is_ready(arrival, ())]
        counts = dict(self._count)
        for arrival in ready:
            yield from self._first(arrival, counts)

    def _rank(self, arrival: Arrival) -> tuple[int, int, int]:
        source = None if arrival.source is None else self._instances[arrival.source]
        return self._shape.place[arrival.target], arrival.round, 0 if source is None else source.begun

    def _is_ready(self, arrival: Arrival, coming: Collection[str]) -> bool:
        return all(self._is_given(read, arrival, coming) for read in self._reads[arrival.target])

    def _is_given(self, read: str, arrival: Arrival, coming: Collection[str]) -> bool:
        """What a node refers to is there, and nothing newer of its own round may still come."""
        shape, target = self._shape, arrival.target
        if not shape.is_one_ring(read, target):
            return bool(self._given[read])
        if not shape.leads_to(read, target):
            # It is the round before that is read, or nothing in the first.
            return True
        here = self._rounds.get((read, arrival.round), [])
        if here:
            return any(instance.has_output for instance in here)
        if any(one == read or shape.leads_to(one, read) for one in coming if one != target):
            return False
        return bool(self._given[read])

    def _first(self, arrival: Arrival, counts: dict[str, int]) -> Iterator[Begin]:
        node = self.graph.nodes[arrival.target]
        ordinal = counts[node.id]
        counts[node.id] += 1
        after = min(self._arrived[arrival], key=self._source_rank)
        name = step_name(node, ordinal)
        if ordinal >= self.graph.max_visits:
            raise InTrouble(node, name, f"was begun {ordinal} times, which is the most that max_visits allows")
        begin = Begin(name=name, node=node, ordinal=ordinal, after=after, recovers=arrival.recovers)
        if node.for_each is None:
            yield begin
            return
        items = self._items(node, name, arrival.round, None)
        if not items:
            yield replace(begin, part=Part.LIST)
        yield from _items_of(begin, range(1 if node.is_sequential and items else len(items)), len(items))

    def _source_rank(self, name: StepName | None) -> tuple[int, int]:
        if name is None:
            return -1, 0
        source = self._instances[name]
        return self._shape.place[source.node.id], source.ordinal

    def _next_items(self) -> Iterator[Begin]:
        for fan in self._fans.values():
            if not fan.lists:
                yield from self._more_of(fan)

    def _more_of(self, fan: Instance) -> Iterator[Begin]:
        node, done = fan.node, len(fan.members)
        begin = Begin(name=fan.name, node=node, ordinal=fan.ordinal, after=fan.after, recovers=fan.recovers)
        if node.is_sequential and fan.at_work:
            return
        of = len(self._items(node, fan.name, fan.round, fan))
        if done < of and not (node.is_sequential and fan.is_broken):
            # Members of a parallel one are begun together; a pass may have died in between.
            missing = [done] if node.is_sequential else [index for index in range(of) if index not in fan.members]
            yield from _items_of(begin, missing, of)
        elif not fan.at_work:
            yield replace(begin, part=Part.LIST)

    # --- what it is worked with ---------------------------------------------------------------------------------------
    def taken(self, begin: Begin, value: Any) -> Any:
        """A stored input with what its references give this step."""
        whole = begin.group or begin.name
        instance = self._instances.get(whole)
        round_ = self._round_of(begin) if instance is None else instance.round
        as_of = None if instance is None else instance.begun

        def read(one: Ref) -> Any:
            if one.node == ITEM:
                return one.read(self.item(begin))
            if one.node == FAILURE:
                return one.read(self._failure(begin))
            return self._value(one, begin.node, round_, as_of)

        return resolved(value, read)

    def output(self) -> Any:
        """What the run gives, now that it is complete."""

        def read(one: Ref) -> Any:
            if one.node == TRIGGER:
                return one.read(self.trigger)
            given = self._given[one.node]
            return one.read(given[-1].value()) if given else ABSENT

        value = resolved(self.graph.output, read)
        return None if value is ABSENT else value

    def _failure(self, begin: Begin) -> Any:
        source = None if begin.after is None else self._instances.get(begin.after)
        return failure_told(source, "" if source is None else invocation_id(self._run_id, source.name))

    def item(self, begin: Begin) -> Any:
        """What an ITEM is worked for."""
        whole = begin.group or begin.name
        instance = self._instances.get(whole)
        round_ = self._round_of(begin) if instance is None else instance.round
        return self._items(begin.node, whole, round_, instance)[begin.index]

    def members(self, begin: Begin) -> list[tuple[StepName, Ended]]:
        """What became of the items of a LIST, in their order."""
        instance = self._instances.get(begin.name)
        found = {} if instance is None else instance.members
        return [(_member(begin.name, at), ended) for at, ended in sorted(found.items()) if ended is not None]

    def failure_before(self, begin: Begin) -> StepName | None:
        """The step whose failure this one recovers; None when it was reached otherwise (spec 3.6)."""
        return begin.after if begin.recovers else None

    def _round_of(self, begin: Begin) -> int:
        source = None if begin.after is None else self._instances.get(begin.after)
        return self._arrival(source, begin.node.id).round

    def _items(self, node: GraphNode, name: StepName, round_: int, instance: Instance | None) -> list[Any]:
        if instance is not None and instance.items is not None:
            return instance.items
        as_of = None if instance is None else instance.begun
        found = ABSENT if node.for_each is None else self._value(node.for_each, node, round_, as_of)
        if not isinstance(found, list | tuple):
            raise InTrouble(node, name, not_a_list(node, None if found is ABSENT else found).message, is_whole=True)
        items = list(found)
        if instance is not None:
            instance.items = items
        return items

    def _value(self, one: Ref, reader: GraphNode, round_: int, as_of: int | None) -> Any:
        """What is referred to, as it was when the reader began: of the reader's round if it can be, else the newest."""
        if one.node == TRIGGER:
            return one.read(self.trigger)
        newest = None
        is_same_ring = self._shape.is_one_ring(one.node, reader.id) and self._shape.leads_to(one.node, reader.id)
        for instance in reversed(self._given[one.node]):
            if as_of is not None and instance.ended_no >= as_of:
                continue
            newest = newest or instance
            if not is_same_ring or instance.round <= round_:
                newest = instance
                break
        return ABSENT if newest is None else one.read(newest.value())


def _is_followed(edge: Edge, key: str | None) -> bool:
    return edge.key is None or edge.key == key


def _member(whole: StepName, index: int) -> StepName:
    return StepName(f"{whole}[{index}]")


def _items_of(begin: Begin, indexes: Iterable[int], of: int) -> Iterator[Begin]:
    whole = begin.name
    for index in indexes:
        yield replace(begin, name=_member(whole, index), part=Part.ITEM, group=whole, index=index, of=of)
