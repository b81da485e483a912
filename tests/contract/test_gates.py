"""Gates in every store: what comes from outside and the pass that reaches a gate come one after the other (``ports.gates``)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from pikkuflow.domain.act import PassRef
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.gate import Decider, Policy, gate_name, waiting_failure
from pikkuflow.domain.gate_act import (
    AuditEntry,
    AuditOutcome,
    DecisionEnd,
    GateKey,
    GateReached,
    GateVerdict,
    Judged,
    NewDecision,
    NewSignal,
    SignalEnd,
)
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus, gate_code
from pikkuflow.domain.step import NewStep, Place
from tests.contract.scene import Scene, new_step, race

R1 = RunId("r1")
ISSUE = Failure(type="ApprovalRefused", message="ok: Field required")


def _gate(kind: StepKind, text: str = "x", **more: Any) -> NewStep:
    fields = {"task": text, "args": None, "retries": 0, "queue": None, "place": Place.in_pass("p1"), **more}
    return new_step(fields.pop("name", gate_name(kind, text)), kind=kind, **fields)


def _reach(scene: Scene, ref: PassRef, kind: StepKind, text: str = "x", **more: Any) -> GateReached:
    reached = scene.store.reach_gate(ref, _gate(kind, text, **more))
    assert reached is not None
    return reached


def _wait(scene: Scene, kind: StepKind, text: str = "x", run_id: str = "r1", **more: Any) -> StepName:
    """A new run whose pass suspended at a gate; the gate's step."""
    ref = scene.begin(run_id)
    reached = _reach(scene, ref, kind, text, **more)
    assert reached.row is not None
    assert reached.row.status is StepStatus.SUSPENDED
    _suspend(scene, ref, kind, text)
    return reached.row.name


def _suspend(scene: Scene, ref: PassRef, kind: StepKind, text: str = "x") -> None:
    scene.close(ref, status=RunStatus.SUSPENDED, code=gate_code(kind), error=waiting_failure(kind, text))


def _signal(scene: Scene, number: int = 1, name: str = "x", run_id: str = "r1", **more: Any) -> Any:
    new = NewSignal(**{"id": f"s{number}", "name": name, "payload": str(number), **more})
    return scene.store.send_signal(RunId(run_id), new)


def _decision(scene: Scene, number: int = 1, text: str = "x", run_id: str = "r1", **more: Any) -> Any:
    gate = StepName(gate_name(StepKind.APPROVAL, text))
    new = NewDecision(**{"id": f"d{number}", "gate": gate, "data": str(number), "by": Decider("u2", ("s",)), **more})
    return scene.store.decide(RunId(run_id), new, _entry(f"a{number}"))


def _entry(id_: str, outcome: AuditOutcome = AuditOutcome.SUCCESS) -> AuditEntry:
    return AuditEntry(id=id_, run_id=R1, workflow="shop.order", reason="x", outcome=outcome, by=Decider("u2", ("s",)))


# --- a pass at a gate ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [StepKind.SUSPEND, StepKind.APPROVAL, StepKind.SIGNAL])
def test_a_gate_that_is_reached_waits_until_its_time(scene: Scene, kind: StepKind) -> None:
    """Its row is suspended, at attempt 1, due when asked; reaching it again, by any pass, finds the same row."""
    ref = scene.begin()
    first = _reach(scene, ref, kind, delay_seconds=60.0, options=Policy(scope="boss").to_json())
    assert first.row is not None
    assert (first.row.status, first.row.attempt, first.row.task) == (StepStatus.SUSPENDED, 1, "x")
    assert first.row.due_in_seconds == pytest.approx(60, abs=5)
    _suspend(scene, ref, kind)
    scene.advance(30)
    scene.open(by="p2")
    again = _reach(scene, scene.ref(by="p2"), kind, delay_seconds=60.0)
    assert again.row is not None
    assert again.row.due_in_seconds == pytest.approx(30, abs=5)
    assert Policy.from_json(again.row.options).scope == "boss"


