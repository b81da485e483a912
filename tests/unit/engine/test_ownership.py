"""A handle that speaks for a user reaches that user's runs and runs without an owner, and no others (spec 12.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pikkuflow.domain.gate import Decider
from pikkuflow.engine.run_handle import Run
from pikkuflow.engine.runs import Runs
from pikkuflow.errors import RunForbidden
from tests.unit.engine.bench import Bench

CALLS: dict[str, Callable[[Run[Any]], Any]] = {
    "head": lambda run: run.head(),
    "status": lambda run: run.status(),
    "result": lambda run: run.result(timeout=0),
    "watch": lambda run: next(iter(run.watch())),
    "signal": lambda run: run.signal("courier", 1),
    "approve": lambda run: run.approve("early", 1),
    "resume": lambda run: run.resume("stock"),
}


def _body(wf: Any) -> str:
    wf.suspend("stock")
    return "done"


@pytest.fixture
def bench() -> Bench:
    """A run of u1, and one of nobody; both wait."""
    made = Bench()
    made.workflow(_body)
    made.start("_body", run_id="owned", owner="u1")
    made.start("_body", run_id="open")
    made.work()
    return made


@pytest.mark.parametrize("call", CALLS)
def test_a_run_of_another_is_forbidden(bench: Bench, call: str) -> None:
    """T15.3, T16.3: every read and every decision is refused with 403, and nothing changes."""
    runs = Runs(lambda: bench.rt)
    before = bench.run("owned"), bench.steps("owned"), bench.store.list_signals(bench.run("owned").id)
    with pytest.raises(RunForbidden) as refused:
        CALLS[call](runs.get("owned").as_user("u2"))
    assert refused.value.status == 403
    with pytest.raises(RunForbidden):
        runs.get("owned", as_user="u2")
    assert (bench.run("owned"), bench.steps("owned"), bench.store.list_signals(bench.run("owned").id)) == before


@pytest.mark.parametrize("call", [call for call in CALLS if call != "result"])
def test_the_owner_and_whoever_comes_to_an_open_run_is_let_in(bench: Bench, call: str) -> None:
    """T15.4, T15.6: the owner may, a run without an owner asks nothing, and a handle that speaks for nobody is not asked."""
    runs = Runs(lambda: bench.rt)
    CALLS[call](runs.get("owned", as_user="u1"))
    CALLS[call](runs.get("open", as_user="u2"))


def test_a_stream_is_closed_to_a_stranger_at_every_poll(bench: Bench) -> None:
    """Spec 10.4: the owner is asked for each time the run is read."""
    frames = Runs(lambda: bench.rt).get("open").as_user("u2").watch()
    next(frames)
    bench.store._tables.runs[bench.run("open").id].owner = "u1"
    with pytest.raises(RunForbidden):
        list(frames)


def test_an_approval_asks_for_its_policy_and_not_for_the_owner(bench: Bench) -> None:
    """T15.5: a decision by name, on a handle that speaks for nobody, is the policy's business alone."""
    bench.start(bench.workflow(lambda wf: wf.approval("release").data, name="asks"), run_id="asked", owner="u1")
    bench.work()
    Runs(lambda: bench.rt).get("asked").approve("release", "fine", by=Decider("u2"))
    bench.work()
    assert bench.output("asked") == "fine"


def test_a_signal_of_a_handle_names_its_sender(bench: Bench) -> None:
    """What a front end hands on is stored with the signal."""
    Runs(lambda: bench.rt).get("open", as_user="u2").signal("courier")
    assert [one.sender for one in bench.store.list_signals(bench.run("open").id)] == ["u2"]


def test_waiting_approvals_come_in_pages(bench: Bench) -> None:
    """The longest waiting first; a page costs the same however many came before it."""
    for number in range(5):
        name = bench.workflow(lambda wf: wf.approval("a|__b", expiry="1d"), name=f"asks {number}")
        bench.start(name, run_id=f"r{number}")
        bench.work()
        bench.clock.advance(1)
    runs, seen, after = Runs(lambda: bench.rt), [], None
    while True:
        page = runs.approvals(limit=2, after=after)
        seen += [waiting.run_id for waiting in page]
        after = page.next_page
        if after is None:
            break
    assert seen == [f"r{number}" for number in range(5)]
    assert page[0].to_dict()["reason"] == "a|__b"
    with pytest.raises(ValueError, match="next_page"):
        runs.approvals(after="nonsense")
