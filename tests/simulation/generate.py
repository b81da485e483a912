"""Make a plan from a seed."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from tests.simulation.generate_graphs import with_graphs
from tests.simulation.plan import (
    Act,
    CallOff,
    Child,
    Do,
    Fault,
    FaultKind,
    Gate,
    GateKind,
    Gather,
    Map,
    Milestone,
    Part,
    Plan,
    Sleep,
    Spread,
    Start,
    State,
)

__all__ = ["plan_of"]

_WRITES: Final = (
    "open_pass",
    "record",
    "insert_steps",
    "start_child",
    "close_pass",
    "claim_steps",
    "settle_steps",
    "insert_runs",
)
_SENDS: Final = ("wake", "send_steps")
_PLACES: Final = (None, None, None, "queue", "inline")
_SECONDS: Final = (0.0, 0.0, 0.0, 0.1, 1.0, 5.0, 45.0)
_DELAYS: Final = (0.0, 0.0, 2.0, 20.0)
_UNDOES: Final = 0.5
"""How often steps can be undone."""
_CALLED_OFF: Final = 0.3
_LIMITED: Final = 0.25
"""How often steps and runs have timeouts, and how often every step is sent to a worker."""
_DETACHED: Final = 0.15
_ENDS: Final = {"insert_runs", "start_child"}
_MET: Final = 0.2
"""How often a run that starts as people look begins with what they answer early."""
_LARGE_BATCHES: Final = 0.01
"""How often so many runs start at once that a message does not hold them all."""


class _Generator:
    def __init__(self, seed: int) -> None:
        self._random = Random(f"plan {seed}")
        # By dice of their own, so that a seed without gates or quick workflows keeps the schedule that it had before there were any.
        self._gates = Random(f"gates {seed}")
        self._has_gates = self._gates.random() < 0.4
        self._quick = Random(f"quick {seed}")
        self._is_quick = self._quick.random() < 0.3
        self._undo = Random(f"undo {seed}")
        self._undoes = self._undo.random() < _UNDOES
        self._limits = Random(f"limits {seed}")
        self._has_limits = self._limits.random() < _LIMITED
        self._detached = Random(f"detached {seed}")
        self._detaches = self._detached.random() < _DETACHED
        self._sends = Random(f"sent {seed}").random() < _LIMITED
        self._seed = seed
        self._names = 0
        self._waits = 0
        self._room = 0

    def plan(self) -> Plan:
        r = self._random
        quiet = r.random() < 0.2
        starts = self._starts()
        nodes = r.choice((1, 1, 2, 2, 3))
        return Plan(
            seed=self._seed,
            starts=starts,
            nodes=nodes,
            children=r.choice((1, 1, 2, 2, 3)),
            doubles=nodes > 1 and not quiet and r.random() < 0.15,
            preempt=r.choice((0.02, 0.1, 0.3, 0.6)),
            skews=tuple(r.choice((0.0, 0.0, -40.0, 15.0, 3600.0)) for _ in range(nodes)) if not quiet else (),
            consumes=r.random() < 0.75,
            pass_seconds=r.choice((30.0, 30.0, 0.5)),
            sweep_interval=r.choice((10.0, 30.0, 30.0)),
            node_lease_seconds=r.choice((12.0, 30.0, 30.0)),
            beats=r.choice((1, 1, 1, 2)),
            deaf=r.random() < 0.2,
            quick=self._is_quick,
            sends=self._sends,
            faults=self._all_faults(sum(_size(start.parts) for start in starts), quiet=quiet),
        )

    # --- workflows --------------------------------------------------------------------------------------------------
    def _starts(self) -> tuple[Start, ...]:
        r = self._random
        count = r.choice((1, 1, 1, 2, 2, 3))
        if r.random() < _LARGE_BATCHES:
            one = self._do()
            return tuple(Start(run=f"r{index:02}", parts=(one,), batch=1) for index in range(12))
        starts = tuple(self._start(index) for index in range(count))
        if count == 1 or r.random() < 0.5:
            return starts
        return tuple(replace(start, batch=1, inline=False) for start in starts)

    def _start(self, index: int) -> Start:
        r = self._random
        self._room = r.choice((2, 4, 6, 9))
        parts, at = self._parts(depth=0), max(r.choice((0.0, 0.0, 0.0, 3.0)), self._at_a_look())
        if at and self._has_gates and self._gates.random() < _MET:
            self._waits += 1
            parts = (Gate(f"wait{self._waits}", GateKind.SIGNAL, early=True), *parts)
        return Start(
            run=f"r{index}",
            parts=parts,
            at=at,
            delay=r.choice((0.0,) * 7 + (5.0,)),
            reads=r.random() < 0.3,
            twice=r.random() < 0.1,
            inline=r.random() < 0.15 or (self._undoes and self._undo.random() < 0.1),
            hands_over=r.random() < 0.2,
            timeout=self._run_timeout(0.5),
        )

    def _at_a_look(self) -> float:
        """Often the time at which people look, so that an early answer meets a gate that is just being reached."""
        return 3.0 if self._has_gates and self._gates.random() < 0.4 else 0.0

    def _parts(self, depth: int) -> tuple[Part, ...]:
        parts: list[Part] = []
        while not parts or (self._room > 0 and len(parts) < 5 and self._random.random() < 0.75):
            parts.append(self._part(depth))
        if self._has_gates:
            for _ in range(self._gates.choice((0, 1, 1, 2))):
                parts.insert(self._gates.randrange(len(parts) + 1), self._gate())
        if self._undoes:
            if depth == 0 and self._undo.random() < 0.2:
                parts.insert(0, self._child(depth))
            self._end_badly(parts)
        if self._detaches and depth < 2 and self._detached.random() < 0.5:
            parts.insert(self._detached.randrange(len(parts) + 1), self._child(depth, detached=True))
        if self._is_quick:
            at = self._quick.randrange(len(parts) + 1)
            parts[at:at] = [self._quick_do() for _ in range(self._quick.choice((0, 2, 3, 5, 24)))]
        return tuple(parts)

    def _end_badly(self, parts: list[Part]) -> None:
        """Milestones, and often something that makes an end of the run."""
        u = self._undo
        for _ in range(u.choice((0, 0, 0, 1, 2))):
            parts.insert(u.randrange(len(parts) + 1), Milestone(self._name("p")))
        end = u.choices(("none", "step", "call off"), (4, 5, 2))[0]
        # Late rather than early: there should be something to undo.
        at = max(u.randrange(len(parts) + 1) for _ in range(2))
        if end == "step":
            dispatch = u.choice(_PLACES)
            parts.insert(at, Do(self._name("e"), act=Act(fails=9, gives_up=True), retries=0, dispatch=dispatch))
        elif end == "call off":
            parts.insert(at, CallOff(self._name("o")))

    def _undo_act(self) -> Act | None:
        u = self._undo
        if not self._undoes or u.random() < 0.3:
            return None
        return Act(
            seconds=u.choice((0.0,) * 6 + (1.0, 5.0, 45.0)),
            fails=u.choice((0,) * 8 + (1, 1, 2, 9)),
            dies=u.choice((0,) * 14 + (1, 2)),
            gives_up=u.random() < 0.03,
            asks=u.choice((None,) * 9 + (0.0, 3.0)),
        )

    def _is_kept(self) -> bool:
        return self._undoes and self._undo.random() < 0.12

    def _quick_do(self) -> Do:
        q = self._quick
        act = Act(seconds=q.choice((0.0,) * 6 + (0.004, 0.02, 1.0)), dies=q.choice((0,) * 20 + (1,)))
        return Do(self._name("q"), act=act, retries=q.choice((1, 2, 2, 3)))

    def _part(self, depth: int) -> Part:
        r = self._random
        kind = r.choices(
            ("do", "map", "gather", "sleep", "state", "child", "spread"), (10, 4, 3, 2, 1, 2 if depth < 2 else 0, 2)
        )[0]
        caught = r.random() < 0.4
        if kind == "map":
            return self._map(caught=caught)
        if kind == "gather":
            members = tuple(self._member(depth) for _ in range(r.choice((1, 2, 2, 3, 4))))
            return Gather(self._name("g"), members, tolerant=r.random() < 0.4, caught=caught)
        if kind == "sleep":
            return Sleep(self._name("z"), r.choice((0.0, 2.0, 30.0)))
        if kind == "state":
            return State(self._name("v"), r.choice(("k", "l")))
        if kind == "child":
            return self._child(depth, caught=caught, detached=self._detaches and self._detached.random() < 0.5)
        if kind == "spread":
            first = self._member(depth)
            return Spread(
                self._name("x"),
                first,
                self._between(tuple(self._part(2) for _ in range(r.choice((0, 1, 2))))),
                caught=caught,
            )
        return self._do()

    def _between(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """Steps in flight beside a gate are what is interesting about it."""
        return (*parts, self._gate()) if self._has_gates and self._gates.random() < 0.5 else parts

    def _gate(self) -> Gate:
        r = self._gates
        self._waits += 1
        name, kind, after = f"wait{self._waits}", r.choice(list(GateKind)), r.choice((0.0, 0.0, 3.0, 25.0))
        if kind is GateKind.SUSPEND:
            return Gate(name, kind, after=after)
        timeout = r.choice((None, None, 0.0, 4.0, 30.0))
        is_answered = timeout is None or r.random() < 0.7
        return Gate(name, kind, timeout, after if is_answered else None, early=r.random() < 0.5)

    def _member(self, depth: int) -> Do | Child:
        if depth < 2 and self._random.random() < 0.15:
            return self._child(depth)
        return self._do()

    def _child(self, depth: int, *, caught: bool = False, detached: bool = False) -> Child:
        return Child(
            self._name("c"),
            self._parts(depth + 1),
            caught=caught,
            compensate=not self._is_kept(),
            timeout=self._run_timeout(0.25),
            detached=detached,
        )

    # --- limits -----------------------------------------------------------------------------------------------------
    def _run_timeout(self, odds: float) -> float | None:
        t = self._limits
        return t.choice((1.0, 4.0, 15.0, 40.0, 150.0)) if self._has_limits and t.random() < odds else None

    def _attempt_limits(self) -> dict[str, float | None]:
        t = self._limits
        if not self._has_limits or t.random() < 0.5:
            return {}
        return {"timeout": t.choice((None, 0.5, 3.0, 12.0, 40.0)), "heartbeat": t.choice((None, None, 2.0, 8.0))}

    def _limited(self, act: Act) -> Act:
        """As slow as it has to be for its time to pass, once or each time."""
        t = self._limits
        if not self._has_limits:
            return act
        hangs, beats = t.choice((0.0, 0.0, 0.0, 2.0, 6.0, 50.0)), t.choice((None, None, 1.0, 5.0))
        return replace(act, hangs=hangs, beats=beats, says=t.random() < 0.5)

    def _do(self) -> Do:
        r = self._random
        return Do(
            self._name("s"),
            act=self._limited(self._act()),
            **self._attempt_limits(),
            retries=r.choice((0, 1, 2, 3)),
            delay=r.choice(_DELAYS),
            dispatch=r.choice(_PLACES),
            leaves=r.random() < 0.2,
            is_function=r.random() < 0.15,
            record_start=r.random() < 0.1,
            caught=r.random() < 0.4,
            quick=self._quick.choice((None, None, None, None, True, False)),
            undo=self._undo_act(),
            compensate=not self._is_kept(),
        )

    def _map(self, *, caught: bool) -> Map:
        r = self._random
        return Map(
            self._name("m"),
            tuple(self._limited(self._act()) for _ in range(r.choice((0, 1, 2, 3, 4, 6)))),
            **self._attempt_limits(),
            retries=r.choice((0, 1, 2, 3)),
            delay=r.choice(_DELAYS),
            dispatch=r.choice((None, None, None, "inline")),
            chunk=r.choice((1, 1, 2, 3)),
            window=r.choice((None, None, 1, 2)),
            caught=caught,
            undo=self._undo_act(),
            compensate=not self._is_kept(),
        )

    def _act(self) -> Act:
        r = self._random
        self._room -= 1
        return Act(
            seconds=r.choice(_SECONDS),
            fails=r.choice((0,) * 8 + (1, 1, 2, 9)),
            dies=r.choice((0,) * 18 + (1, 2)),
            gives_up=r.random() < 0.05,
            asks=r.choice((None,) * 9 + (0.0, 3.0)),
            minds=self._undo.random() < 0.1,
        )

    def _name(self, letter: str) -> str:
        self._names += 1
        return f"{letter}{self._names}"

    # --- faults -----------------------------------------------------------------------------------------------------
    def _all_faults(self, size: int, *, quiet: bool) -> tuple[Fault, ...]:
        if self._undoes:
            # They should strike the undoing as well.
            size = size * 3 // 2
        faults = [] if quiet else [*self._faults(size)]
        if self._undo.random() < _CALLED_OFF:
            faults += [self._call_off(size) for _ in range(self._undo.choice((1, 1, 2)))]
        return tuple(sorted(faults, key=lambda fault: fault.at))

    def _call_off(self, size: int) -> Fault:
        u = self._undo
        op = u.choice((None, None, "close_pass", "settle_steps", "start_child", "unwind_child", "work", "cancel_run"))
        return Fault(
            FaultKind.CALL_OFF,
            at=u.randrange(10 + 30 * size),
            seconds=u.choice((0.0, 0.0, 0.5, 25.0)),
            op=op,
            phase=None if op is None else u.choice(("before", "after")),
            which=u.choice((0, 0, 0, 1, 2, 5)),
        )

    def _faults(self, size: int) -> tuple[Fault, ...]:
        count = self._random.choice((1, 1, 2, 3, 4, 6))
        return tuple(sorted((self._fault(size) for _ in range(count)), key=lambda fault: fault.at))

    def _fault(self, size: int) -> Fault:
        r = self._random
        kinds = [kind for kind in FaultKind if kind is not FaultKind.CALL_OFF]
        weights = [6 if kind in _MOST else 3 if kind in _FREQUENT else 1 for kind in kinds]
        kind = r.choices(kinds, weights)[0]
        op = r.choice((None, r.choice(_WRITES), r.choice((*_SENDS, "statement", "work", "deliver"))))
        if kind in {FaultKind.LOST_ANSWER, FaultKind.LOST_ACT}:
            op = r.choice((None, r.choice(_WRITES)))
        if op == "record" and self._quick.random() < 0.4:
            op = "record_all"
        if self._undoes and op in _ENDS and self._undo.random() < 0.4:
            op = self._undo.choice(("cancel_run", "unwind_child", "get_step"))
        if self._has_limits and self._limits.random() < 0.2:
            op = self._limits.choice(("beat", "overdue_runs", "cancel_run", "claim_steps", "record"))
        targeted = kind in _TARGETED
        return Fault(
            kind,
            at=r.randrange(10 + 30 * size),
            seconds=r.choice((0.5, 5.0, 25.0, 40.0, 100.0)),
            op=op if targeted else None,
            phase=r.choice((None, "before", "after")) if targeted and kind in _PHASED else None,
        )


_MOST: Final = {FaultKind.KILL_CHILD, FaultKind.LOST_ANSWER}
_FREQUENT: Final = {FaultKind.KILL_NODE, FaultKind.LOST_ACT, FaultKind.FREEZE, FaultKind.STALL}
_PHASED: Final = {
    FaultKind.KILL_CHILD,
    FaultKind.KILL_NODE,
    FaultKind.KILL_CLIENT,
    FaultKind.FREEZE,
    FaultKind.STALL,
    FaultKind.LEAVE,
}
_TARGETED: Final = {*_PHASED, FaultKind.LOST_ANSWER, FaultKind.LOST_ACT}


def plan_of(seed: int) -> Plan:
    """The plan of a seed."""
    return with_graphs(_Generator(seed).plan())


def _size(parts: tuple[Part, ...]) -> int:
    total = 0
    for part in parts:
        if isinstance(part, Map):
            total += len(part.acts)
        elif isinstance(part, Child):
            total += 1 + _size(part.parts)
        elif isinstance(part, Gather):
            total += _size(part.members)
        elif isinstance(part, Spread):
            total += 1 + _size((part.first, *part.between))
        else:
            total += 1
    return total
