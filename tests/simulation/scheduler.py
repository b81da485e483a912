"""One actor at a time: greenlets, a clock that is moved when nobody can go on, and choices that can be repeated."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from greenlet import getcurrent, greenlet

__all__ = ["NEVER", "Actor", "Choices", "Killed", "Member", "Scheduler", "Signal", "Stuck"]

NEVER: Final = math.inf
LAST: Final = 2


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

    def preempts(self) -> int:
        """Whether others come first here: 0 no, 1 they may, 2 all of them, as long as any can go on."""
        self._number += 1
        if self._script is not None:
            made = self._script.get(self._number, 0)
        else:
            drawn = self._random.random()
            made = 0 if drawn >= self._preempt else 1 + (drawn * 3 < self._preempt)
        if made:
            self.made[self._number] = made
        return made

    def pick(self, count: int) -> int:
        """Which of so many actors goes on; 0 is the one that waited longest."""
        if count == 1:
            return 0
        self._number += 1
        script = self._script
        made = self._random.randrange(count) if script is None else min(script.get(self._number, 0), count - 1)
        if made:
            self.made[self._number] = made
        return made


class Signal:
    """What actors wait for together: each says when it can go on, and is asked again when the signal was given or that time has come."""

    __slots__ = ("at", "waiters")

    def __init__(self) -> None:
        self.at = NEVER
        self.waiters: dict[Actor, Callable[[], float]] = {}

    def give(self) -> None:
        """Something changed: whoever waits is asked again."""
        self.at = 0.0


class Actor:
    """One thread of one process."""

    __slots__ = ("greenlet", "is_over", "name", "process", "waits_for")

    def __init__(self, name: str, process: Member, main: Callable[[], None], hub: greenlet) -> None:
        self.name = name
        self.process = process
        self.greenlet = greenlet(main, parent=hub)
        self.is_over = False
        self.waits_for: Signal | None = None


class Scheduler:
    """Runs actors one after the other. ``now`` is the true time, which is the database's."""

    def __init__(self, choices: Choices) -> None:
        self.now = 0.0
        self.turns = 0
        self.actors: dict[Actor, None] = {}
        self.has_dead = False
        self.failure: BaseException | None = None
        """What ends the schedule, whoever catches it on its way."""
        self._ready: list[Actor] = []
        """Who can go on, the longest waiting first."""
        self._deferred: list[Actor] = []
        """Who goes on when nobody else can."""
        self._sleepers: list[tuple[float, int, Actor]] = []
        self._signals: list[Signal] = []
        self._rests = 0
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

    def signal(self) -> Signal:
        """Something to wait for."""
        signal = Signal()
        self._signals.append(signal)
        return signal

    def spawn(self, name: str, process: Member, main: Callable[[], None]) -> Actor:
        """Begin an actor; it works when it is its turn."""

        def guarded() -> None:
            try:
                main()
            except Killed:
                return
            except BaseException as error:  # noqa: BLE001 - raised by the hub
                self.failure = self.failure or error

        actor = Actor(name, process, guarded, self._hub)
        self.actors[actor] = None
        self._ready.append(actor)
        return actor

    # --- inside an actor --------------------------------------------------------------------------------------------
    def let_others(self) -> None:
        """A place where another actor may come first."""
        actor = self._current
        assert actor is not None, "no actor is at work"
        preempted = self._choices.preempts()
        if preempted == LAST:
            self._deferred.append(actor)
            self._switch(actor)
        elif preempted or self.failure is not None or actor.process.frozen_until() > self.now:
            self.wait(0.0)

    def sleep(self, seconds: float) -> None:
        """Go on after that long."""
        self.wait(self.now + seconds)

    def wait(self, until: float) -> None:
        """Go on at that time."""
        actor = self._begin_waiting()
        if until <= self.now:
            self._rouse(actor)
        else:
            self._rest(actor, until)
        self._switch(actor)

    def wait_for(self, signal: Signal, until: Callable[[], float]) -> None:
        """Go on at the time that ``until`` gives; it may change whenever the signal is given."""
        actor = self._begin_waiting()
        signal.waiters[actor] = until
        signal.at = min(signal.at, until())
        actor.waits_for = signal
        self._switch(actor)

    def _begin_waiting(self) -> Actor:
        actor = self.current
        if actor.process.is_dead:
            raise Killed
        if self.failure is not None:
            self._hub.switch()
        return actor

    def _switch(self, actor: Actor) -> None:
        self._hub.switch()
        if actor.process.is_dead:
            raise Killed

    # --- outside ----------------------------------------------------------------------------------------------------
    def run(self, is_over: Callable[[], bool], *, until: float, turns: int) -> None:
        """Let actors work until it is over. Raises ``Stuck`` past the time or the number of turns given."""
        while not is_over():
            at = self._look()
            if not self._ready and self._deferred:
                self._rouse(self._deferred.pop(0))
            elif not self._ready:
                if at > until:
                    raise Stuck(f"not over at {self.now:g} s, and nothing happens before {at:g} s")
                self.now = max(self.now, at)
            if not self._ready:
                continue
            self.turns += 1
            if self.turns > turns:
                raise Stuck(f"not over after {turns} turns, at {self.now:g} s")
            self._go(self._ready.pop(self._choices.pick(len(self._ready))))

    def reap(self) -> None:
        """Unwind the actors of dead processes."""
        self.has_dead = False
        for actor in list(self.actors):
            if actor.process.is_dead and actor is not self._current:
                self._throw(actor)

    def _look(self) -> float:
        """Find who can go on now; the time at which the next one can."""
        now, sleepers = self.now, self._sleepers
        while sleepers and sleepers[0][0] <= now:
            self._rouse(heapq.heappop(sleepers)[2])
        at = sleepers[0][0] if sleepers else NEVER
        for signal in self._signals:
            if signal.at <= now:
                self._ask(signal)
            at = min(at, signal.at)
        return at

    def _ask(self, signal: Signal) -> None:
        """Rouse those who can go on, and learn when the next one can."""
        signal.at = NEVER
        for actor, until in list(signal.waiters.items()):
            ready_at = until()
            if ready_at <= self.now:
                del signal.waiters[actor]
                actor.waits_for = None
                self._rouse(actor)
            elif ready_at < signal.at:
                signal.at = ready_at

    def _rouse(self, actor: Actor) -> None:
        frozen_until = actor.process.frozen_until()
        if frozen_until > self.now:
            self._rest(actor, frozen_until)
        elif not actor.is_over:
            self._ready.append(actor)

    def _rest(self, actor: Actor, until: float) -> None:
        self._rests += 1
        heapq.heappush(self._sleepers, (until, self._rests, actor))

    def _go(self, actor: Actor) -> None:
        if actor.is_over:
            return
        self._current = actor
        actor.greenlet.switch()
        self._current = None
        if self.failure is not None:
            raise self.failure
        if actor.greenlet.dead:
            self.actors.pop(actor, None)
        if self.has_dead:
            self.reap()

    def _throw(self, actor: Actor) -> None:
        before, self._current = self._current, actor
        if actor.greenlet:
            actor.greenlet.throw(Killed)
            assert actor.greenlet.dead, f"{actor.name} lives on after its process"
        self._current = before
        self.actors.pop(actor, None)
        if actor.waits_for is not None:
            del actor.waits_for.waiters[actor]
            actor.waits_for = None
        actor.is_over = True
