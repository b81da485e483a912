"""The watching thread's parts: dead children, the node's name, hard limits, and when to sweep (design 3.8, 3.9)."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

from pikkuflow import PikkuFlow, SettingError, Workflow
from pikkuflow.adapters.celery.node import Node, TimedOut
from pikkuflow.adapters.celery.node_lease import NodeLease
from pikkuflow.adapters.celery.pools import busy_pids, dead_children, live_children, note_births, refuse_green_pool
from pikkuflow.adapters.celery.process_identity import identity_of
from pikkuflow.adapters.celery.watch import Watch, _is_stale
from pikkuflow.domain.act import ClaimRequest
from pikkuflow.domain.ids import ClaimId, Holder, RunId, StepName
from pikkuflow.domain.status import Dispatch
from pikkuflow.errors import StoreUnavailable
from pikkuflow.testing import MemoryWorld
from tests.servers.processes import wait_until

TTL = 3.0


@pytest.fixture
def world(pikkuflow_memory: Callable[[PikkuFlow], MemoryWorld]) -> Iterator[Any]:
    """A world whose ``start`` gives a run with a step that waits in the queue."""
    app = Celery("watched", broker="memory://", set_as_current=False)
    pikku = PikkuFlow(app)

    @app.task(name="watched.work", shared=False)
    def work() -> int:
        return 1

    @pikku.workflow(name="watched.run")
    def run(wf: Workflow) -> int:
        return int(wf.do("work", work.s(), dispatch=Dispatch.QUEUE, retries=1, retry_delay=0))

    made = pikkuflow_memory(pikku)
    yield SimpleNamespace(rt=made.runtime, memory=made, start=run.start, pikku=pikku, app=app)
    app.close()


def claim(world: Any, holder: Holder) -> RunId:
    """A run whose step is claimed by that holder."""
    run = world.start()
    send = world.memory.dispatcher.send_steps
    world.memory.dispatcher.send_steps = lambda *_, **__: None
    world.memory.work()
    world.memory.dispatcher.send_steps = send
    claims = world.rt.store.claim_steps(
        ClaimRequest(
            run_id=run.run_id,
            steps=((StepName("work"), 1),),
            task="watched.work",
            claim_id=ClaimId("c"),
            holder=holder,
        )
    )
    assert len(claims.claimed) == 1
    return RunId(run.run_id)


PID = 1_000_001
"""The first child of the made-up pool."""


class TestChildren:
    """Who died, whatever Celery has noticed."""

    def test_a_dead_child_is_seen_before_it_is_reaped(self) -> None:
        """``waitid(WNOWAIT)``: its exit status is left for the pool."""
        pid = os.fork()
        if pid == 0:
            signal.pause()
        assert dead_children({pid}, {pid}) == set()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: dead_children({pid}, {pid}) == {pid})
        assert os.waitpid(pid, 0)[0] == pid
        assert dead_children({pid}, {pid}) == {pid}

    def test_a_child_that_left_the_pool_is_dead(self) -> None:
        """It was reaped between two looks."""
        assert dead_children({1_000_001}, set()) == {1_000_001}

    def test_only_pools_of_processes_have_children(self) -> None:
        """Threads and solo work in the main process."""
        assert live_children(SimpleNamespace(pool=SimpleNamespace())) == {}
        process = SimpleNamespace(pid=5)
        assert live_children(SimpleNamespace(pool=SimpleNamespace(_pool=SimpleNamespace(_pool=[process])))) == {
            5: process
        }

    def test_only_messages_of_ours_are_renewed_for(self) -> None:
        """An idle worker costs the database nothing; a step's message counts by its type, whatever name it is shown under."""
        requests = [
            SimpleNamespace(name="shop.charge", type="pikkuflow.step", worker_pid=1),
            SimpleNamespace(name="pikkuflow.orchestrate", type="pikkuflow.orchestrate", worker_pid=None),
            SimpleNamespace(name="shop.charge", type="shop.charge", worker_pid=2),
        ]
        assert busy_pids(requests) == {1}

    @pytest.mark.parametrize("pool", ["celery.concurrency.gevent", "celery.concurrency.eventlet"])
    def test_green_pools_are_refused_unless_allowed(self, pool: str) -> None:
        """Design 7: with the reason and the way out."""
        with pytest.raises(SettingError, match="pikkuflow_allow_green_pools"):
            refuse_green_pool(pool, allowed=False)
        refuse_green_pool(pool, allowed=True)
        refuse_green_pool("celery.concurrency.prefork", allowed=False)


