"""A person's decision opens an approval, when its policy admits the person and its schema takes the data (spec 2.7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from pikkuflow.domain.gate import Decider
from pikkuflow.domain.gate_act import AuditEntry, AuditOutcome
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.status import RunStatus, StepStatus
from pikkuflow.engine.run_handle import Run
from pikkuflow.errors import ApprovalForbidden, ApprovalResolved, PayloadError, RunSettled, StepNameError
from tests.unit.engine.bench import Bench, Task

GATE = "__workflow_approval:release"
U1, U2 = Decider("u1"), Decider("u2")


class Release(BaseModel):
    """A decision."""

    ok: bool
    note: str = ""


@dataclass
class Plain:
    """A decision as a dataclass."""

    ok: bool


@pytest.fixture
def bench() -> Bench:
    """A bench whose audit hook remembers."""
    made = Bench()
    made.rt = made.other(audit=HEARD.append)
    HEARD.clear()
    return made


HEARD: list[AuditEntry] = []


def _handle(bench: Bench, run_id: str = "r1") -> Run[Any]:
    return Run(run_id, lambda: bench.rt)


def _asking(bench: Bench, run_id: str = "r1", *, owner: str | None = "u1", **terms: Any) -> Run[Any]:
    """A run that waits for ``release``, and gives what it got."""

    def body(wf: Any) -> Any:
        answer = wf.approval("release", **terms)
        by = answer.decided_by
        return [answer.status, repr(answer.data), by and by.user, answer.decided_at and answer.decided_at.isoformat()]

    bench.start(bench.workflow(body, name=f"asks {run_id}"), run_id=run_id, owner=owner)
    bench.work()
    return _handle(bench, run_id)


def _audit(bench: Bench, run_id: str = "r1") -> list[tuple[AuditOutcome, str | None]]:
    return [(entry.outcome, entry.by.user) for entry in bench.store.list_audit(RunId(run_id))]


def test_a_decision_is_the_outcome_with_who_and_when(bench: Bench) -> None:
    """T1.10, T15.8: validated, with defaults, and with decider and time."""
    handle = _asking(bench, schema=Release)
    assert (bench.run().status, bench.run().code, bench.error()) == (
        RunStatus.SUSPENDED,
        "WAITING_FOR_APPROVAL",
        "release",
    )
    when = bench.clock.now()
    handle.approve("release", {"ok": True}, by=U2)
    assert bench.run().status is RunStatus.RUNNING
    bench.clock.advance(5)
    bench.work()
    assert bench.output() == ["decided", "Release(ok=True, note='')", "u2", when.isoformat()]


@pytest.mark.parametrize(
    ("schema", "data", "shown"),
    [
        (None, {"any": 1}, "{'any': 1}"),
        (Plain, {"ok": True}, "Plain(ok=True)"),
        (list[int], ["1", 2], "[1, 2]"),
        (lambda data: data["ok"], {"ok": "yes"}, "'yes'"),
    ],
)
def test_a_schema_is_a_type_or_a_function(bench: Bench, schema: Any, data: Any, shown: str) -> None:
    """A model, a dataclass, any type, any callable, or none at all."""
    _asking(bench, schema=schema).approve("release", data)
    bench.work()
    assert bench.output()[:3] == ["decided", shown, None]


def test_a_resume_without_a_decision_never_passes(bench: Bench) -> None:
    """T1.9: a pass looks, and waits again."""
    handle = _asking(bench, schema=Release)
    assert handle.resume()
    bench.work()
    assert (bench.run().status, bench.step(GATE).status) == (RunStatus.SUSPENDED, StepStatus.SUSPENDED)


def test_what_does_not_fit_the_schema_leaves_the_gate_closed_with_the_issues(bench: Bench) -> None:
    """T1.11: the place and the message stand on the gate's row; a better decision opens it."""
    handle = _asking(bench, schema=Release)
    handle.approve("release", {"ok": "perhaps", "note": 7}, by=U2)
    bench.work()
    issue = bench.step(GATE).error
    assert bench.run().status is RunStatus.SUSPENDED
    assert issue is not None
    assert all(part in issue.message for part in ("u2", "ok: ", "note: "))
    (waiting,) = bench.store.list_approvals(limit=10)
    assert waiting.issue == issue.message
    handle.approve("release", {"ok": False}, by=U2)
    bench.work()
    assert bench.output()[1] == "Release(ok=False, note='')"
    assert bench.step(GATE).error is None


