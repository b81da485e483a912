"""What one schedule is made of: workflows, starts, processes and faults. Plain data, so that it can be shrunk and written down."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

__all__ = [
    "Act",
    "CallOff",
    "Child",
    "Do",
    "Fault",
    "FaultKind",
    "Gate",
    "GateKind",
    "Gather",
    "Map",
    "Milestone",
    "Node",
    "Part",
    "Plan",
    "Sleep",
    "Spread",
    "Start",
    "State",
]


@dataclass(frozen=True, slots=True)
class Act:
    """How a step behaves.

    The first ``fails`` attempts raise (``gives_up``: for good, whatever attempts remain). The first ``dies`` executions take their process
    down. ``seconds`` is how long one takes, and the first one ``hangs`` for so many more; ``asks`` the delay that a failing attempt itself
    asks for. One that ``minds`` asks, when it has worked, whether it is still wanted, and fails when it is not. One that ``beats`` gives a
    heartbeat every so many seconds, in which it ``says`` which attempt it is; it leaves by what it is told there.
    """

    seconds: float = 0.0
    fails: int = 0
    dies: int = 0
    gives_up: bool = False
    asks: float | None = None
    minds: bool = False
    hangs: float = 0.0
    beats: float | None = None
    says: bool = False


@dataclass(frozen=True, slots=True)
class Do:
    """One step. ``inline_function``: a callable of the workflow instead of a task. ``leaves``: routed to another queue."""

    name: str
    act: Act = Act()
    retries: int = 2
    delay: float = 0.0
    dispatch: str | None = None
    leaves: bool = False
    is_function: bool = False
    record_start: bool = False
    caught: bool = False
    quick: bool | None = None
    """None: as the plan says."""
    undo: Act | None = None
    """How the task that undoes it behaves. None: nothing undoes it."""
    compensate: bool = True
    timeout: float | None = None
    heartbeat: float | None = None
    """Seconds that one attempt may take, and go without a heartbeat."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """A durable sleep."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class State:
    """A value set under a key, which others may set as well, and read before and after."""

    name: str
    key: str


@dataclass(frozen=True, slots=True)
class Milestone:
    """A point of no return."""

    name: str


@dataclass(frozen=True, slots=True)
class CallOff:
    """The body calls its own run off."""

    name: str


class GateKind(StrEnum):
    """What a workflow waits for."""

    SUSPEND = "suspend"
    SIGNAL = "signal"
    APPROVAL = "approval"


@dataclass(frozen=True, slots=True)
class Gate:
    """A wait for people. ``timeout``: seconds until it is over, None for a suspension and for a wait without end.

    ``after``: seconds that people take, counted from when it waits; None: nobody answers it. ``early``: they do not wait until it waits.
    """

    name: str
    kind: GateKind
    timeout: float | None = None
    after: float | None = 0.0
    early: bool = False


@dataclass(frozen=True, slots=True)
class Map:
    """One task over several items; one act for each."""

    name: str
    acts: tuple[Act, ...]
    retries: int = 2
    delay: float = 0.0
    dispatch: str | None = None
    chunk: int = 1
    window: int | None = None
    caught: bool = False
    undo: Act | None = None
    """As of ``Do``, for each member."""
    compensate: bool = True
    timeout: float | None = None
    heartbeat: float | None = None


@dataclass(frozen=True, slots=True)
class Child:
    """A child run of its own parts, undone with its parent unless it is not to be compensated.

    ``timeout``: seconds that the whole run may take. ``detached``: nobody waits for it; only a part by itself can be. ``nodes``: as of
    ``Start``.
    """

    name: str
    parts: tuple[Part, ...]
    caught: bool = False
    compensate: bool = True
    timeout: float | None = None
    detached: bool = False
    nodes: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Gather:
    """Members submitted together. ``tolerant``: failures stand in their places."""

    name: str
    members: tuple[Do | Child, ...]
    tolerant: bool = False
    caught: bool = False