class TestNodeLease:
    """A name belongs to one living worker."""

    def test_a_successor_takes_over_what_a_dead_one_held(self, world: Any) -> None:
        """Only once its lease has lapsed; then at once, by holder."""
        dead, new = Node(), Node()
        NodeLease("w1@host", dead, TTL).keep(world.rt)
        run_id = claim(world, dead.holder(7))
        lease = NodeLease("w1@host", new, TTL)
        lease.keep(world.rt)
        assert not world.memory.dispatcher.messages
        world.memory.clock.advance(TTL + 0.1)
        lease.keep(world.rt)
        (sent,) = world.memory.dispatcher.messages
        assert (sent[0].run_id, sent[0].name) == (run_id, "work")

    def test_what_could_not_be_taken_over_in_an_outage_is_taken_over_after_it(self, world: Any) -> None:
        """The name is held by then; the database answers only later."""
        dead = Node()
        NodeLease("w1@host", dead, TTL).keep(world.rt)
        claim(world, dead.holder(7))
        world.memory.clock.advance(TTL + 0.1)

        class Away:
            def __getattr__(self, name: str) -> Any:
                return getattr(world.rt.store, name)

            def expire_node(self, _node: str) -> None:
                raise StoreUnavailable("the database is away")

        lease = NodeLease("w1@host", Node(), TTL)
        with pytest.raises(StoreUnavailable):
            lease.keep(replace(world.rt, store=Away()))
        assert not world.memory.dispatcher.messages

        lease.keep(world.rt)
        assert len(world.memory.dispatcher.messages) == 1
        lease.keep(world.rt)
        assert len(world.memory.dispatcher.messages) == 1

    def test_a_released_name_is_taken_at_once(self, world: Any) -> None:
        """A warm shutdown, then the same name."""
        first, second = (NodeLease("w1@host", Node(), TTL) for _ in range(2))
        first.keep(world.rt)
        first.release(world.rt)
        second.keep(world.rt)
        lease = world.rt.leases.get("node:w1@host")
        assert lease is not None
        assert lease.holder == second._node.uuid

    def test_a_living_double_is_told_of_and_left_alone(self, world: Any, caplog: pytest.LogCaptureFixture) -> None:
        """Nothing of it is expired, however long it takes; one line in the log."""
        living, double = Node(), NodeLease("w1@host", Node(), TTL)
        keeper = NodeLease("w1@host", living, TTL)
        keeper.keep(world.rt)
        claim(world, living.holder(7))
        for _ in range(20):
            world.memory.clock.advance(1)
            keeper.keep(world.rt)
            double.keep(world.rt)
        assert not world.memory.dispatcher.messages
        assert len([record for record in caplog.records if "Another worker lives" in record.message]) == 1

    def test_a_name_whose_process_is_gone_is_taken_at_once(self, world: Any) -> None:
        """The system knows that it ended; its lease need not lapse first. One that lives is waited for."""
        with subprocess.Popen(["sleep", "60"]) as process:
            dead = Node()
            identity = identity_of(process.pid)
            assert identity is not None
            NodeLease("w1@host", dead, TTL, identity=identity).keep(world.rt)
            run_id = claim(world, dead.holder(7))
            world.memory.clock.advance(0.1)
            lease = NodeLease("w1@host", Node(), TTL, identity=identity_of(os.getpid()))
            lease.keep(world.rt)
            waited = lease.is_waiting
            process.kill()
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            lease.keep(world.rt)
        assert (waited, lease.is_waiting) == (True, False)
        (sent,) = world.memory.dispatcher.messages
        assert (sent[0].run_id, sent[0].name) == (run_id, "work")

    def test_a_name_that_is_still_a_predecessors_is_waited_for(self, world: Any) -> None:
        """The watch asks at each tick then, so that a predecessor's work is taken over as soon as it can be."""
        keeper, second = (NodeLease("w1@host", Node(), TTL) for _ in range(2))
        keeper.keep(world.rt)
        assert not keeper.is_waiting
        second.keep(world.rt)
        assert second.is_waiting
        world.memory.clock.advance(TTL + 0.1)
        second.keep(world.rt)
        assert not second.is_waiting

    def test_a_name_that_is_a_doubles_is_asked_for_at_leisure(self, world: Any) -> None:
        """Once that is known, and told, the watch asks no more often than it renews."""
        keeper, double = (NodeLease("w1@host", Node(), TTL) for _ in range(2))
        for _ in range(8):
            keeper.keep(world.rt)
            double.keep(world.rt)
            world.memory.clock.advance(1)
        assert not double.is_waiting

    def test_a_living_double_whose_name_was_forgotten_is_left_alone(self, world: Any) -> None:
        """The service lost its memory between the two keys of the first worker, and the second one took the name."""
        living, second = Node(), Node()
        leases = world.rt.leases
        claim(world, living.holder(7))
        world.memory.clock.advance(1)

        class Forgetful:
            """Its first question falls between the emptied store and the first worker's second key."""

            def __getattr__(self, name: str) -> Any:
                return getattr(leases, name)

            def get(self, key: str) -> Any:
                leases.acquire(key, living.uuid, 30 * 86400.0)
                return leases.get(key)

        NodeLease("w1@host", second, TTL).keep(replace(world.rt, leases=Forgetful()))
        assert not world.memory.dispatcher.messages
        remembered = leases.get("node-last:w1@host")
        assert remembered is not None
        assert remembered.holder == second.uuid

    def test_a_lease_that_was_lost_is_taken_again(self, world: Any) -> None:
        """An emptied Redis: the same uuid, and nothing of its own is expired."""
        node = Node()
        lease = NodeLease("w1@host", node, TTL)
        lease.keep(world.rt)
        claim(world, node.holder(7))
        world.memory.clock.advance(TTL * 3)
        lease.keep(world.rt)
        assert not world.memory.dispatcher.messages
        found = world.rt.leases.get("node:w1@host")
        assert found is not None
        assert found.holder == node.uuid