def test_a_validator_that_raises_refuses_and_says_what_it_said(bench: Bench) -> None:
    """Whatever it raises: the gate stays closed. What it returns must be storable."""

    def even(data: Any) -> Any:
        if data == "odd":
            raise LookupError("that is odd")
        return {1, 2}

    handle = _asking(bench, schema=even)
    for data, said in (("odd", "that is odd"), ("set", "set")):
        handle.approve("release", data)
        bench.work()
        error = bench.step(GATE).error
        assert error is not None
        assert said in error.message
    assert bench.run().status is RunStatus.SUSPENDED


def test_an_approval_nobody_decides_expires(bench: Bench) -> None:
    """T1.12: an outcome, not an exception, and it names nobody (T15.8)."""
    _asking(bench, schema=Release, expiry="1h")
    assert bench.due() == pytest.approx(3600)
    bench.pass_time(3601)
    assert bench.output() == ["expired", "None", None, None]


def test_a_lost_wake_up_only_delays_the_expiry(bench: Bench) -> None:
    """Spec 2.7: the deadline is a column."""
    _asking(bench, expiry="1h")
    bench.hints.pop_due(100)
    bench.clock.advance(3601)
    bench.recover()
    bench.work()
    assert bench.output()[0] == "expired"


def test_a_decision_for_a_resolved_gate_is_refused(bench: Bench) -> None:
    """T1.13: decided or expired, it is said, and nothing changes."""
    decided = _asking(bench, "decided")
    decided.approve("release", 1, by=U2)
    bench.work()
    expired = _asking(bench, "expired", expiry=1)
    bench.clock.advance(2)
    with pytest.raises(ApprovalResolved) as too_late:
        expired.approve("release", 2, by=U2)
    bench.pass_time(1)
    for handle, outcome in ((decided, "decided"), (expired, "expired")):
        with pytest.raises(ApprovalResolved) as refused:
            handle.approve("release", 2, by=U2)
        assert (refused.value.reason, refused.value.outcome, refused.value.status) == ("release", outcome, 409)
    assert too_late.value.outcome == "expired"
    assert bench.output("decided")[1] == "1"
    assert _audit(bench, "expired") == []


def test_a_decision_before_the_expiry_wins_though_it_is_judged_after_it(bench: Bench) -> None:
    """T1.14: it was stored in time."""
    handle = _asking(bench, expiry="1h")
    handle.approve("release", "in time", by=U2)
    bench.broker.lose_all()
    bench.clock.advance(3601)
    bench.recover()
    bench.work()
    assert bench.output()[:2] == ["decided", "'in time'"]


def test_a_refused_decision_at_an_expired_gate_leaves_it_expired(bench: Bench) -> None:
    """The reasons are kept, and the run does not hang."""
    handle = _asking(bench, schema=Release, expiry="1h")
    handle.approve("release", "nonsense", by=U2)
    bench.broker.lose_all()
    bench.clock.advance(3601)
    bench.recover()
    bench.work()
    assert bench.output()[0] == "expired"


def test_a_second_decision_while_the_first_is_judged_is_refused(bench: Bench) -> None:
    """Nobody is told that a decision counts which will not."""
    handle = _asking(bench)
    handle.approve("release", 1, by=U1)
    with pytest.raises(ApprovalResolved) as refused:
        handle.approve("release", 2, by=U2)
    assert refused.value.outcome == "judging"
    bench.work()
    assert bench.output()[1] == "1"


def test_early_decisions_are_judged_at_the_gate_in_their_order(bench: Bench) -> None:
    """T15.8: an early one of a stranger does not open a four-eyes gate; the next one does; the last is too late."""

    def body(wf: Any) -> Any:
        wf.suspend("later")
        return wf.approval("release", approvers="not-initiator").data

    bench.start(bench.workflow(body), owner="u1")
    bench.work()
    handle = _handle(bench)
    for data, by in ((1, U1), (2, U2), (3, Decider("u3"))):
        handle.approve("release", data, by=by)
    assert bench.run().status is RunStatus.SUSPENDED
    handle.resume("later")
    bench.work()
    assert bench.output() == 2
    assert [one.refusal is None for one in bench.store.list_decisions(RunId("r1"))] == [False, True, False]
    assert (AuditOutcome.DENIED, "u1") in _audit(bench)
    assert (AuditOutcome.DENIED, "u1") in [(entry.outcome, entry.by.user) for entry in HEARD]


