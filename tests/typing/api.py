"""What a user writes, as type checkers see it; checked by ``mypy`` with the rest, never run (style 5.9).

An ``assert_type`` that fails is a broken promise; an unused ``type: ignore`` is a mistake that is no longer noticed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

from celery import Celery, shared_task
from celery.result import AsyncResult

from pikkuflow import (
    Approval,
    AuditEntry,
    Call,
    CurrentStep,
    Decider,
    DetachedRun,
    Handle,
    Node,
    PikkuFlow,
    Run,
    Undo,
    Workflow,
    WorkflowTask,
    current_step,
    ref,
    template,
)
from pikkuflow.domain.status import RunStatus

app = Celery("typed")
pikku = PikkuFlow(app)


@shared_task
def label(sku: str) -> int:
    """A task whose types survive."""
    return len(sku)


@pikku.workflow
def bare(wf: Workflow, order_id: int, *, gift: bool = False) -> str:
    """Decorated without arguments."""
    assert_type(wf.do(label.s("tea")), int)
    assert_type(wf.do("today", lambda: "2026"), str)
    assert_type(wf.do("quick", label.s("tea"), quick=True), int)
    assert_type(wf.submit(label.s("tea")), Handle[int])
    assert_type(wf.map(label, ["tea"]), list[int])
    assert_type(wf.patched("faster"), bool)
    return f"{order_id} {gift}"


@pikku.workflow(name="typed.named", queue="orders", quick=True, timeout="2h")
def named(wf: Workflow, order_id: int) -> dict[str, int]:
    """Decorated with arguments."""
    return {"order": order_id}


@dataclass
class Release:
    """A decision."""

    ok: bool


def even(data: object) -> int:
    """A validator."""
    return len(str(data))


@pikku.workflow(name="typed.gates")
def gates(wf: Workflow) -> bool:
    """What a schema says is what comes back."""
    assert_type(wf.approval("release", schema=Release), Approval[Release])
    assert_type(wf.approval("count", schema=even, expiry="3d").data, int)
    assert_type(wf.approval("anything").decided_by, Decider | None)
    wf.suspend("stock")
    wf.suspend()  # type: ignore[call-arg]
    return wf.approval("again", schema=Release, approvers="owner").data.ok


@pikku.on_audit
def heard(entry: AuditEntry) -> None:
    """A hook."""


assert_type(gates.start().approve("release", {"ok": True}, by=Decider("u2", ("boss",))), None)
assert_type(gates.start().signal("courier", 1, idempotency_key="k"), bool)
assert_type(gates.start().as_user("u1"), Run[bool])


@pikku.workflow
def undoable(wf: Workflow) -> None:
    """Everything about undoing."""
    assert_type(wf.do(bare.s(1), detached=True), DetachedRun)
    wf.do("timed", bare.s(1), timeout="1h")
    assert_type(wf.do("apart", bare.s(1), detached=True, compensate=False), DetachedRun)
    assert_type(wf.milestone("paid"), None)
    wf.do(label.s("tea"), compensate=False)
    wf.cancel("out of stock")


@app.task
def tear_off(undo: Undo, sku: str) -> None:
    """A compensation that is a task already."""


pikku.compensates("shop.other")(tear_off)
assert_type(undoable.start().cancel("changed mind"), RunStatus)
assert_type(current_step().is_cancelled(), bool)
assert_type(current_step().heartbeat({"page": 1}), None)


@pikku.compensates(label)  # type: ignore[type-var]
def count_undone(undo: Undo, sku: str) -> int:
    """What undoes gives nothing back."""
    return 1


@pikku.compensates(label)
def peel(undo: Undo, sku: str) -> None:
    """Types of a compensation are the author's."""


as_data = pikku.graph(
    "shop.graph",
    entry="label",
    nodes={
        "label": Node(task=label, input={"sku": ref("trigger", "sku")}, next={"good": "wait", "bad": ["wait"]}),
        "wait": {"sleep": "1h", "notes": template("$0", [ref("label")])},
    },
    max_visits=10,
    queue="slow",
)
assert_type(as_data, WorkflowTask[Any, None])
assert_type(as_data.using(start_node="label").start(sku="tea"), Run[None])
assert_type(as_data.start(sku="tea").results(), dict[str, Any])

typed: WorkflowTask[[int], dict[str, int]] = named
assert_type(bare.start(42, gift=True), Run[str])
assert_type(bare.start(42).result(timeout=3), str)
assert_type(named.start(42).result(), dict[str, int])
assert_type(named.start(42, run_id="order-42"), Run[dict[str, int]])
assert_type(named.start(42, owner="u1"), Run[dict[str, int]])
assert_type(named.start(42, timeout="2h"), Run[dict[str, int]])
assert_type(named.using(run_id="order-42", owner="u1", timeout=60).start(42), Run[dict[str, int]])
assert_type(named.run_inline(42), Run[dict[str, int]])
assert_type(named.delay(42), AsyncResult[dict[str, int]])
assert_type(named.start_many([Call((1,), run_id="a")]), list[Run[dict[str, int]]])
assert_type(current_step(), CurrentStep)

bare.start("42")  # type: ignore[call-overload]
bare.start()  # type: ignore[call-overload]
bare.start(42, present=True)  # type: ignore[call-overload]
named.using(run_id="x").start("42")  # type: ignore[arg-type]
bare.run_inline(42, "43")  # type: ignore[call-overload]
named.delay("42")  # type: ignore[arg-type]
