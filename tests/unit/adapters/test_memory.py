"""What the memory adapters add to the ports' contracts: time that is moved, ids that repeat, and messages that a test can look at."""

from __future__ import annotations

import pytest

from pikkuflow.adapters.memory import MemoryDeliverer, MemoryDispatcher, MemoryRunStore, MovableClock, SeededIds
from pikkuflow.domain.act import RunRef, StepMessage
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.run import NewRun
from pikkuflow.errors import DispatchError


def _message(name: str, *, task: str = "shop.pack", queue: str | None = None) -> StepMessage:
    return StepMessage(run_id=RunId("r1"), name=StepName(name), attempt=1, task=task, queue=queue, options="{}")


def test_the_clock_stands_until_it_is_moved() -> None:
    """Time is moved, not waited for: ``sleep`` moves it, too."""
    clock = MovableClock()
    before = clock.now()
    assert clock.now() == before
    clock.advance(60)
    clock.sleep(0.5)
    assert (clock.now() - before).total_seconds() == 60.5
    assert clock.monotonic() == 60.5
    assert clock.now().tzinfo is not None


def test_the_clock_does_not_go_back() -> None:
    """Nothing may depend on time that runs backwards."""
    with pytest.raises(ValueError, match="does not go back"):
        MovableClock().advance(-1)


def test_ids_and_jitter_repeat_with_their_seed() -> None:
    """A failing test fails again with the same ids."""
    first, second, other = SeededIds(7), SeededIds(7), SeededIds(8)
    ids = [first.new_id() for _ in range(3)]
    assert ids == [second.new_id() for _ in range(3)]
    assert len({*ids, other.new_id()}) == 4
    assert first.jitter() == second.jitter()
    assert 0 <= first.jitter() <= 1


def test_the_dispatcher_keeps_what_it_is_given_until_it_is_taken() -> None:
    """A test drains the broker by hand."""
    dispatcher = MemoryDispatcher()
    wake = RunRef(id=RunId("r1"), workflow="shop.order")
    dispatcher.wake([wake])
    dispatcher.send_steps([_message("a"), _message("b")])
    assert dispatcher.take_wakes() == (wake,)
    assert dispatcher.take_messages() == ((_message("a"),), (_message("b"),))
    assert (dispatcher.take_wakes(), dispatcher.take_messages()) == ((), ())


def test_members_of_a_chunk_travel_together() -> None:
    """Only those of the same task and route do (design 2)."""
    dispatcher = MemoryDispatcher()
    members = [_message(f"m[{index}]") for index in range(5)]
    stranger = _message("x", queue="slow")
    dispatcher.send_steps([members[0], stranger, *members[1:]], chunk=2)
    assert dispatcher.take_messages() == (tuple(members[:2]), tuple(members[2:4]), tuple(members[4:]), (stranger,))


def test_a_dispatcher_that_is_down_takes_nothing() -> None:
    """Design 7: ``DispatchError``, and nothing half sent."""
    dispatcher = MemoryDispatcher()
    dispatcher.is_down = True
    with pytest.raises(DispatchError):
        dispatcher.wake([RunRef(id=RunId("r1"), workflow="w")])
    with pytest.raises(DispatchError):
        dispatcher.send_steps([_message("a")])
    assert (dispatcher.wakes, dispatcher.messages) == ([], [])


def test_a_broker_may_forget_everything() -> None:
    """The database is the truth (design 3)."""
    dispatcher = MemoryDispatcher()
    dispatcher.send_steps([_message("a")])
    dispatcher.lose_all()
    assert dispatcher.take_messages() == ()


def test_the_deliverer_keeps_runs_that_have_a_handover() -> None:
    """And fails like a result backend that is away."""
    store = MemoryRunStore(MovableClock())
    wanted = NewRun(id=RunId("r1"), workflow="w", version="v", input="{}", handover="{}")
    store.insert_runs([wanted, NewRun(id=RunId("r2"), workflow="w", version="v", input="{}")])
    with_handover, without = store.get_run(RunId("r1")), store.get_run(RunId("r2"))
    assert with_handover is not None
    assert without is not None
    deliverer = MemoryDeliverer()
    assert (deliverer.wants(with_handover), deliverer.wants(without)) == (True, False)
    deliverer.deliver(with_handover)
    assert deliverer.delivered == [with_handover]
    deliverer.is_down = True
    with pytest.raises(ConnectionError):
        deliverer.deliver(with_handover)


def test_clearing_forgets_every_row() -> None:
    """T17.9: memory is cleared by ``clear``; ``close`` keeps the rows, as a database does (D25)."""
    store = MemoryRunStore(MovableClock())
    store.insert_runs([NewRun(id=RunId("r1"), workflow="w", version="v", input="{}")])
    store.check_schema()
    store.close()
    assert store.get_run(RunId("r1")) is not None
    store.clear()
    assert store.get_run(RunId("r1")) is None