@pytest.mark.parametrize(
    ("terms", "owner", "admitted", "refused"),
    [
        ({}, "u1", [None, U1, U2], []),
        ({"approvers": "owner"}, "u1", [U1], [None, U2]),
        ({"approvers": "owner"}, None, [None, U2], []),
        ({"approvers": "not-initiator"}, "u1", [U2], [None, U1]),
        ({"approvers": "not-initiator"}, None, [U1], [None]),
        ({"approver_scope": "boss"}, "u1", [Decider("u2", ("boss",))], [U1, U2, None]),
        (
            {"approvers": "owner", "approver_scope": "boss"},
            "u1",
            [Decider("u1", ("boss",))],
            [Decider("u2", ("boss",)), U1],
        ),
    ],
)
def test_a_policy_says_who_may_decide(
    bench: Bench,
    terms: dict[str, Any],
    owner: str | None,
    admitted: list[Decider | None],
    refused: list[Decider | None],
) -> None:
    """T15.5, T15.6, T15.7: any, the owner, four eyes, an unowned run, a signed-in user, a scope in addition."""
    for number, by in enumerate(admitted):
        handle = _asking(bench, f"r{number}", owner=owner, **terms)
        for stranger in refused:
            with pytest.raises(ApprovalForbidden) as error:
                handle.approve("release", 0, by=stranger)
            assert (error.value.status, error.value.reason, bool(error.value.detail)) == (403, "release", True)
        handle.approve("release", 1, by=by)
        bench.work()
        assert bench.output(f"r{number}")[1] == "1"


def test_every_decision_is_audited(bench: Bench) -> None:
    """T15.9: accepted and refused ones with their user, in the table and to the hook; the table outlives the run."""
    handle = _asking(bench, approvers="owner")
    with pytest.raises(ApprovalForbidden):
        handle.approve("release", 0, by=U2)
    bench.clock.advance(1)
    handle.approve("release", 1, by=U1)
    bench.work()
    expected = [(AuditOutcome.DENIED, "u2"), (AuditOutcome.SUCCESS, "u1")]
    assert _audit(bench) == expected
    assert [(entry.outcome, entry.by.user) for entry in HEARD] == expected
    assert {entry.type for entry in HEARD} == {"workflow.approval.decided"}
    assert bench.store.delete_run(RunId("r1"))
    assert _audit(bench) == expected


def test_an_audit_hook_that_fails_costs_no_decision(bench: Bench) -> None:
    """T15.9: it is warned of; without a hook nothing happens at all."""

    def broken(_entry: AuditEntry) -> None:
        raise OSError("the audit is full")

    for number, hook in enumerate((broken, None)):
        bench.rt = bench.other(audit=hook)
        _asking(bench, f"r{number}").approve("release", 1, by=U1)
        bench.work()
        assert bench.output(f"r{number}")[0] == "decided"
    assert [warning for warning in bench.ear.warnings if "the audit is full" in warning]


def test_bad_decisions_change_nothing(bench: Bench) -> None:
    """A reason that is no text, data that cannot be stored, a run that has ended (spec 10.6)."""
    handle = _asking(bench)
    before = bench.run()
    with pytest.raises(StepNameError, match="int"):
        handle.approve(7, {})  # type: ignore[arg-type]
    with pytest.raises(PayloadError, match="release"):
        handle.approve("release", {1, 2})
    assert bench.run() == before
    handle.approve("release", 1)
    bench.work()
    with pytest.raises(RunSettled) as settled:
        handle.approve("another", 1)
    assert settled.value.status == 409


def test_a_reason_is_asked_for_once(bench: Bench) -> None:
    """Spec 2.7: a decision addresses the first reach of a reason, so a second one could never be opened: it fails in the body."""

    def body(wf: Any) -> None:
        wf.approval("release")
        wf.approval("release")

    bench.start(bench.workflow(body))
    bench.work()
    _handle(bench).approve("release")
    bench.work()
    assert bench.run().status is RunStatus.FAILED
    assert "asked for before" in bench.error()


def test_terms_that_mean_nothing_fail_in_the_body(bench: Bench) -> None:
    """A policy, a scope or a schema that is none."""
    for number, terms in enumerate(({"approvers": "cats"}, {"approver_scope": 7}, {"schema": 7}, {"expiry": "soon"})):
        run_id = f"r{number}"
        bench.start(bench.workflow(lambda wf, t=terms: wf.approval("x", **t), name=run_id), run_id=run_id)
        bench.work()
        assert bench.run(run_id).status is RunStatus.FAILED


def test_steps_beside_an_approval_go_on(bench: Bench) -> None:
    """A decision that comes while they are in flight opens the gate at once."""
    bench.task(lambda: 1, name="slow", leaves="route")

    def body(wf: Any) -> list[Any]:
        handle = wf.submit("slow", Task("slow"))
        return [wf.approval("release").data, handle.result()]

    bench.start(bench.workflow(body))
    bench.orchestrate()
    assert [one.reason for one in bench.store.list_approvals(limit=10)] == ["release"]
    _handle(bench).approve("release", "yes")
    bench.work()
    assert bench.output() == ["yes", 1]
