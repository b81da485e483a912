"""Worker services: a main process with the duties of its watching thread, children that take messages, and beat."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, cast

from pikkuflow.adapters.celery.node_lease import NodeLease
from pikkuflow.engine.execute_step import execute_step
from pikkuflow.engine.fire_timer import fire_due
from pikkuflow.engine.orchestrate import orchestrate
from pikkuflow.engine.renew import renew
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.sweep import SweepKind, recover, sweep
from pikkuflow.engine.take_over import take_over_holder
from pikkuflow.errors import StoreUnavailable
from tests.simulation.ledger import Violation
from tests.simulation.listeners import Deaf
from tests.simulation.plan import Plan
from tests.simulation.processes import Node, Process
from tests.simulation.scheduler import NEVER, Killed
from tests.simulation.stage import Message, Stage
from tests.simulation.threads import record_starts

__all__ = ["Nodes"]

_SEEN_SECONDS: Final = 0.15
"""How long a dead child or a due hint goes unnoticed."""


class Nodes:
    """All worker services of one schedule, and beat."""

    def __init__(self, stage: Stage, rt: Runtime, plan: Plan) -> None:
        self._stage = stage
        self._rt = rt
        self._plan = plan
        self._starts = 0
        self._beats = [Process(Node(f"beat{index}", f"b{index}"), 0, f"beat{index}") for index in range(plan.beats)]
        self._gone: list[Process] = []

    def begin(self) -> None:
        """Start every node and beat."""
        for index in range(self._plan.nodes):
            name = "n0" if self._plan.doubles and index == self._plan.nodes - 1 else f"n{index}"
            skew = self._plan.skews[index] if index < len(self._plan.skews) else 0.0
            self._start(name, skew)
        for beat in self._beats:
            self._stage.scheduler.spawn(beat.name, beat, self._beat)

    def others(self) -> Iterator[Process]:
        """Processes that are no children: main ones, beat, and what is left of killed nodes."""
        yield from self._beats
        yield from self._gone
        for node in self._stage.nodes:
            if node.main is not None:
                yield node.main

    def kill_node(self, process: Process, restart_seconds: float) -> None:
        """End every process of a node at once; it starts again later under its name, as a supervisor does."""
        node = process.node
        self._retire(node)
        self._later(node, restart_seconds)

    def _retire(self, node: Node) -> None:
        for one in [*node.children, *([node.main] if node.main is not None else [])]:
            self._stage.kill(one)
            self._gone.append(one)
        self._stage.nodes.remove(node)

    def _later(self, node: Node, seconds: float) -> None:
        starter = Process(Node(node.name, "supervisor"), 0, f"supervisor of {node.name}")
        self._gone.append(starter)

        def start() -> None:
            self._stage.scheduler.sleep(seconds)
            self._start(node.name, node.skew)

        self._stage.scheduler.spawn(starter.name, starter, start)

    def _start(self, name: str, skew: float) -> None:
        self._starts += 1
        node = Node(name, f"{name}.{self._starts}", skew)
        main = node.main = Process(node, 0, f"{node.uuid} main", patience=1.0)
        self._stage.nodes.append(node)
        lease = NodeLease(node.name, cast("Any", node), self._rt.settings.node_lease_seconds)
        duties: dict[str, Callable[[], None]] = {
            "renew": lambda: self._renew(node),
            "timers": lambda: self._timers(node),
            "dead": lambda: self._watch_dead(node, lease),
            "name": lambda: self._keep_name(node, lease),
            "sweeps": self._startup,
        }
        for what, duty in duties.items():
            self._stage.scheduler.spawn(f"{node.uuid} {what}", main, duty)
        for _ in range(self._plan.children):
            self._fork(node)

    # --- children ---------------------------------------------------------------------------------------------------
    def _fork(self, node: Node) -> None:
        node.pids += 1
        child = Process(node, node.pids, f"{node.uuid}:{node.pids}")
        node.children.append(child)
        self._stage.scheduler.spawn(child.name, child, lambda: self._work(child))
        self._stage.scheduler.spawn(f"{child.name} starts", child, lambda: record_starts(self._stage, child))

    def _work(self, child: Process) -> None:
        stage = self._stage
        while not child.node.is_stopping:
            stage.scheduler.wait_for(
                stage.broker.arrival, lambda: 0.0 if child.node.is_stopping else stage.broker.next_at()
            )
            message = self._next_message(child)
            if message is None:
                continue
            child.handles = message.runs
            stage.point(f"takes {message.what}", "", message.runs + ((message.payload,) if message.payload else ()))
            self._handle(message)
            child.handles = ()
            child.claims.clear()
        self._leave(child)

    def _next_message(self, child: Process) -> Message | None:
        return None if child.node.is_stopping else self._stage.broker.take(self._stage.now)

    def _handle(self, message: Message) -> None:
        try:
            if message.what == "orchestrate":
                orchestrate(self._rt, message.runs)
            elif message.what == "step":
                execute_step(self._rt, message.runs[0], message.payload, message.task, may_continue=True)
            else:
                sweep(self._rt, SweepKind(message.payload))
        except StoreUnavailable as error:
            self._stage.trace("gives up", "", (error,))
        except Killed:
            raise
        except Deaf as error:
            self._stage.trace("fails", "", (error,))
        except BaseException as error:
            raise Violation("a verb raises nothing of its own", f"{message.what}: {error!r}") from error

    def _leave(self, child: Process) -> None:
        """A warm shutdown: when the last child is done, the node ends, and starts again."""
        self._stage.trace("leaves", "")
        child.node.children.remove(child)
        self._gone.append(child)
        self._stage.end(child)

    def _end(self, node: Node, lease: NodeLease) -> None:
        """The duties in hand are finished, the node's name is released last of all."""
        node.is_gone = True
        self._stage.scheduler.wait_for(self._stage.death, lambda: NEVER if node.duties else 0.0)
        try:
            lease.release(self._rt)
        except ConnectionError as error:
            self._stage.trace("duty failed", "", (error,))
        if node in self._stage.nodes and node.main is not None:
            self._stage.nodes.remove(node)
            self._gone.append(node.main)
            self._stage.end(node.main)
            self._later(node, 2.0)

    # --- duties of the main process -----------------------------------------------------------------------------------
    def _duty(self, act: Callable[[], Any]) -> None:
        node = self._stage.process.node
        if node.is_gone:
            return
        node.duties += 1
        try:
            act()
        except (StoreUnavailable, ConnectionError, Deaf) as error:
            self._stage.trace("duty failed", "", (error,))
        finally:
            node.duties -= 1
            self._stage.death.give()

    def _renew(self, node: Node) -> None:
        while True:
            self._stage.scheduler.sleep(10.0)
            busy = [child.holder for child in node.children if child.handles]
            if busy:
                self._duty(partial(renew, self._rt, busy))

    def _timers(self, node: Node) -> None:
        stage = self._stage
        while not node.is_stopping:
            stage.scheduler.wait_for(stage.hint, lambda: min(stage.due.values(), default=NEVER) + _SEEN_SECONDS)
            if stage.now < stage.hints_down_until:
                stage.scheduler.sleep(1.0)
                continue
            self._duty(partial(self._fire, node))
            stage.process.handles = ()

    def _fire(self, node: Node) -> None:
        if not node.is_stopping:
            fire_due(self._rt)

    def _watch_dead(self, node: Node, lease: NodeLease) -> None:
        stage = self._stage
        while node.children or node.dead:
            stage.scheduler.wait_for(stage.death, lambda: 0.0 if node.dead or not node.children else NEVER)
            stage.scheduler.sleep(_SEEN_SECONDS)
            for child in list(node.dead):
                self._duty(partial(take_over_holder, self._rt, child.holder))
                node.dead.remove(child)
                if not node.is_stopping:
                    self._fork(node)
        self._end(node, lease)

    def _keep_name(self, node: Node, lease: NodeLease) -> None:
        while True:
            self._duty(lambda: lease.keep(self._rt))
            if node.is_gone:
                return
            self._stage.scheduler.sleep(self._rt.settings.node_lease_seconds / 3)

    def _startup(self) -> None:
        """The startup pass, and the fallback when no sweep runs (design 3.8)."""
        if self._starts > self._plan.nodes:
            self._duty(lambda: recover(self._rt, began_at=self._rt.clock.monotonic()))
        began = self._stage.now
        limit = 3 * self._rt.settings.sweep_interval
        while True:
            self._stage.scheduler.sleep(limit)
            self._duty(lambda: self._fall_back(began, limit))

    def _fall_back(self, began: float, limit: float) -> None:
        if self._stage.process.node.is_stopping:
            return
        ages = self._rt.store.sweep_ages()
        alive = self._stage.now - began
        if any(ages.get(kind.value, alive) > limit for kind in SweepKind):
            recover(self._rt)

    # --- beat -------------------------------------------------------------------------------------------------------
    def _beat(self) -> None:
        stage, interval = self._stage, self._plan.sweep_interval
        while True:
            stage.scheduler.sleep(interval)
            if stage.now < max(stage.beat_down_until, stage.broker_down_until):
                continue
            for kind in SweepKind:
                stage.broker.put(Message("sweep", (), kind.value, stage.now, stage.now + interval))
