"""One actor at a time: greenlets, a clock that is moved when nobody can go on, and choices that can be repeated."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from greenlet import getcurrent, greenlet

__all__ = ["NEVER", "Actor", "Choices", "Killed", "Member", "Scheduler", "Stuck"]

NEVER: Final = math.inf


class Killed(BaseException):
    """The actor's process is gone: nothing it does any more has an effect."""


class Stuck(Exception):
    """The schedule does not end."""


class Member(Protocol):
    """What an actor is part of: a process."""

    is_dead: bool

    def frozen_until(self) -> float:
        """When the process goes on."""
        ...


class Choices:
    """Every decision of the scheduler, by its number. ``script`` holds those that are not the default; without it they are drawn."""

    def __init__(self, seed: int, preempt: float, script: dict[int, int] | None = None) -> None:
        self._random = Random(f"choices {seed}")
        self._preempt = preempt
        self._script = script
        self._number = 0
        self.made: dict[int, int] = {}

    def preempts(self) -> bool:
        """Whether another actor comes first here."""
        self._number += 1
        if self._script is not None:
            made = self._script.get(self._number, 0)
        else:
            made = 1 if self._random.random() < self._preempt else 0
        if made:
            self.made[self._number] = 1
        return bool(made)

    def pick(self, count: int) -> int:
        """Which of so many actors goes on; 0 is the one that waited longest."""
        if count == 1:
            return 0
        self._number += 1
        if self._script is not None:
            made = min(self._script.get(self._number, 0), count - 1)
        else:
            made = self._random.randrange(count)
        if made:
            self.made[self._number] = made
        return made


class Actor:
    """One thread of one process."""

    __slots__ = ("greenlet", "last", "name", "process", "until")

    def __init__(self, name: str, process: Member, main: Callable[[], None], hub: greenlet) -> None:
        self.name = name
        self.process = process
        self.greenlet = greenlet(main, parent=hub)
        self.until: Callable[[], float] | float = 0.0
        self.last = 0

    def ready_at(self) -> float:
        """The time from which it can go on."""
        until = self.until
        at = until if isinstance(until, float) else until()
        return max(at, self.process.frozen_until())


class Scheduler:
    """Runs actors one after the other. ``now`` is the true time, which is the database's."""

    def __init__(self, choices: Choices) -> None:
        self.now = 0.0
        self.turns = 0
        self.actors: list[Actor] = []
        self._current: Actor | None = None
        self._choices = choices
        self._hub = getcurrent()

    @property
    def current(self) -> Actor:
        """The actor at work."""
        assert self._current is not None, "no actor is at work"
        return self._current

    @property
    def is_idle(self) -> bool:
        """Nobody is at work: the world itself looks."""
        return self._current is None

    def spawn(self, name: str, process: Member, main: Callable[[], None]) -> Actor:
        """Begin an actor; it works when it is its turn."""

        def guarded() -> None:
            try:
                main()
            except Killed:
                return

        actor = Actor(name, process, guarded, self._hub)
        actor.last = self.turns
        self.actors.append(actor)
        return actor

    # --- inside an actor --------------------------------------------------------------------------------------------
    def let_others(self) -> None:
        """A place where another actor may come first."""
        actor = self.current
        if self._choices.preempts() or actor.process.frozen_until() > self.now:
            self.wait(0.0)

    def sleep(self, seconds: float) -> None:
        """Go on after that long."""
        self.wait(self.now + seconds)

    def wait(self, until: Callable[[], float] | float) -> None:
        """Go on at that time, which may depend on what others do."""
        actor = self.current
        if actor.process.is_dead:
            raise Killed
        actor.until = until
        self._hub.switch()
        if actor.process.is_dead:
            raise Killed

    # --- outside ----------------------------------------------------------------------------------------------------
    def run(self, is_over: Callable[[], bool], *, until: float, turns: int) -> None:
        """Let actors work until it is over. Raises ``Stuck`` past the time or the number of turns given."""
        while not is_over():
            ready = self._ready()
            if not ready:
                at = min((actor.ready_at() for actor in self.actors), default=NEVER)
                if at > until:
                    raise Stuck(f"not over at {self.now:g} s, and nothing happens before {at:g} s")
                self.now = max(self.now, at)
                continue
            self.turns += 1
            if self.turns > turns:
                raise Stuck(f"not over after {turns} turns, at {self.now:g} s")
            ready.sort(key=_last)
            self._go(ready[self._choices.pick(len(ready))])

    def reap(self) -> None:
        """Unwind the actors of dead processes."""
        for actor in list(self.actors):
            if actor.process.is_dead and actor is not self._current:
                self._throw(actor)

    def _ready(self) -> list[Actor]:
        now = self.now
        return [actor for actor in self.actors if actor.ready_at() <= now]

    def _go(self, actor: Actor) -> None:
        actor.last = self.turns
        actor.until = 0.0
        self._current = actor
        actor.greenlet.switch()
        self._current = None
        if actor.greenlet.dead:
            self.actors.remove(actor)
        self.reap()

    def _throw(self, actor: Actor) -> None:
        before, self._current = self._current, actor
        if actor.greenlet:
            actor.greenlet.throw(Killed)
            assert actor.greenlet.dead, f"{actor.name} lives on after its process"
        self._current = before
        if actor in self.actors:
            self.actors.remove(actor)


def _last(actor: Actor) -> int:
    return actor.last