def test_a_gate_is_reached_only_by_the_pass_that_holds_an_open_run(scene: Scene) -> None:
    """Design 3.3: fenced, or stopped, nothing is written."""
    ref = scene.begin()
    assert scene.store.reach_gate(scene.ref(by="p9"), _gate(StepKind.SUSPEND)) is None
    assert scene.store.settle_gate(scene.ref(by="p9"), GateVerdict(step=StepName("x"))) is None
    scene.stop()
    reached = _reach(scene, ref, StepKind.SUSPEND)
    assert (reached.news.written, reached.row) == (False, None)
    assert scene.store.list_steps(R1) == ()


def test_a_gate_that_is_due_wakes_its_run(scene: Scene) -> None:
    """Design 4: its time is a column; it is found by the sweep, and told to the hints before."""
    _wait(scene, StepKind.SIGNAL, delay_seconds=60.0)
    coming = scene.store.upcoming(3600, 10)
    assert [due.run_id for due in coming.due] == ["r1"]
    assert scene.due() == []
    scene.advance(61)
    assert scene.due() == ["r1"]


def test_a_gate_that_waits_is_cancelled_when_its_run_ends(scene: Scene) -> None:
    """Design 3.7: it never started; its time is not looked at any more."""
    ref = scene.begin()
    _reach(scene, ref, StepKind.APPROVAL, delay_seconds=60.0)
    scene.close(ref, status=RunStatus.FAILED, error=ISSUE)
    step = scene.step(gate_name(StepKind.APPROVAL, "x"))
    assert (step.status, step.due_at) == (StepStatus.CANCELLED, None)
    assert scene.store.list_approvals(limit=10) == ()


# --- resume -------------------------------------------------------------------------------------------------------------


def test_a_resume_opens_the_suspension_of_its_reason(scene: Scene) -> None:
    """D3, D4: the row has succeeded, the run is running, its news is raised: all in one act; a second resume finds nothing."""
    name = _wait(scene, StepKind.SUSPEND)
    assert scene.store.resume_run(R1, "other") is None
    assert scene.step(name).status is StepStatus.SUSPENDED
    ref = scene.store.resume_run(R1, "x")
    assert ref is not None
    assert (ref.id, ref.workflow) == ("r1", "shop.order")
    run = scene.run()
    assert (run.status, run.code, run.error) == (RunStatus.RUNNING, None, None)
    assert run.news > run.seen
    assert (scene.step(name).status, scene.step(name).result) == (StepStatus.SUCCEEDED, "null")
    assert scene.store.resume_run(R1, "x") is None
    assert scene.store.resume_run(R1) is None


def test_a_bare_resume_opens_suspensions_and_neither_approvals_nor_signals(scene: Scene) -> None:
    """T1.9: the run is running, a pass will look, and what waits for others goes on waiting."""
    for kind, status in (
        (StepKind.SUSPEND, StepStatus.SUCCEEDED),
        (StepKind.APPROVAL, StepStatus.SUSPENDED),
        (StepKind.SIGNAL, StepStatus.SUSPENDED),
    ):
        name = _wait(scene, kind, run_id=str(kind))
        assert scene.store.resume_run(RunId(kind)) is not None
        assert scene.step(name, run_id=str(kind)).status is status
        assert scene.run(str(kind)).status is RunStatus.RUNNING


def test_a_resume_meets_the_gate_of_a_pass_that_works(scene: Scene) -> None:
    """The pass has reached its gate and not closed: the closer hears of it."""
    ref = scene.begin()
    _reach(scene, ref, StepKind.SUSPEND)
    assert scene.store.resume_run(R1, "x") is not None
    assert scene.close(ref, status=RunStatus.SUSPENDED, code=gate_code(StepKind.SUSPEND)).wake
    scene.open(by="p2")
    reached = _reach(scene, scene.ref(by="p2"), StepKind.SUSPEND)
    assert reached.row is not None
    assert reached.row.status is StepStatus.SUCCEEDED


