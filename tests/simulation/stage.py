"""What all parts of a simulated deployment share: the scheduler, the broker, who lives, what is down, and the trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from pikkuflow.domain.ids import RunId
from tests.simulation.plan import FaultKind
from tests.simulation.processes import Node, Process
from tests.simulation.scheduler import NEVER, Killed, Scheduler, Signal

__all__ = ["ACTOR_PAUSE", "Broker", "Message", "Stage"]


class _Pause:
    """Between two statements of one act: other actors may work here. It is the one of the schedule at work."""

    def __init__(self) -> None:
        self.stage: Stage | None = None

    def __call__(self) -> None:
        if self.stage is not None and not self.stage.scheduler.is_idle:
            self.stage.point("statement", "within")


ACTOR_PAUSE: Final = _Pause()


@dataclass(slots=True, eq=False)
class Message:
    """One message at the broker."""

    what: str
    runs: tuple[RunId, ...]
    payload: Any
    at: float = 0.0
    expires_at: float = NEVER
    task: str = ""
    """Of a step message."""

    def again(self) -> Message:
        """The same message, delivered at once."""
        return replace(self, at=0.0)


class Broker:
    """One queue, first in first out, but for messages that are delayed."""

    def __init__(self, arrival: Signal) -> None:
        self.messages: list[Message] = []
        self.arrival = arrival

    def put(self, *messages: Message) -> None:
        """Take messages in."""
        self.messages.extend(messages)
        self.arrival.give()

    def next_at(self) -> float:
        """When there is something to take."""
        return min((message.at for message in self.messages), default=NEVER)

    def take(self, now: float) -> Message | None:
        """The first message that can be taken; None when there is none, or when it was too old."""
        for message in self.messages:
            if message.at <= now:
                self.messages.remove(message)
                return message if message.expires_at > now else None
        return None


class _Signals:
    """What actors wait for."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.hint = scheduler.signal()
        self.news = scheduler.signal()
        """Announcements."""
        self.thread = scheduler.signal()
        """Ends of threads, and their events."""
        self.watching = scheduler.signal()
        """Attempts that are watched."""
        self.death = scheduler.signal()
        """Processes that ended."""


class Stage(_Signals):
    """The shared state of one schedule."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self.scheduler = scheduler
        self.broker = Broker(scheduler.signal())
        self.nodes: list[Node] = []
        self.clients: list[Process] = []
        self.due: dict[RunId, float] = {}
        """Hints that were left."""
        self.points = 0
        self.store_down_until = self.leases_down_until = self.hints_down_until = self.broker_down_until = 0.0
        self.beat_down_until = self.backend_down_until = self.fault_seconds = 0.0
        self.is_disturbed = self.has_deaths = False
        """Something went wrong already; some process died."""
        self.was_late = False
        """Some process may have worked on after its lease."""
        self.was_given_up = False
        """Some process had no patience left with the store, and did not learn what became of its act."""
        self.starts_in_doubt: set[tuple[str, str, int]] = set()
        """Starts of attempts that landed, and whose answer was lost: run, step, attempt."""
        self.were_leases_lost = False
        """A living node may have lost its name."""
        self.strike: Callable[[str, str], FaultKind | None] = lambda _op, _phase: None
        self.strikes_from: float = NEVER
        """The point from which the next fault may strike."""
        self.empty_leases: Callable[[], None] = lambda: None
        self.tells: Callable[[str], None] | None = None

    @property
    def now(self) -> float:
        """The true time."""
        return self.scheduler.now

    @property
    def process(self) -> Process:
        """The process at work."""
        process = self.scheduler.current.process
        assert isinstance(process, Process)
        return process

    def processes(self) -> Iterator[Process]:
        """All that live or lie dead in a node."""
        for node in self.nodes:
            yield from node.children
            yield from node.dead

    def point(self, op: str, phase: str, args: tuple[Any, ...] = (), answer: Any = None) -> FaultKind | None:
        """A place where a fault may strike and where others may come first. Raises ``Killed`` when the process is no more."""
        if self.scheduler.current.process.is_dead:
            raise Killed
        self.points += 1
        if self.tells is not None:
            self.trace(op, phase, args, answer)
        fault = None
        if self.points >= self.strikes_from:
            fault = self.strike(op, phase)
            if self.process.is_dead:
                raise Killed
        self.scheduler.let_others()
        return fault

    def trace(self, op: str, phase: str, args: tuple[Any, ...] = (), answer: Any = None) -> None:
        """Write a line of the trace, when there is one."""
        if self.tells is None:
            return
        who = "-" if self.scheduler.is_idle else self.scheduler.current.name
        shown = " ".join(_short(one) for one in args)
        given = "" if phase != "after" else f" = {_short(answer)}"
        self.tells(f"{self.now:9.2f}  {who:<22} {phase:<7} {op} {shown}{given}")

    def kill(self, process: Process) -> None:
        """End a process at once. Its actors are unwound without effect."""
        process.is_dead = True
        self.is_disturbed = self.has_deaths = True
        self.end(process)
        if process in process.node.children:
            process.node.children.remove(process)
            process.node.dead.append(process)

    def end(self, process: Process) -> None:
        """A process is over. Its actors are unwound without effect."""
        process.is_dead = True
        self.scheduler.has_dead = True
        self.death.give()

    def stop(self, node: Node) -> None:
        """Begin a warm shutdown: every child ends after the message in hand."""
        node.is_stopping = True
        self.broker.arrival.give()
        self.death.give()

    def leave_hint(self, run_id: RunId, at: float) -> None:
        """Keep the earlier of two due times."""
        self.due[run_id] = min(at, self.due.get(run_id, at))
        self.hint.give()

    def is_handled(self, run_id: RunId) -> bool:
        """Whether a message or a hint for the run is under way, or a process works on it."""
        is_coming = run_id in self.due or any(run_id in message.runs for message in self.broker.messages)
        return is_coming or self.is_worked(run_id)

    def is_worked(self, run_id: RunId) -> bool:
        """Whether a process has the run in hand."""
        return any(run_id in process.handles for process in [*self.processes(), *self.clients, *self._mains()])

    def _mains(self) -> Iterator[Process]:
        for node in self.nodes:
            if node.main is not None:
                yield node.main


_SHOWN = 110


def _short(value: Any) -> str:
    shown = getattr(value, "id", None) or getattr(value, "run_id", None)
    kind = type(value).__name__
    if kind == "StepWrite":
        return f"{value.step.name}@{value.attempt} {value.status}"
    if kind == "History":
        steps = ", ".join(f"{step.name}@{step.attempt} {step.status}" for step in value.steps)
        return f"History({'lost ' if value.run.lost else ''}news {value.run.news}: {steps})"
    if kind in {"PassRef", "PassOpening"}:
        return f"{value.run_id}/{value.pass_id}"
    if kind in {"Closing", "Closed", "PassNews", "Settlement", "Claims", "StepOutcome", "ClaimRequest"}:
        return _fields(value)
    text = str(value) if shown is None or isinstance(value, str) else f"{kind} {shown}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _fields(value: Any) -> str:
    named = ((name, getattr(value, name)) for name in value.__slots__)
    text = ", ".join(f"{name} {_plain(one)}" for name, one in named if one not in (None, (), False))
    return f"{type(value).__name__}({text})"


def _plain(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_plain(one) for one in value) + "]"
    name = getattr(value, "name", None) if type(value).__name__ == "Step" else None
    return str(name or value)[:60]