@dataclass(frozen=True, slots=True)
class Spread:
    """A step that is submitted before the parts between, and asked for after them."""

    name: str
    first: Do | Child
    between: tuple[Part, ...]
    caught: bool = False


Part = Do | Sleep | State | Milestone | CallOff | Gate | Map | Child | Gather | Spread


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a graph workflow: what it does, and what follows it, always or by the branch that it ``chooses`` at each visit.

    ``reads``: nodes whose results it takes. ``items``: the node whose list a ``Map`` goes through; None: a list that the run was started
    with. ``recover``: what takes over its failure, unless that ``ignores`` it.
    """

    part: Do | Map | Sleep | Gate | Milestone | Child
    next: tuple[str, ...] = ()
    branches: tuple[tuple[str, tuple[str, ...]], ...] = ()
    chooses: tuple[str | None, ...] = ()
    reads: tuple[str, ...] = ()
    items: str | None = None
    recover: tuple[str, ...] = ()
    ignores: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """A client that starts a run, and, when it ``reads``, waits for its result.

    ``twice``: another client starts the same run. ``inline``: the client works the whole of it. ``hands_over``: its outcome is to be handed
    on. Starts of the same ``batch`` (other than 0) are one ``start_many``. ``timeout``: seconds that the whole run may take.
    ``nodes``: it is the run of a graph of these, and ``parts`` are theirs.
    """

    run: str
    parts: tuple[Part, ...]
    at: float = 0.0
    delay: float = 0.0
    reads: bool = False
    twice: bool = False
    inline: bool = False
    hands_over: bool = False
    batch: int = 0
    timeout: float | None = None
    nodes: tuple[Node, ...] = ()


class FaultKind(StrEnum):
    """What can go wrong, or come in between."""

    KILL_CHILD = "kill child"
    KILL_NODE = "kill node"
    KILL_CLIENT = "kill client"
    LEAVE = "node stops warmly"
    FREEZE = "freeze node"
    STALL = "stall"
    LOST_ANSWER = "answer lost, act landed"
    LOST_ACT = "answer lost, act refused"
    STORE_DOWN = "store down"
    LEASES_DOWN = "leases down"
    LEASES_EMPTIED = "leases emptied"
    HINTS_DOWN = "hints down"
    HINTS_EMPTIED = "hints emptied"
    BROKER_DOWN = "broker down"
    BROKER_EMPTIED = "broker emptied"
    LOSE = "lose message"
    DOUBLE = "double message"
    DELAY = "delay message"
    UNSURE_SEND = "sent and refused"
    BEAT_DOWN = "beat down"
    BACKEND_DOWN = "result backend down"
    SPOIL = "outcome refused by the result backend"
    CALL_OFF = "somebody calls a run off"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, which strikes at the first point from number ``at`` on that fits it, and lasts ``seconds`` where that means something.

    A run that is called off is called off again after ``seconds``, unless they are 0. ``which``: counted from the runs that the process at
    that point works.
    """

    kind: FaultKind
    at: int
    seconds: float = 0.0
    op: str | None = None
    """Only at this port call."""
    phase: str | None = None
    """Only ``before`` or ``after`` the call."""
    which: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """One schedule but for the choices of the scheduler, which come from ``seed``."""

    seed: int
    starts: tuple[Start, ...]
    nodes: int = 1
    children: int = 2
    doubles: bool = False
    """The last node goes by the first one's name."""
    preempt: float = 0.2
    skews: tuple[float, ...] = ()
    consumes: bool = True
    pass_seconds: float = 30.0
    sweep_interval: float = 10.0
    node_lease_seconds: float = 12.0
    beats: int = 1
    deaf: bool = False
    """Whatever observers and loggers are told makes them fail."""
    quick: bool = False
    """Its workflows are quick."""
    sends: bool = False
    """Every step that may be sent is sent (``pikkuflow_dispatch = "queue"``)."""
    faults: tuple[Fault, ...] = field(default=())