def test_a_named_resume_leaves_another_suspension_of_the_run_alone(scene: Scene) -> None:
    """A run that waits for code as well goes on waiting for it."""
    ref = scene.begin()
    name = _gate(StepKind.SUSPEND).name
    _reach(scene, ref, StepKind.SUSPEND)
    scene.close(ref, status=RunStatus.SUSPENDED, code="VERSION_CONFLICT", error=ISSUE)
    assert scene.store.resume_run(R1, "x") is not None
    assert (scene.run().status, scene.run().code) == (RunStatus.SUSPENDED, "VERSION_CONFLICT")
    assert scene.step(name).status is StepStatus.SUCCEEDED


# --- signals ------------------------------------------------------------------------------------------------------------


def test_signals_are_taken_in_order_each_by_one_wait(scene: Scene) -> None:
    """Kept from the first send, first in first out by name."""
    ref = scene.begin()
    for number, name in enumerate(("x", "y", "x"), 1):
        sent = _signal(scene, number, name)
        assert (sent.end, sent.wake) == (SignalEnd.STORED, None)
    results = []
    for number in range(3):
        for _ in range(2):
            _reach(scene, ref, StepKind.SIGNAL, name=StepName(f"wait {number}"))
        row = scene.step(f"wait {number}")
        results.append((row.status, row.result))
    assert results == [(StepStatus.SUCCEEDED, "1"), (StepStatus.SUCCEEDED, "3"), (StepStatus.SUSPENDED, None)]
    stored = [(one.number, one.name, one.taken_by) for one in scene.store.list_signals(R1)]
    assert stored == [(1, "x", "wait 0"), (2, "y", None), (3, "x", "wait 1")]


def test_a_signal_wakes_the_run_that_waits_for_it_once(scene: Scene) -> None:
    """D4 and design 3.5: suspended to running, news, and one wake-up however many signals come."""
    _wait(scene, StepKind.SIGNAL)
    assert _signal(scene, 1, "y").wake is None
    assert scene.run().status is RunStatus.SUSPENDED
    wakes = [_signal(scene, number).wake for number in (2, 3)]
    assert [wake and wake.id for wake in wakes] == ["r1", None]
    assert scene.run().status is RunStatus.RUNNING


def test_a_key_makes_two_sends_of_a_name_one(scene: Scene) -> None:
    """The first counts; another name is another signal."""
    scene.begin()
    ends = [_signal(scene, number, name, key="k").end for number, name in enumerate(("x", "x", "y"), 1)]
    assert ends == [SignalEnd.STORED, SignalEnd.KNOWN, SignalEnd.STORED]
    assert [(one.name, one.payload, one.key) for one in scene.store.list_signals(R1)] == [
        ("x", "1", "k"),
        ("y", "3", "k"),
    ]


def test_a_send_whose_answer_was_lost_stores_nothing_more(scene: Scene) -> None:
    """Design 3.4: it finds its own id, and says again whom to wake."""
    _wait(scene, StepKind.SIGNAL)
    assert [_signal(scene, 1).wake is not None for _ in range(2)] == [True, True]
    assert len(scene.store.list_signals(R1)) == 1


def test_no_signal_reaches_a_run_that_ended_or_never_was(scene: Scene) -> None:
    """Said, and nothing stored."""
    scene.close(scene.begin(), status=RunStatus.COMPLETED)
    assert _signal(scene).end is SignalEnd.SETTLED
    assert _signal(scene, run_id="never").end is SignalEnd.MISSING
    assert scene.store.list_signals(R1) == ()


def test_a_wait_that_is_over_fails_once_and_for_all(scene: Scene) -> None:
    """Scenario 28: what was sent in time is taken however late; what came after it is left for the next wait."""
    for run_id, sent_late in (("in-time", False), ("late", True)):
        name = _wait(scene, StepKind.SIGNAL, run_id=run_id, delay_seconds=60.0)
        if not sent_late:
            _signal(scene, run_id=run_id)
        scene.advance(61)
        if sent_late:
            _signal(scene, run_id=run_id)
        scene.open(run_id, "p2")
        for _ in range(2):
            assert _reach(scene, scene.ref(run_id, "p2"), StepKind.SIGNAL).row is not None
        row = scene.step(str(name), run_id)
        assert (row.status, row.due_at) == (StepStatus.FAILED if sent_late else StepStatus.SUCCEEDED, None)
        assert (scene.run(run_id).status, scene.run(run_id).code) == (RunStatus.RUNNING, None)
        assert (row.error and row.error.code) == ("SIGNAL_TIMEOUT" if sent_late else None)
    assert [one.taken_by for one in scene.store.list_signals(RunId("late"))] == [None]


