"""One schedule: a deployment made from a plan, worked until it is quiet, and judged."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, cast

from pikkuflow.adapters.json_codec import JsonCodec
from pikkuflow.adapters.memory.leases import MemoryLeases
from pikkuflow.adapters.memory.run_store import MemoryRunStore
from pikkuflow.domain.definition import Registry, WorkflowDefinition
from pikkuflow.domain.graph import Graph
from pikkuflow.domain.status import Dispatch
from pikkuflow.engine.runtime import Runtime
from pikkuflow.ports import Clock, Hints, Leases, RunStore
from pikkuflow.settings import Settings
from tests.simulation.callers import Callers
from tests.simulation.clients import Clients
from tests.simulation.faults import Faults
from tests.simulation.flow import Translator, acts_of, body_of, children_of, together_in
from tests.simulation.graphs import choices_of, graph_of_nodes, graphs_in
from tests.simulation.judge import judge
from tests.simulation.ledger import Ledger, Violation
from tests.simulation.listeners import SimDeliverer, SimObserver, logging_as_planned
from tests.simulation.nodes import Nodes
from tests.simulation.people import People
from tests.simulation.plan import Node, Part, Plan
from tests.simulation.replays import check_replays
from tests.simulation.scheduler import Choices, Scheduler, Stuck
from tests.simulation.stage import ACTOR_PAUSE, Stage
from tests.simulation.surroundings import ProcessClock, SimDispatcher, SimHints, SimIds, SimLeases, SimStore, StoreClock
from tests.simulation.threads import threads_as_actors
from tests.simulation.work import SimRunner

__all__ = ["StoreMaker", "World"]

_PATIENCE_SECONDS: Final = 8000.0
_TURNS: Final = 60_000
_CALM_SECONDS: Final = 130.0
"""After the last run has settled, the slow and the frozen get time to do harm."""

StoreMaker = Callable[[Clock], MemoryRunStore]


class World:
    """A deployment. ``run`` raises ``Violation`` when an invariant does not hold."""

    def __init__(
        self,
        plan: Plan,
        *,
        script: dict[int, int] | None = None,
        make_store: StoreMaker = MemoryRunStore,
        tells: Callable[[str], None] | None = None,
    ) -> None:
        self.plan = plan
        self._threads = ExitStack()
        self.choices = Choices(plan.seed, plan.preempt, script)
        self.scheduler = Scheduler(self.choices)
        self.stage = Stage(self.scheduler)
        self.stage.tells = tells
        clock = StoreClock(self.stage)
        self.store = make_store(clock)
        self.leases = MemoryLeases(clock)
        self.workflows = _workflows(plan)
        together = {key: one for name, parts in self.workflows.items() for key, one in together_in(name, parts).items()}
        self.ledger = Ledger(self.stage, self.store._tables, together)
        self.ledger.stops.is_quick = plan.quick
        self.store._tables.between_statements = self._between_statements
        acts = {key: act for name, parts in self.workflows.items() for key, act in acts_of(name, parts).items()}
        self.graphs = _graphs(plan)
        self.ledger.stops.graphs = frozenset(self.graphs)
        self.runner = SimRunner(self.stage, self.ledger, acts, _choices(plan))
        self.rt = self._runtime()
        self.nodes = Nodes(self.stage, self.rt, plan)
        self.clients = Clients(self.stage, self.rt, plan)
        self.people = People(self.stage, self.rt, lambda: self.store._tables, self.workflows)
        self.callers = Callers(self.stage, self.rt, self.store._tables, self.ledger)
        self.stage.strike = Faults(self.stage, plan.faults, self.nodes.kill_node, self.callers.call_off).strike
        self.stage.empty_leases = self.leases._leases.clear

    def run(self) -> None:
        """Work until everything is quiet, and judge. Raises ``Violation``."""
        try:
            self.begin()
            self.finish()
        finally:
            self.end()

    def begin(self) -> None:
        """Start nodes and clients, and let nothing work yet. ``end`` must follow, whatever happens."""
        self._threads.enter_context(logging_as_planned(deaf=self.plan.deaf))
        ACTOR_PAUSE.stage = self.stage
        self._threads.enter_context(threads_as_actors(self.stage))
        self.nodes.begin()
        self.clients.begin()
        self.people.begin()

    def work(self, turns: int) -> None:
        """Let actors have that many turns at most. Raises ``Violation``."""
        last = self.scheduler.turns + turns
        self._advance(lambda: self.scheduler.turns >= last or self._is_settled())

    def finish(self) -> None:
        """Work until everything is quiet, and judge. Raises ``Violation``."""
        self._advance(self._is_settled)
        calm = self.scheduler.now + _CALM_SECONDS
        self._advance(lambda: self._is_quiet(calm))
        judge(self.workflows, self.store._tables, self.ledger, self.rt.codec.decode, self.graphs)
        self.clients.judge(self.store._tables)
        self.people.judge(self.store._tables, self.rt.codec.decode)
        check_replays(self.rt, self.store._tables, self.ledger.stops)

    def end(self) -> None:
        """Unwind every actor."""
        for process in [*self.stage.processes(), *self.stage.clients, *self.nodes.others(), self.people.process]:
            process.is_dead = True
        self.scheduler.reap()
        self._threads.close()
        ACTOR_PAUSE.stage = None

    def _between_statements(self) -> None:
        self.ledger.look()
        ACTOR_PAUSE()

    def _advance(self, is_over: Callable[[], bool]) -> None:
        try:
            self.scheduler.run(is_over, until=_PATIENCE_SECONDS, turns=_TURNS)
        except Stuck as stuck:
            rows = [
                f"{run.id} {run.status} {run.code or ''}"
                for run in self.store._tables.runs.values()
                if not run.is_settled or (run.handover is not None and run.delivered_at is None)
            ]
            raise Violation("I7 nothing is stuck", f"{stuck}; open: {rows}") from stuck

    def _is_settled(self) -> bool:
        if not self.clients.are_done():
            return False
        return all(
            run.is_settled and (run.handover is None or run.delivered_at is not None)
            for run in self.store._tables.runs.values()
        )

    def _is_quiet(self, calm: float) -> bool:
        if self.scheduler.now >= calm:
            return True
        stage = self.stage
        is_calm = all(node.frozen_until <= stage.now for node in stage.nodes)
        return is_calm and not stage.broker.messages and not any(process.handles for process in stage.processes())

    def _runtime(self) -> Runtime:
        registry = Registry()
        for name, parts in self.workflows.items():
            body = body_of(name, parts, self.runner.work)
            graph = self.graphs.get(name)
            registry.add(WorkflowDefinition(name=name, body=body, version="1", quick=self.plan.quick, graph=graph))
        stage, plan = self.stage, self.plan
        return Runtime(
            store=cast("RunStore", SimStore(stage, self.store, self.ledger.after)),
            leases=cast("Leases", SimLeases(stage, self.leases)),
            hints=cast("Hints", SimHints(stage)),
            dispatcher=SimDispatcher(stage),
            runner=self.runner,
            translate=Translator(),
            deliverer=SimDeliverer(stage, self.ledger),
            codec=JsonCodec(8 * 1024 * 1024),
            clock=ProcessClock(stage),
            ids=SimIds(),
            observer=SimObserver(stage, deaf=plan.deaf),
            registry=registry,
            settings=Settings(
                pass_seconds=plan.pass_seconds,
                sweep_interval=plan.sweep_interval,
                run_lease_seconds=30.0,
                step_lease_seconds=30.0,
                node_lease_seconds=plan.node_lease_seconds,
                dispatch=Dispatch.QUEUE if plan.sends else Dispatch.AUTO,
            ),
            holder=lambda: stage.process.holder,
            is_stopping=lambda: stage.process.node.is_stopping,
            consumes=lambda _workflow: plan.consumes,
            has_broker=True,
        )


def _graphs(plan: Plan) -> dict[str, Graph]:
    return {name: graph_of_nodes(name, nodes) for name, nodes in _nodes(plan).items()}


def _choices(plan: Plan) -> dict[str, tuple[str | None, ...]]:
    return {key: one for name, nodes in _nodes(plan).items() for key, one in choices_of(name, nodes).items()}


def _nodes(plan: Plan) -> dict[str, tuple[Node, ...]]:
    return {name: nodes for start in plan.starts for name, nodes in graphs_in(f"w-{start.run}", start).items()}


def _workflows(plan: Plan) -> dict[str, tuple[Part, ...]]:
    found: dict[str, tuple[Part, ...]] = {}
    for start in plan.starts:
        found.update(children_of(f"w-{start.run}", start.parts))
    return found
