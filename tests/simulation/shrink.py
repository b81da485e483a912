"""Make a failing schedule small: fewer runs, parts, processes and faults first, then fewer decisions of the scheduler.

A smaller schedule counts when it breaks the same invariant. Its decisions are those of the schedule it came from as far as they still fit;
a decision that is left out is the default: the actor at work goes on, and the longest waiting one follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from tests.simulation.ledger import Violation
from tests.simulation.plan import Act, Child, Do, Gather, Map, Node, Part, Plan, Spread, Start
from tests.simulation.world import World

__all__ = ["Failing", "find", "shrink"]

_TRIES: Final = 600


@dataclass(frozen=True, slots=True)
class Failing:
    """A schedule that breaks an invariant. ``script`` of None draws the decisions from the plan's seed."""

    plan: Plan
    script: dict[int, int] | None
    violation: Violation


def find(plan: Plan, script: dict[int, int] | None = None) -> Failing | None:
    """Work a schedule; what it breaks, with the decisions that it took."""
    world = World(plan, script=script)
    try:
        world.run()
    except Violation as violation:
        return Failing(plan, dict(world.choices.made), violation)
    return None


def shrink(failing: Failing, *, tries: int = _TRIES) -> Failing:
    """The smallest schedule found by so many tries that breaks the same invariant."""
    return _Shrinking(failing, tries).work()


class _Shrinking:
    def __init__(self, failing: Failing, tries: int) -> None:
        self._best = failing
        self._left = tries

    def work(self) -> Failing:
        while self._left > 0 and self._smaller_plan():
            pass
        self._fewer_decisions()
        while self._left > 0 and self._smaller_plan():
            self._fewer_decisions()
        return self._best

    def _smaller_plan(self) -> bool:
        return any(
            self._try(plan, script) for plan in _smaller(self._best.plan) for script in (self._best.script, None, {})
        )

    def _fewer_decisions(self) -> None:
        script = self._best.script or {}
        size = max(1, len(script) // 2)
        while size and self._left > 0:
            numbers = sorted(self._best.script or {})
            for at in range(0, len(numbers), size):
                gone = set(numbers[at : at + size])
                kept = {number: made for number, made in (self._best.script or {}).items() if number not in gone}
                self._try(self._best.plan, kept)
            size //= 2

    def _try(self, plan: Plan, script: dict[int, int] | None) -> bool:
        if self._left <= 0:
            return False
        self._left -= 1
        found = find(plan, script)
        if found is None or found.violation.invariant != self._best.violation.invariant:
            return False
        self._best = found
        return True


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Plans with one thing less."""
    for at in range(len(plan.faults)):
        yield replace(plan, faults=plan.faults[:at] + plan.faults[at + 1 :])
    for starts in _fewer_starts(plan.starts):
        yield replace(plan, starts=starts)
    if plan.nodes > 1:
        yield replace(plan, nodes=plan.nodes - 1, doubles=False)
    if plan.children > 1:
        yield replace(plan, children=plan.children - 1)
    plain = replace(plan, skews=(), beats=1, pass_seconds=30.0, consumes=True, deaf=False, quick=False)
    if plain != plan:
        yield plain


def _fewer_starts(starts: tuple[Start, ...]) -> Iterator[tuple[Start, ...]]:
    if len(starts) > 1:
        for at in range(len(starts)):
            yield starts[:at] + starts[at + 1 :]
    for at, start in enumerate(starts):
        for smaller in _smaller_starts(start):
            yield (*starts[:at], smaller, *starts[at + 1 :])


def _smaller_starts(start: Start) -> Iterator[Start]:
    if start.nodes:
        yield from (
            replace(start, parts=tuple(one.part for one in nodes), nodes=nodes) for nodes in _fewer_nodes(start.nodes)
        )
    else:
        yield from (replace(start, parts=parts) for parts in _smaller_parts(start.parts) if parts)
    plain = replace(start, at=0.0, delay=0.0, reads=False, twice=False, inline=False, hands_over=False, batch=0)
    if plain != start:
        yield plain


def _fewer_nodes(nodes: tuple[Node, ...]) -> Iterator[tuple[Node, ...]]:
    """Without one of them, and without what leads there; never without the first, which the run begins with."""
    for gone in nodes[1:]:
        yield tuple(_without(node, gone.part.name) for node in nodes if node is not gone)


def _without(node: Node, gone: str) -> Node:
    def kept(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name != gone)

    branches = tuple((key, kept(targets)) for key, targets in node.branches)
    items = None if node.items == gone else node.items
    return replace(
        node, next=kept(node.next), branches=branches, reads=kept(node.reads), items=items, recover=kept(node.recover)
    )


def _smaller_parts(parts: tuple[Part, ...]) -> Iterator[tuple[Part, ...]]:
    for at in range(len(parts)):
        yield parts[:at] + parts[at + 1 :]
    for at, part in enumerate(parts):
        for smaller in _smaller_part(part):
            yield (*parts[:at], smaller, *parts[at + 1 :])


def _smaller_part(part: Part) -> Iterator[Part]:
    if isinstance(part, Do):
        yield from (plain for plain in _plainer(part) if plain != part)
    elif isinstance(part, Map):
        for at in range(len(part.acts)):
            yield replace(part, acts=part.acts[:at] + part.acts[at + 1 :])
        if part.undo is not None:
            yield replace(part, undo=None)
    elif isinstance(part, Child):
        yield from (replace(part, parts=parts) for parts in _smaller_parts(part.parts) if parts)
    elif isinstance(part, Gather):
        yield from part.members
        yield from _gathers(part)
    elif isinstance(part, Spread):
        yield part.first
        yield from (replace(part, between=between) for between in _smaller_parts(part.between))


def _plainer(part: Do) -> Iterator[Do]:
    yield replace(part, act=Act())
    yield replace(part, undo=None)
    yield part if part.undo is None else replace(part, undo=Act())
    yield replace(part, quick=None, compensate=True)


def _gathers(part: Gather) -> Iterator[Gather]:
    for members in _smaller_parts(part.members):
        fitting = tuple(member for member in members if isinstance(member, Do | Child))
        if fitting and len(fitting) == len(members):
            yield replace(part, members=fitting)
