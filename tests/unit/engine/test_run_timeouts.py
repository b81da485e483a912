"""``timeout=`` of a whole run, by moved time: fixed at its start, seen by a pass, a hint or a sweep, and undone as a failure (issue D)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.domain.stop import Beat, StepStanding
from pikkuflow.engine.run_inline import run_inline
from pikkuflow.engine.signal import send_signal
from tests.unit.engine.bench import Bench, Child, Task
from tests.unit.engine.shop import Shop, step

OVER = "The run took longer than its timeout of 600 s."


def let_it_be_found(bench: Bench, by: str) -> None:
    """The deadline is over: a hint leads to a pass, or, the hints being lost, a sweep finds it."""
    bench.clock.advance(601)
    if by == "hint":
        bench.pass_time(0)
        return
    bench.hints.pop_due(100)
    bench.recover()
    bench.work()


def sleeps(wf: Any) -> None:
    """A day."""
    wf.sleep("1d")


def waits_for_a_signal(wf: Any) -> None:
    """Nobody sends it."""
    wf.wait_for("courier")


def is_suspended(wf: Any) -> None:
    """Nobody resumes it."""
    wf.suspend("stock")


def waits_for_a_worker(wf: Any) -> None:
    """No worker takes the step."""
    wf.do(Task("away"))


def tries_again(wf: Any) -> None:
    """A step in place whose next attempt is far away."""
    wf.do(Task("boom"), retry_delay="1h")


WAITS = (sleeps, waits_for_a_signal, is_suspended, waits_for_a_worker, tries_again)


@pytest.mark.parametrize("by", ["hint", "sweep"])
@pytest.mark.parametrize("wait", WAITS)
def test_a_run_that_waits_past_its_deadline_is_undone(wait: Any, by: str) -> None:
    """Whatever it waits for; the error and its code stay through the unwind."""
    shop = Shop()
    shop.bench.task(lambda: None, name="away", leaves="queue")

    def flow(wf: Any) -> None:
        wf.do(step("a", 1))
        wait(wf)

    shop.bench.workflow(flow)
    shop.bench.start("flow", timeout_seconds=600.0)
    shop.bench.work_one()
    shop.bench.broker.lose_all()
    assert not shop.bench.run().is_settled

    let_it_be_found(shop.bench, by)

    assert shop.status is RunStatus.COMPENSATED
    assert (shop.bench.run().code, shop.bench.error()) == ("RUN_TIMEOUT", OVER)
    assert [shop.diary[0], shop.diary[-1]] == ["a", "una[1]"]


@pytest.mark.parametrize("by", ["hint", "sweep"])
def test_a_run_with_nothing_to_undo_has_failed_at_its_deadline(by: str) -> None:
    """Failed, not cancelled: nobody called it off. What waited never starts, and the outcome is handed on."""
    bench = Bench()
    bench.workflow(sleeps)
    bench.start("sleeps", timeout_seconds=600.0, handover="{}")
    bench.work()

    let_it_be_found(bench, by)

    assert (bench.run().status, bench.run().code, bench.error()) == (RunStatus.FAILED, "RUN_TIMEOUT", OVER)
    assert bench.step("sleep").status is StepStatus.CANCELLED
    assert bench.deliverer.delivered


def test_a_run_that_ends_in_time_is_not_touched() -> None:
    """Neither by its hint nor by a sweep."""
    bench = Bench()

    def flow(wf: Any) -> str:
        wf.sleep(590)
        return "done"

    bench.workflow(flow)
    bench.start("flow", timeout_seconds=600.0)
    bench.work()
    bench.pass_time(590)
    assert bench.output() == "done"
    before = bench.run()

    bench.pass_time(700)
    bench.recover()

    assert bench.run() == before


def test_a_step_at_work_at_the_deadline_is_told_and_its_outcome_undone() -> None:
    """As with a cancel: the sweep ends the run that a long step holds, the outcome is recorded, and nothing follows it."""
    shop = Shop()
    bench = shop.bench
    told: list[StepStanding] = []

    def slow() -> str:
        bench.clock.advance(25)
        bench.recover()
        told.append(bench.store.beat(Beat(run_id=RunId("r1"), step=StepName("slow"), attempt=1)))
        return "late"

    bench.task(slow, name="slow")

    def flow(wf: Any) -> None:
        wf.do(Task("slow", undone_by="una"))
        shop.diary.append("went on")

    shop.run(flow, timeout_seconds=20.0)

    assert told == [StepStanding.STOPPED]
    assert shop.status is RunStatus.COMPENSATED
    assert [(undo.ok, undo.output) for undo in shop.undos] == [(True, "late")]
    assert "went on" not in shop.diary


@pytest.mark.parametrize("inline", [False, True])
def test_a_pass_sees_the_deadline_between_two_steps(*, inline: bool) -> None:
    """No sweep is needed, and no further write: the next call ends the pass, which ends the run. An inline run has nobody else."""
    shop = Shop()
    bench = shop.bench
    bench.task(lambda: bench.clock.advance(5), name="slow")

    def flow(wf: Any) -> None:
        wf.do(step("a"))
        for _ in range(10):
            wf.do(Task("slow"))

    bench.workflow(flow)
    bench.start("flow", timeout_seconds=12.0, inline=inline)
    if inline:
        run_inline(bench.rt, RunId("r1"))
    else:
        bench.work()

    assert (shop.status, bench.run().code) == (RunStatus.COMPENSATED, "RUN_TIMEOUT")
    assert sum(row.task == "slow" for row in bench.steps()) == 3
    assert shop.diary == ["a", "una[]"]


def test_a_body_that_comes_to_its_end_too_late_has_failed() -> None:
    """Completed is what ended in time, whoever looked when; an error of its own is kept."""
    bench = Bench()

    def late(wf: Any, error: str | None = None) -> str:
        wf.do("slow", lambda: bench.clock.advance(25))
        if error is not None:
            raise ValueError(error)
        return "done"

    bench.workflow(late)
    bench.start("late", timeout_seconds=20.0)
    bench.work()
    bench.start("late", "of its own", run_id="r2", timeout_seconds=20.0)
    bench.work()

    assert (bench.run().status, bench.run().code, bench.run().output) == (RunStatus.FAILED, "RUN_TIMEOUT", None)
    assert bench.error("r2") == "of its own"


def test_an_inline_run_does_not_sleep_past_its_deadline() -> None:
    """It waits here for the earlier of the two."""
    bench = Bench()
    bench.workflow(sleeps)
    bench.start("sleeps", timeout_seconds=600.0, inline=True)
    before = bench.clock.monotonic()

    run_inline(bench.rt, RunId("r1"))

    assert bench.run().code == "RUN_TIMEOUT"
    assert 600 <= bench.clock.monotonic() - before < 601


def test_an_inline_run_that_is_left_to_people_leaves_a_hint_for_its_time() -> None:
    """Nobody works it any more, and no message says that its time is over, or that of its gate: docs/steps.md promises a second."""
    bench = Bench()
    bench.workflow(lambda wf: wf.suspend("stock"), name="held")
    bench.workflow(lambda wf: wf.approval("release", expiry=60).status, name="asked")
    bench.workflow(lambda wf: wf.do(Child("asked")), name="above")
    for run_id, workflow in (("r1", "held"), ("r2", "asked"), ("r3", "above")):
        bench.start(workflow, run_id=run_id, timeout_seconds=600.0, inline=True)
        run_inline(bench.rt, RunId(run_id))
    bench.start("held", run_id="r4", inline=True)
    run_inline(bench.rt, RunId("r4"))

    (below,) = [row.child_run_id for row in bench.steps("r3")]
    assert below is not None
    assert [bench.due(run_id) for run_id in ("r1", "r2", "r3", below, "r4")] == [600, 60, 600, 60, None]
    bench.pass_time(61)
    assert [bench.run(run_id).status for run_id in ("r2", "r3")] == [RunStatus.COMPLETED, RunStatus.COMPLETED]


def test_the_deadline_is_fixed_by_the_start() -> None:
    """Passes, resumes, signals and retries come and go; nothing arms it anew. A delayed run's is counted from when it may begin."""
    bench = Bench()

    def flow(wf: Any) -> None:
        wf.suspend("stock")
        wf.wait_for("courier")
        wf.sleep("1d")

    bench.workflow(flow)
    bench.start("flow", timeout_seconds=600.0, delay_seconds=60.0)
    fixed = bench.run().deadline_at
    assert fixed is not None
    assert (fixed - bench.run().created_at).total_seconds() == 660
    bench.pass_time(100)
    bench.resume()
    bench.work()
    bench.pass_time(100)
    send_signal(bench.rt, RunId("r1"), "courier", None, key=None, sender=None)
    bench.work()
    bench.recover()

    assert bench.run().deadline_at == fixed
    assert bench.due() == pytest.approx(460)
    bench.pass_time(461)
    assert bench.run().code == "RUN_TIMEOUT"