def test_signals_that_race_are_all_kept_and_numbered(scene: Scene) -> None:
    """The run's row is the lock."""
    scene.begin()
    race(*[partial(_signal, scene, n) for n in range(8)])
    assert [one.number for one in scene.store.list_signals(R1)] == list(range(1, 9))


def test_a_signal_that_races_the_wait_is_taken_or_told(scene: Scene) -> None:
    """Scenario 12: whichever comes first, no signal waits beside a run that waits for it without news."""
    for number in range(20):
        run_id = f"r{number}"
        ref = scene.begin(run_id)
        reached, sent = race(
            partial(scene.store.reach_gate, ref, _gate(StepKind.SIGNAL)),
            partial(_signal, scene, run_id=run_id),
        )
        taken = reached.row.status is StepStatus.SUCCEEDED
        closed = scene.close(ref, status=RunStatus.SUSPENDED, code=gate_code(StepKind.SIGNAL))
        assert taken != (closed.wake or sent.wake is not None)


# --- decisions ----------------------------------------------------------------------------------------------------------


def test_a_decision_wakes_the_run_and_is_found_by_its_pass(scene: Scene) -> None:
    """D4: stored with its audit entry, suspended to running, news; the pass gets what is not judged yet."""
    name = _wait(scene, StepKind.APPROVAL)
    decided = _decision(scene)
    assert (decided.end, decided.wake and decided.wake.id) == (DecisionEnd.STORED, "r1")
    assert scene.run().status is RunStatus.RUNNING
    scene.open(by="p2")
    ref = scene.ref(by="p2")
    (found,) = _reach(scene, ref, StepKind.APPROVAL).decisions
    assert (found.number, found.data, found.by, found.gate) == (1, "1", Decider("u2", ("s",)), name)
    verdict = GateVerdict(step=name, judged=(Judged(number=1, refusal=None),), result='"yes"')
    for _ in range(2):
        assert scene.store.settle_gate(ref, verdict) is not None
    step = scene.step(str(name))
    assert (step.status, step.result, step.due_at) == (StepStatus.SUCCEEDED, '"yes"', None)
    assert [one.outcome for one in scene.store.list_audit(R1)] == [AuditOutcome.SUCCESS]
    assert scene.run().status is RunStatus.RUNNING


def test_a_refused_decision_is_shown_and_the_gate_waits_on(scene: Scene) -> None:
    """T1.11: the issues stand on the row; another decision may come, and the audit is written once."""
    name = _wait(scene, StepKind.APPROVAL, options=Policy(scope="boss").to_json())
    _decision(scene)
    scene.open(by="p2")
    ref = scene.ref(by="p2")
    verdict = GateVerdict(
        step=name,
        judged=(Judged(number=1, refusal="no"),),
        error=ISSUE,
        audit=(_entry("denied", AuditOutcome.DENIED),),
    )
    for _ in range(2):
        scene.store.settle_gate(ref, verdict)
    assert _reach(scene, ref, StepKind.APPROVAL).decisions == ()
    _suspend(scene, ref, StepKind.APPROVAL)
    (waiting,) = scene.store.list_approvals(limit=10)
    assert (waiting.reason, waiting.issue, waiting.policy.scope) == ("x", ISSUE.message, "boss")
    assert {one.id for one in scene.store.list_audit(R1)} == {"a1", "denied"}
    (judged,) = scene.store.list_decisions(R1, name)
    assert (judged.refusal, judged.judged_at is not None) == ("no", True)
    assert _decision(scene, 2).end is DecisionEnd.STORED


