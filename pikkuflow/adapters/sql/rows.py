"""Rows to records and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from pikkuflow.adapters.sql.tables import run, step
from pikkuflow.domain.act import RunRef, StepMessage
from pikkuflow.domain.failure import Failure
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.run import NewRun, ParentStep, Run
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus
from pikkuflow.domain.step import Attempt, NewStep, Place, Step

__all__ = [
    "RUN_COLUMNS",
    "STEP_COLUMNS",
    "ahead",
    "attempt_of",
    "is_held",
    "message_of",
    "new_run_row",
    "new_step_row",
    "ref_of",
    "run_of",
    "step_of",
    "steps_of",
    "text_of",
]

Row = Mapping[str, Any]

RUN_COLUMNS: Final = tuple(column.name for column in run.columns)
STEP_COLUMNS: Final = tuple(column.name for column in step.columns)


def ahead(now: datetime, seconds: float | None) -> datetime | None:
    """The moment that many seconds after now."""
    return None if seconds is None else now + timedelta(seconds=seconds)


def text_of(failure: Failure | None) -> str | None:
    """What an ``error`` column holds."""
    return None if failure is None else failure.to_json()


def _failure_of(text: str | None) -> Failure | None:
    return None if text is None else Failure.from_json(text)


def is_held(row: Row, now: datetime) -> bool:
    """A pass over this run is live."""
    return row["pass_until"] is not None and row["pass_until"] > now


def ref_of(row: Row) -> RunRef:
    """What wakes this run."""
    return RunRef(id=RunId(row["id"]), workflow=row["workflow"])


def run_of(row: Row) -> Run:
    """A run's record."""
    parent_id = row["parent_run_id"]
    return Run(
        id=row["id"],
        workflow=row["workflow"],
        version=row["version"],
        status=RunStatus(row["status"]),
        inline=bool(row["inline"]),
        input=row["input"],
        output=row["output"],
        error=_failure_of(row["error"]),
        code=row["code"],
        owner=row["owner"],
        wire=row["wire"],
        planned_steps=row["planned_steps"],
        deterministic=bool(row["deterministic"]),
        news=row["news"],
        seen=row["seen"],
        pass_id=row["pass_id"],
        pass_holder=row["pass_holder"],
        pass_until=row["pass_until"],
        lost=bool(row["lost"]),
        passes_lost=row["passes_lost"],
        due_at=row["due_at"],
        timeout_seconds=row["timeout_seconds"],
        deadline_at=row["deadline_at"],
        parent=None if parent_id is None else ParentStep(run_id=parent_id, step=row["parent_step"]),
        handover=row["handover"],
        delivered_at=row["delivered_at"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        finished_at=row["finished_at"],
    )


def step_of(row: Row, now: datetime) -> Step:
    """A step's record, judged at that moment."""
    due_at, lease_until, expires_at = row["due_at"], row["lease_until"], row["expires_at"]
    status = StepStatus(row["status"])
    return Step(
        run_id=row["run_id"],
        name=row["name"],
        seq=row["seq"],
        kind=StepKind(row["kind"]),
        task=row["task"],
        args=row["args"],
        status=status,
        result=row["result"],
        error=_failure_of(row["error"]),
        attempt=row["attempt"],
        retries=row["retries"],
        retry_delay=row["retry_delay"],
        place=row["place"],
        queue=row["queue"],
        options=row["options"],
        claim_id=row["claim_id"],
        lease_seconds=row["lease_seconds"],
        lease_until=lease_until,
        due_at=due_at,
        due_in_seconds=None if due_at is None else (due_at - now).total_seconds(),
        is_due=due_at is None or due_at <= now,
        is_lapsed=status is StepStatus.RUNNING and lease_until is not None and lease_until <= now,
        is_expired=expires_at is not None and expires_at <= now,
        expires_in_seconds=None if expires_at is None else (expires_at - now).total_seconds(),
        sent_at=row["sent_at"],
        override=row["override"],
        child_run_id=row["child_run_id"],
        fan_id=row["fan_id"],
        from_step=row["from_step"],
        group=row["group"],
        author=row["author"],
        undo_task=row["undo_task"],
        begun_no=row["begun_no"] or 0,
        settled_no=row["settled_no"],
        timeout_seconds=row["timeout_seconds"],
        heartbeat_seconds=row["heartbeat_seconds"],
        details=row["details"],
        created_at=row["created_at"],
        running_at=row["running_at"],
        scheduled_at=row["scheduled_at"],
        settled_at=row["settled_at"],
    )


def steps_of(rows: Iterable[Row], now: datetime) -> tuple[Step, ...]:
    """Several steps' records, in the order given."""
    return tuple(step_of(row, now) for row in rows)


def attempt_of(row: Row) -> Attempt:
    """An earlier attempt's record."""
    return Attempt(
        run_id=row["run_id"],
        step=row["step"],
        attempt=row["attempt"],
        status=StepStatus(row["status"]),
        error=_failure_of(row["error"]),
        result=row["result"],
        place=row["place"],
        created_at=row["created_at"],
        running_at=row["running_at"],
        scheduled_at=row["scheduled_at"],
        settled_at=row["settled_at"],
    )


def message_of(row: Row) -> StepMessage:
    """What a message for this row's current attempt is made of."""
    return StepMessage(
        run_id=row["run_id"],
        name=row["name"],
        attempt=row["attempt"],
        task=row["task"] or "",
        queue=row["queue"],
        options=row["options"],
        override=row["override"],
    )


def new_run_row(new: NewRun, author: str, now: datetime) -> dict[str, Any]:
    """The row of a run that begins now: running, with one piece of news that nobody has seen."""
    starts_at = ahead(now, new.delay_seconds) if new.delay_seconds else None
    return dict.fromkeys(RUN_COLUMNS) | {
        "id": new.id,
        "workflow": new.workflow,
        "version": new.version,
        "status": RunStatus.RUNNING.value,
        "inline": new.inline,
        "input": new.input,
        "owner": new.owner,
        "wire": new.wire,
        "planned_steps": new.planned_steps,
        "deterministic": new.deterministic,
        "news": 1,
        "seen": 0,
        # A delayed run is nothing new before its time: the sweep for unseen news leaves it.
        "news_at": starts_at or now,
        "lost": False,
        "passes_lost": 0,
        "starts_at": starts_at,
        "due_at": starts_at,
        "timeout_seconds": new.timeout_seconds,
        "deadline_at": ahead(starts_at or now, new.timeout_seconds),
        "send_count": 0,
        "author": author,
        "parent_run_id": None if new.parent is None else new.parent.run_id,
        "parent_step": None if new.parent is None else new.parent.step,
        "handover": new.handover,
        "created_at": now,
        "updated_at": now,
    }


def new_step_row(run_id: RunId, new: NewStep, author: str, now: datetime) -> dict[str, Any]:
    """The row of a step that waits from now on, at its first attempt: pending, or scheduled when it is a sleep."""
    is_sleep = new.kind is StepKind.SLEEP
    due_at = ahead(now, new.delay_seconds)
    return dict.fromkeys(STEP_COLUMNS) | {
        "run_id": run_id,
        "name": new.name,
        "seq": new.seq,
        "kind": new.kind.value,
        "task": new.task,
        "args": new.args,
        "status": (StepStatus.SCHEDULED if is_sleep else StepStatus.PENDING).value,
        "attempt": 1,
        "retries": new.retries,
        "retry_delay": new.retry_delay,
        "place": new.place,
        "queue": new.queue,
        "options": new.options,
        "lease_seconds": new.lease_seconds,
        "due_at": due_at,
        "expires_at": ahead(now, new.expires_seconds),
        "waiting_since": (due_at or now) if Place.is_queue(new.place) else None,
        "send_count": 0,
        "child_run_id": new.child_run_id,
        "fan_id": new.fan_id,
        "from_step": new.from_step,
        "group": new.group,
        "author": author,
        "undo_task": new.undo_task,
        "begun_no": new.begun_no,
        "timeout_seconds": new.timeout_seconds,
        "heartbeat_seconds": new.heartbeat_seconds,
        "created_at": now,
        "scheduled_at": now if is_sleep else None,
    }