def test_what_comes_after_the_deadline_finds_the_run_over() -> None:
    """A signal that opens a pass before any hint or sweep came: the pass ends the run, the body is not entered."""
    bench = Bench()
    entered: list[int] = []

    def flow(wf: Any) -> None:
        entered.append(1)
        wf.wait_for("courier")

    bench.workflow(flow)
    bench.start("flow", timeout_seconds=600.0)
    bench.work()
    bench.clock.advance(601)
    send_signal(bench.rt, RunId("r1"), "courier", None, key=None, sender=None)
    bench.work()

    assert bench.run().code == "RUN_TIMEOUT"
    assert entered == [1]


def test_an_unwind_takes_the_time_that_it_takes() -> None:
    """A deadline that comes while a failed run is undone changes nothing: its own error stays."""
    shop = Shop()
    shop.fails = {"a": 2}

    def flow(wf: Any) -> None:
        wf.do(step("a"), retry_delay="10min")
        wf.do(Task("boom"), retries=0)

    shop.run(flow, timeout_seconds=600.0)

    assert shop.status is RunStatus.COMPENSATED
    assert shop.bench.error().endswith("payment dead")
    assert shop.diary == ["a", "boom", "una[]"]


@pytest.mark.parametrize("by", ["hint", "sweep"])
def test_child_runs_are_called_off_with_a_run_whose_time_is_over(by: str) -> None:
    """And undo themselves, before what came before them."""
    shop = Shop()

    def child(wf: Any) -> None:
        wf.do(step("b"))
        wf.sleep("1d")

    def flow(wf: Any) -> None:
        wf.do(step("a"))
        wf.do(Child("child"))

    shop.begin(flow, child, timeout_seconds=600.0)
    let_it_be_found(shop.bench, by)
    shop.settle()

    assert (shop.status, shop.bench.run().code) == (RunStatus.COMPENSATED, "RUN_TIMEOUT")
    assert (shop.child.status, shop.child.code) == (RunStatus.COMPENSATED, "WORKFLOW_CANCELLED")
    assert shop.bench.error(shop.child.id) == OVER
    assert shop.diary == ["a", "b", "unb[]", "una[]"]