def test_a_decision_is_refused_where_it_would_count_for_nothing(scene: Scene) -> None:
    """T1.13: the gate is settled, over, or has one to be judged; the run has ended, or never was. Nothing is stored or audited."""
    assert _decision(scene, run_id="never").end is DecisionEnd.MISSING
    _wait(scene, StepKind.APPROVAL, delay_seconds=60.0)
    assert _decision(scene, 1).end is DecisionEnd.STORED
    assert _decision(scene, 2).end is DecisionEnd.JUDGING
    scene.advance(61)
    assert _decision(scene, 3).end is DecisionEnd.EXPIRED
    scene.open(by="p2")
    scene.store.settle_gate(scene.ref(by="p2"), GateVerdict(step=_gate(StepKind.APPROVAL).name, result='"over"'))
    assert scene.run().status is RunStatus.RUNNING
    resolved = _decision(scene, 4)
    assert (resolved.end, resolved.step and resolved.step.result) == (DecisionEnd.RESOLVED, '"over"')
    scene.close(scene.ref(by="p2"), status=RunStatus.COMPLETED)
    assert _decision(scene, 5, "another").end is DecisionEnd.SETTLED
    assert [one.id for one in scene.store.list_audit(R1)] == ["a1"]
    assert [one.data for one in scene.store.list_decisions(R1)] == ["1"]


def test_early_decisions_are_kept_in_their_order(scene: Scene) -> None:
    """Spec 2.7: nobody is told of them before the gate is reached."""
    ref = scene.begin()
    ends = [_decision(scene, number) for number in (1, 2)]
    assert [(one.end, one.wake) for one in ends] == [(DecisionEnd.STORED, None)] * 2
    assert [one.data for one in _reach(scene, ref, StepKind.APPROVAL).decisions] == ["1", "2"]


def test_a_decision_whose_answer_was_lost_stores_nothing_more(scene: Scene) -> None:
    """Design 3.4: it finds its own id."""
    _wait(scene, StepKind.APPROVAL)
    assert [_decision(scene).end for _ in range(2)] == [DecisionEnd.STORED] * 2
    assert len(scene.store.list_decisions(R1)) == len(scene.store.list_audit(R1)) == 1


def test_decisions_that_race_for_a_gate_are_one(scene: Scene) -> None:
    """Of several people at once, one decides."""
    _wait(scene, StepKind.APPROVAL)
    ends = [one.end for one in race(*[partial(_decision, scene, n) for n in range(6)])]
    assert sorted(ends) == sorted([DecisionEnd.STORED, *[DecisionEnd.JUDGING] * 5])


def test_approvals_are_listed_by_how_long_they_wait(scene: Scene) -> None:
    """With owner, policy and deadline, in pages; other gates are not among them."""
    for number in range(3):
        ref = scene.begin(f"r{number}", owner="u1")
        reached = _reach(scene, ref, StepKind.APPROVAL, delay_seconds=3600.0, options=Policy(scope="boss").to_json())
        assert reached.row is not None
        scene.advance(5)
    _wait(scene, StepKind.SIGNAL, run_id="r9")
    first = scene.store.list_approvals(limit=2)
    assert [one.run_id for one in first] == ["r0", "r1"]
    key = GateKey(since=first[1].since, run_id=first[1].run_id, step=first[1].step)
    (last,) = scene.store.list_approvals(limit=2, after=key)
    assert (last.run_id, last.owner, last.policy.scope, last.workflow) == ("r2", "u1", "boss", "shop.order")
    assert last.expires_at is not None
    assert (last.expires_at - last.since).total_seconds() == pytest.approx(3600, abs=5)


def test_the_audit_outlives_its_run(scene: Scene) -> None:
    """Issue D: no foreign key, and ``delete_run`` leaves it; signals and decisions go."""
    _wait(scene, StepKind.APPROVAL)
    _signal(scene)
    _decision(scene)
    scene.store.add_audit(_entry("late", AuditOutcome.DENIED))
    scene.open(by="p2")
    scene.close(scene.ref(by="p2"), status=RunStatus.FAILED, error=ISSUE)
    assert scene.store.delete_run(R1)
    assert (scene.store.list_signals(R1), scene.store.list_decisions(R1)) == ((), ())
    entries = scene.store.list_audit(R1)
    assert [(one.id, one.by, one.at is not None) for one in entries if one.id == "late"] == [
        ("late", Decider("u2", ("s",)), True)
    ]
    assert len(entries) == 2
