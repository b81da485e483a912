"""A process dies at every moment of an unwind; the rest of the fleet goes on at the next compensation (T11.24, T11.25, spec 16.5).

As in ``test_crashes``: a moment is just before or just after a call of a port, so each window between two durable acts is hit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from pikkuflow.domain.status import RunStatus, StepKind, StepStatus
from pikkuflow.engine.call_off import call_off
from pikkuflow.engine.sweep import recover
from tests.unit.engine.bench import Bench, Child, Died, Life, Task
from tests.unit.engine.shop import Shop

_PATIENCE = 80
_PLACES = ("here", "away", "mixed")
_CAUSES = ("fails", "is called off", "child fails")
_FORWARD = ("a", "b", "c", "d")


class Saga:
    """A run with steps in place and dispatched, siblings, a milestone that is passed early, and a child; all of it is undone."""

    def __init__(self, place: str, cause: str) -> None:
        self.bench = Bench()
        self.cause = cause
        self.done: list[str] = []
        self.undone: list[str] = []
        self.invocations: dict[str, set[str]] = {}
        for at, name in enumerate(_FORWARD):
            leaves = "queue" if place == "away" or (place == "mixed" and at % 2) else None
            self.bench.task(self._noting(self.done, name), name=name, leaves=leaves)
            self.bench.task(self._noting(self.undone, name), name=f"un{name}")
        self.bench.workflow(self._child, name="child")
        self.bench.workflow(self._flow, name="flow")

    def _noting(self, diary: list[str], name: str) -> Callable[..., None]:
        def work(*_: Any) -> None:
            diary.append(name)

        return work

    def _child(self, wf: Any) -> None:
        wf.do(_step("d"))
        if self.cause == "child fails":
            raise ValueError("of the child")

    def _flow(self, wf: Any) -> None:
        wf.milestone("start")
        wf.do(_step("a"))
        wf.gather(wf.submit(_step("b")), wf.submit(_step("c")))
        wf.do(Child("child"))
        if self.cause == "is called off":
            wf.sleep("10d")
        raise ValueError("no")

    def live(self, life: Life) -> bool:
        """One process does everything until the run is settled or it dies. True: it died."""
        bench, rt = self.bench, self.bench.process(life)
        try:
            for _ in range(_PATIENCE):
                bench.work(rt=rt)
                if bench.run().is_settled:
                    return False
                if self._is_to_be_called_off():
                    call_off(rt, bench.run(), "enough")
                    continue
                self._tick(rt, 5)
        except Died:
            return True
        raise AssertionError("the run is not settled")

    def recover(self) -> None:
        """Healthy processes, time, sweeps."""
        bench = self.bench
        for _ in range(_PATIENCE):
            bench.work()
            if all(run.is_settled for run in self.runs()):
                return
            if self._is_to_be_called_off():
                call_off(bench.rt, bench.run(), "enough")
                continue
            self._tick(bench.rt, 30)
        raise AssertionError(f"nothing moves: {bench.run()} {bench.steps()}")

    def _is_to_be_called_off(self) -> bool:
        waits = any(step.kind is StepKind.SLEEP for step in self.bench.steps())
        return self.cause == "is called off" and waits and self.bench.run().status is RunStatus.RUNNING

    def _tick(self, rt: Any, seconds: float) -> None:
        bench = self.bench
        bench.clock.advance(seconds)
        for run_id in rt.hints.pop_due(100):
            run = bench.store.get_run(run_id)
            if run is not None and not run.is_settled:
                bench.wake(run.workflow, run.id)
        recover(rt)

    def runs(self) -> list[Any]:
        """The run and its child."""
        below = [step.child_run_id for step in self.bench.steps() if step.kind is StepKind.CHILD]
        return [self.bench.run(), *[self.bench.run(child) for child in below if child is not None]]

    def check(self) -> None:
        """I3, I6, I9, I10: undone, once recorded, in order, in bounds."""
        run, child = self.runs()
        assert run.status is RunStatus.COMPENSATED, run
        assert self.bench.output() == {"restedAt": "start"}
        assert child.status is RunStatus.COMPENSATED
        assert run.pass_id is None
        assert run.error.message == ("enough" if self.cause == "is called off" else run.error.message)
        for each in (run, child):
            for step in self.bench.steps(each.id):
                assert step.attempt <= step.attempts_allowed, f"I3: {step}"
                assert step.is_settled, step
        undos = [
            step for each in (run, child) for step in self.bench.steps(each.id) if step.kind is StepKind.COMPENSATION
        ]
        assert all(step.status is StepStatus.SUCCEEDED for step in undos)
        assert sorted(set(self.undone)) == list(_FORWARD)
        first = {name: self.undone.index(name) for name in _FORWARD}
        last = {name: len(self.undone) - 1 - self.undone[::-1].index(name) for name in _FORWARD}
        assert last["d"] < min(first["b"], first["c"])
        assert max(last["b"], last["c"]) < first["a"]


def _step(name: str) -> Task:
    return Task(name, undone_by=f"un{name}")


def moments(place: str, cause: str) -> int:
    """How many moments a healthy life has."""
    saga = Saga(place, cause)
    saga.bench.start("flow")
    life = Life()
    assert not saga.live(life)
    saga.recover()
    saga.check()
    return life.moments


@pytest.mark.parametrize("cause", _CAUSES)
@pytest.mark.parametrize("place", _PLACES)
def test_a_process_may_die_at_any_moment_of_a_run_that_is_undone(place: str, cause: str) -> None:
    """T11.24, T11.25, I10, chaos C1: whatever the moment, everything is undone, in order, and one crash repeats one effect at most."""
    for moment in range(1, moments(place, cause) + 1):
        saga = Saga(place, cause)
        saga.bench.start("flow")

        saga.live(Life(dies_at=moment))
        saga.bench.clock.advance(31)
        saga.recover()

        saga.check()
        repeated = [name for diary in (saga.done, saga.undone) for name, times in Counter(diary).items() if times > 1]
        assert len(repeated) <= 1, f"moment {moment}: {repeated}"
        assert (
            max(Counter([f"do {name}" for name in saga.done] + [f"undo {name}" for name in saga.undone]).values()) <= 2
        )


@pytest.mark.parametrize("seed", range(12))
def test_processes_may_die_again_and_again(seed: int) -> None:
    """Seven crashes in a row at scattered moments: undone, in bounds."""
    saga = Saga(_PLACES[seed % 3], _CAUSES[seed % 2])
    saga.bench.start("flow")
    for crash in range(7):
        if saga.live(Life(dies_at=1 + (seed * 37 + crash * 53) % 80)):
            saga.bench.clock.advance(31)
        if all(run.is_settled for run in saga.runs()):
            break
    saga.recover()

    run = saga.bench.run()
    assert run.status is RunStatus.COMPENSATED
    for step in saga.bench.steps():
        assert step.attempt <= step.attempts_allowed
    assert set(saga.undone) <= set(_FORWARD)
    assert set(saga.done) >= set(saga.undone)


@pytest.mark.parametrize("place", ["here", "away"])
@pytest.mark.parametrize(
    ("retries", "said"),
    [(5, "lost its worker on attempt 1; its run was stopped, so it is not tried again."), (0, "no attempt is left.")],
)
def test_a_step_that_was_lost_with_its_run_stopped_says_so(place: str, retries: int, said: str) -> None:
    """Design 3.7: no further attempt is made for a run that is undone, and nothing is said of attempts that it had left."""
    shop = Shop()
    life = Life()

    def dies() -> None:
        call_off(shop.bench.rt, shop.bench.run(), "enough")
        life.end()

    shop.bench.task(dies, name="dies", leaves="queue" if place == "away" else None)

    def flow(wf: Any) -> None:
        wf.do(Task("dies", undone_by="una"), retries=retries)

    shop.bench.workflow(flow)
    shop.bench.start("flow")
    if place == "away":
        shop.bench.work_one()
    with pytest.raises(Died):
        shop.bench.work_one(shop.bench.process(life))
    shop.bench.clock.advance(61)
    recover(shop.bench.rt)
    shop.settle()

    error = shop.bench.step("dies").error
    assert error is not None
    assert error.code == "STEP_LEASE_EXPIRED"
    assert error.message.endswith(said)
    assert [undo.error for undo in shop.undos] == [error.message]