@pytest.mark.parametrize(("asked", "seconds"), [({}, 60), ({"timeout": "30s"}, 30)])
def test_a_child_run_has_a_deadline_of_its_own(asked: dict[str, Any], seconds: int) -> None:
    """The call's, else its workflow's. The parent sees a failed step and may go on."""
    bench = Bench()

    def flow(wf: Any) -> str:
        try:
            wf.do(Child("child"), **asked)
        except Exception as error:  # noqa: BLE001 - what a body would write
            return str(error)
        return "in time"

    bench.workflow(sleeps, name="child", timeout_seconds=60.0)
    bench.workflow(flow)
    bench.start("flow")
    bench.work()
    row = bench.step("child")
    assert (row.due_at, row.timeout_seconds) == (None, None)

    bench.pass_time(seconds + 1)

    assert f"longer than its timeout of {seconds} s" in bench.output()
    assert bench.run().deadline_at is None


def test_a_run_without_a_timeout_leaves_no_hint_for_one() -> None:
    """A run that waits for a person costs no time at all."""
    bench = Bench()
    bench.workflow(is_suspended)
    bench.start("is_suspended")
    bench.work()

    assert bench.due() is None
    assert bench.store.overdue_runs(10) == ()


def test_one_run_that_cannot_be_stopped_keeps_no_other_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """T10.9: it is warned of, and the sweep comes to an end."""
    bench = Bench(sweep_page=1)
    bench.workflow(sleeps)
    for run_id in ("r1", "r2"):
        bench.start("sleeps", run_id=run_id, timeout_seconds=600.0)
    bench.work()
    bench.hints.pop_due(100)
    bench.clock.advance(601)
    cancel = bench.store.cancel_run

    def refuses_one(request: Any) -> Any:
        if request.run_id == "r1":
            raise ValueError("bad row")
        return cancel(request)

    monkeypatch.setattr(bench.store, "cancel_run", refuses_one)
    bench.recover()

    assert any("could not be stopped" in warning for warning in bench.ear.warnings)
    assert bench.run("r2").code == "RUN_TIMEOUT"
    assert bench.run().status is RunStatus.RUNNING
