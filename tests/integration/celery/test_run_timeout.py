"""``timeout=`` of a whole run as a user gives it: on the workflow, at the start, on a child run (issue D, Build 7)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery

from pikkuflow import Call, DurationError, PikkuFlow, Run, RunFailed, Workflow
from pikkuflow.domain.ids import RunId
from pikkuflow.testing import MemoryWorld

Memory = Callable[[PikkuFlow], MemoryWorld]


class Shop:
    """An app with workflows that sleep for a day."""

    def __init__(self, memory: Memory) -> None:
        self.app = Celery("shop", broker="memory://", set_as_current=False)
        self.pikku = pikku = PikkuFlow(self.app)

        @pikku.workflow(name="shop.nap", timeout="1h")
        def nap(wf: Workflow) -> str:
            wf.sleep("1d")
            return "rested"

        @pikku.workflow(name="shop.patient")
        def patient(wf: Workflow, *, timeout: int = 0) -> int:
            wf.sleep("1d")
            return timeout

        @pikku.workflow(name="shop.parent")
        def parent(wf: Workflow, *, heartbeat: bool = False) -> str:
            if heartbeat:
                wf.do(nap.s(), heartbeat_timeout=5)
            try:
                wf.do(nap.s(), timeout="10m")
            except Exception as error:  # noqa: BLE001 - what a body would write
                return str(error)
            return "in time"

        self.nap, self.patient, self.parent = nap, patient, parent
        self.world = memory(pikku)

    def seconds(self, run_id: str) -> float | None:
        """How long the run may take."""
        run = self.world.store.get_run(RunId(run_id))
        assert run is not None
        return run.timeout_seconds


@pytest.fixture
def shop(pikkuflow_memory: Memory) -> Shop:
    """The shop in memory."""
    return Shop(pikkuflow_memory)


STARTS: dict[str, Callable[[Shop, Any], Any]] = {
    "start": lambda shop, value: shop.nap.start(timeout=value),
    "using": lambda shop, value: shop.nap.using(timeout=value).start(),
    "start_many": lambda shop, value: shop.nap.start_many([Call(timeout=value)])[0],
    "delay": lambda shop, value: shop.nap.using(timeout=value).delay(),
    "apply_async": lambda shop, value: shop.nap.apply_async(timeout=value),
    "run_inline": lambda shop, value: shop.nap.run_inline(timeout=value),
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("value", ["2h", 7200, timedelta(hours=2)])
def test_a_start_says_how_long_its_run_may_take(shop: Shop, start: str, value: Any) -> None:
    """Instead of what its workflow says; seconds, a ``timedelta`` or text (D28)."""
    run = STARTS[start](shop, value)
    assert shop.seconds(run.id) == 7200


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("value", [0, -1, "soon", True, [], float("nan")])
def test_an_impossible_timeout_starts_nothing(shop: Shop, start: str, value: Any) -> None:
    """Issue D, bad input: one error that names the run's workflow and the value."""
    with pytest.raises(DurationError, match=r"timeout of a run of 'shop\.nap'"):
        STARTS[start](shop, value)
    assert len(shop.pikku.runs.list()) == 0


def _nothing(wf: Workflow) -> None:
    """A body."""


@pytest.mark.parametrize("value", [0, -1, "soon", True])
def test_an_impossible_timeout_defines_no_workflow(shop: Shop, value: Any) -> None:
    """It is an error where it stands."""
    with pytest.raises(DurationError, match=r"timeout of a run of 'shop\.bad'"):
        shop.pikku.workflow(name="shop.bad", timeout=value)(_nothing)
    assert shop.pikku.registry.find("shop.bad") is None


def test_a_run_past_its_timeout_has_failed_by_name(shop: Shop) -> None:
    """What its user sees: the error that names the timeout, its code, and the deadline with the run."""
    run: Run[str] = shop.nap.start()
    with pytest.raises(RunFailed, match="The run took longer than its timeout of 3600 s"):
        run.result()
    head = run.head()
    assert (head.status.value, head.code) == ("failed", "RUN_TIMEOUT")
    assert head.deadline_at == head.started_at + timedelta(hours=1)
    assert head.to_dict()["deadlineAt"] == head.deadline_at.isoformat()


def test_a_workflow_with_a_parameter_of_that_name_gets_it(shop: Shop) -> None:
    """``using`` is the run's then."""
    assert shop.patient.start(timeout=5).result() == 5
    run = shop.patient.using(timeout="2h").start(timeout=5)
    assert shop.seconds(run.id) == 7200


def test_a_child_run_has_the_timeout_of_its_call(shop: Shop) -> None:
    """The parent sees a step that failed."""
    assert "longer than its timeout of 600 s" in shop.parent.start().result()


def test_a_child_run_has_no_heartbeat(shop: Shop) -> None:
    """Its steps have one."""
    with pytest.raises(RunFailed, match="is a run of its own and has no heartbeat"):
        shop.parent.start(heartbeat=True).result()
