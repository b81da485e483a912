"""Deployments driven by hypothesis: it decides what works, what dies and what is lost, and makes a failing story short."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.simulation.generate import plan_of
from tests.simulation.processes import Process
from tests.simulation.stage import Message
from tests.simulation.world import World

_SHARES = 4
_SCHEDULES = 2000
_SECONDS = st.sampled_from((0.5, 5.0, 25.0, 40.0, 100.0))
_WHICH = st.integers(0, 8)


class Deployment(RuleBasedStateMachine):
    """One deployment and what befalls it; in the end it must come to rest, with every invariant held."""

    world: World | None = None

    @initialize(seed=st.integers(0, 1_000_000), preempt=st.sampled_from((0.02, 0.2, 0.6)))
    def deploy(self, seed: int, preempt: float) -> None:
        """Workflows, nodes and clients as a seed makes them; what goes wrong comes from the rules."""
        self.world = World(replace(plan_of(seed), preempt=preempt, faults=()))
        self.world.begin()

    @rule(turns=st.integers(1, 60))
    def work(self, turns: int) -> None:
        """Actors work."""
        self._deployed.work(turns)

    @rule(which=_WHICH)
    def kill_a_child(self, which: int) -> None:
        """A process that works steps is gone."""
        children = [child for child in self._deployed.stage.processes() if not child.is_dead]
        if children:
            self._deployed.stage.kill(children[which % len(children)])
            self._deployed.scheduler.reap()

    @rule(which=_WHICH, seconds=_SECONDS)
    def kill_a_node(self, which: int, seconds: float) -> None:
        """A machine is gone, and comes back later."""
        child = self._some_child(which)
        if child is not None:
            self._deployed.nodes.kill_node(child, seconds)
            self._deployed.scheduler.reap()

    @rule(which=_WHICH, seconds=_SECONDS)
    def freeze_a_node(self, which: int, seconds: float) -> None:
        """A machine stands still, and goes on later as if nothing had been."""
        world, child = self._deployed, self._some_child(which)
        if child is not None:
            world.stage.is_disturbed = world.stage.was_late = True
            child.node.frozen_until = max(child.node.frozen_until, world.scheduler.now + seconds)

    @rule(which=_WHICH)
    def lose_a_message(self, which: int) -> None:
        """The broker forgets something."""
        messages = self._messages()
        if messages:
            messages.pop(which % len(messages))

    @rule(which=_WHICH)
    def double_a_message(self, which: int) -> None:
        """The broker delivers something twice."""
        messages = self._messages()
        if messages:
            one = messages[which % len(messages)]
            self._deployed.stage.broker.put(one.again())

    @rule(which=_WHICH)
    def stop_a_node_warmly(self, which: int) -> None:
        """A worker is told to end after what it has in hand."""
        child = self._some_child(which)
        if child is not None:
            self._deployed.stage.stop(child.node)

    @rule(which=_WHICH)
    def kill_a_client(self, which: int) -> None:
        """A process that starts runs, or works them itself, is gone."""
        stage = self._deployed.stage
        clients = [client for client in stage.clients if not client.is_dead]
        if clients:
            stage.kill(clients[which % len(clients)])
            self._deployed.scheduler.reap()

    @rule(which=_WHICH, again=st.sampled_from((0.0, 0.0, 5.0)))
    def call_off_a_run(self, which: int, again: float) -> None:
        """Somebody wants a run no more, and may say so twice."""
        self._deployed.callers.call_off(which, again)

    @rule(seconds=_SECONDS)
    def stop_the_result_backend(self, seconds: float) -> None:
        """Outcomes cannot be handed on for a while."""
        stage = self._deployed.stage
        stage.is_disturbed = True
        stage.backend_down_until = stage.now + seconds

    @rule()
    def empty_the_lease_service(self) -> None:
        """Redis starts with nothing."""
        stage = self._deployed.stage
        stage.is_disturbed = stage.were_leases_lost = True
        stage.empty_leases()
        stage.due.clear()

    @rule(seconds=_SECONDS)
    def stop_the_database(self, seconds: float) -> None:
        """The database is away for a while."""
        world = self._deployed
        world.stage.is_disturbed = world.stage.was_late = True
        world.stage.store_down_until = world.scheduler.now + seconds

    def teardown(self) -> None:
        """Nothing goes wrong any more: everything comes to rest."""
        if self.world is None:
            return
        try:
            self.world.finish()
        finally:
            self.world.end()

    @property
    def _deployed(self) -> World:
        assert self.world is not None
        return self.world

    def _messages(self) -> list[Message]:
        self._deployed.stage.is_disturbed = True
        return self._deployed.stage.broker.messages

    def _some_child(self, which: int) -> Process | None:
        children = [child for child in self._deployed.stage.processes() if child.node in self._deployed.stage.nodes]
        return children[which % len(children)] if children else None


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("share", range(_SHARES))
def test_no_schedule_of_deaths_and_losses_breaks_an_invariant(share: int) -> None:
    """I1 to I12 of spec 16.6, over 2,000 schedules that hypothesis chooses."""
    chosen = settings(
        max_examples=_SCHEDULES // _SHARES,
        stateful_step_count=10,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    # Each share has schedules of its own, the same each time: `make simulate` is for finding new ones.
    run_state_machine_as_test(seed(share)(Deployment), settings=chosen)