class TestWatch:
    """Its duties, one by one."""

    @pytest.fixture
    def watch(self, world: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
        """A watch over a pool of two processes that the test makes up."""
        monkeypatch.setattr(world.pikku, "compose", lambda **_: replace(world.rt, holder=world.pikku.node.holder))
        children: list[Any] = [SimpleNamespace(pid=1_000_001), SimpleNamespace(pid=1_000_002)]
        monkeypatch.setattr("pikkuflow.adapters.celery.pools._has_ended", lambda _pid: False)
        pool = SimpleNamespace(_pool=SimpleNamespace(_pool=children))
        worker = SimpleNamespace(hostname="w1@host", pool=pool)
        made: Any = Watch(world.pikku, worker)
        made.pool_children = children
        return made

    def test_what_a_dead_child_held_is_sent_again_at_once(self, world: Any, watch: Any) -> None:
        """Compared by holder: the other child's claims stay."""
        node = world.pikku.node
        lost, kept = claim(world, node.holder(1_000_001)), claim(world, node.holder(1_000_002))
        watch._take_over_dead()
        del watch.pool_children[0]
        watch._take_over_dead()
        watch._take_over_dead()
        assert [sent[0].run_id for sent in world.memory.dispatcher.messages] == [lost]
        assert kept != lost

    def test_a_child_that_was_born_and_died_between_two_looks_is_taken_over(self, world: Any, watch: Any) -> None:
        """A poison step: the pool's new process takes the message at once, dies of it and is reaped."""
        lost = claim(world, world.pikku.node.holder(1_000_003))
        pool = watch._worker.pool._pool
        pool._create_worker_process = lambda _index: SimpleNamespace(pid=1_000_003)
        note_births(watch._worker, watch._born.append)
        watch._take_over_dead()
        assert not world.memory.dispatcher.messages
        pool._create_worker_process(0)
        watch._take_over_dead()
        watch._take_over_dead()
        assert [sent[0].run_id for sent in world.memory.dispatcher.messages] == [lost]

    def test_a_hard_limit_is_written_as_a_failed_attempt(self, world: Any, watch: Any) -> None:
        """Once the child is dead, and before it is taken over: the next attempt is due, and the run goes on with it."""
        node = world.pikku.node
        run_id = claim(world, node.holder(1_000_001))
        node.timed_out.put(
            TimedOut(run_id=run_id, steps=((StepName("work"), 1),), holder=node.holder(PID), pid=PID, seconds=5)
        )
        watch._fail_timed_out()
        watch._take_over_dead()
        assert not world.rt.store.list_attempts(run_id)
        del watch.pool_children[0]
        watch._take_over_dead()
        watch._fail_timed_out()
        (attempt,) = world.rt.store.list_attempts(run_id)
        assert "hard time limit of 5 s" in attempt.error.message
        assert world.pikku.runs.get(run_id).result() == 1

    def test_a_hard_limit_that_an_outage_kept_from_the_store_is_written_after_it(self, world: Any, watch: Any) -> None:
        """The attempt failed by its limit, whatever the database does meanwhile."""
        node, store = world.pikku.node, world.rt.store
        run_id = claim(world, node.holder(1_000_001))
        node.timed_out.put(
            TimedOut(run_id=run_id, steps=((StepName("work"), 1),), holder=node.holder(PID), pid=PID, seconds=5)
        )
        del watch.pool_children[0]

        class Away:
            def get_run(self, _run_id: RunId) -> None:
                raise StoreUnavailable("the database is away")

        rt, watch._rt = watch._rt, replace(watch._rt, store=Away())
        with pytest.raises(StoreUnavailable):
            watch._fail_timed_out()
        watch._rt = rt
        watch._fail_timed_out()

        (attempt,) = store.list_attempts(run_id)
        assert "hard time limit of 5 s" in attempt.error.message

    def test_a_duty_that_fails_is_told_once_and_tried_again(self, watch: Any, caplog: pytest.LogCaptureFixture) -> None:
        """None of them takes the thread down."""
        duty = next(each for each in watch._duties if each.name == "timers")
        duty.act = lambda: 1 / 0
        for now in range(10):
            watch._do(duty, float(now))
        assert len([record for record in caplog.records if "timers" in record.message]) == 1

    def test_sweeps_that_run_elsewhere_are_left_to_beat(self) -> None:
        """A kind that never ran counts from the worker's start."""
        fresh = {"scheduled": 1.0, "stalled": 1.0, "undispatched": 1.0}
        assert not _is_stale(fresh, 1000.0, 30.0)
        assert _is_stale({**fresh, "stalled": 31.0}, 1000.0, 30.0)
        assert _is_stale({}, 31.0, 30.0)
        assert not _is_stale({}, 29.0, 30.0)


def test_children_read_the_flag_of_their_main_process() -> None:
    """Warm shutdown: a forked child never hears of SIGTERM (recipes 5)."""
    node = Node()
    node.begin_worker(concurrency=1, has_limits=False)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        while not node.is_stopping():
            pass
        os.write(writing, b"x")
        os._exit(0)
    node.begin_stopping()
    assert os.read(reading, 1) == b"x"
    os.waitpid(pid, 0)
    os.close(reading)
    os.close(writing)
