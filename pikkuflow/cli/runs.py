"""``flow list``, ``show``, ``watch``: looking at runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import click

from pikkuflow.cli.context import extension, runtime
from pikkuflow.cli.output import as_json, json_option, print_json, print_table, short_time
from pikkuflow.domain.duration import seconds_of
from pikkuflow.domain.gate import Policy
from pikkuflow.domain.ids import RunId
from pikkuflow.domain.run import Run, RunFilter, RunKey
from pikkuflow.domain.status import GATE, RunStatus, StepKind, StepStatus
from pikkuflow.domain.step import Attempt, Step
from pikkuflow.domain.summary import head_of, summary_of
from pikkuflow.engine.runtime import Runtime
from pikkuflow.errors import RunNotFound

__all__ = ["list_", "run_option", "show", "watch"]

_ENDED_OTHERWISE: Final = 3
_MILLISECONDS: Final = 1000.0

run_option = click.argument("run_id", metavar="RUN")


@click.command("list")
@click.option("--workflow", help="Only runs of this workflow.")
@click.option("--status", type=click.Choice([status.value for status in RunStatus]), help="Only runs with this status.")
@click.option("--owner", help="Only runs of this owner.")
@click.option("--code", help="Only runs suspended or failed with this code.")
@click.option("--since", metavar="DURATION", help="Only runs started at most this long ago, such as 2h.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--after", metavar="RUN", help="The next page: runs older than this one.")
@json_option
@click.pass_context
def list_(ctx: click.Context, /, *, json_: bool, limit: int, after: str | None, **wanted: str | None) -> None:
    """List runs, newest first."""
    engine = runtime(ctx)
    runs = engine.store.list_runs(_filter(engine, wanted), limit=limit, after=_key(engine, after))
    heads = [head_of(run) for run in runs]
    if json_:
        print_json([head.to_dict() for head in heads])
        return
    rows = [
        (h.id, h.workflow, h.status, h.code, h.owner, short_time(h.started_at), short_time(h.completed_at), h.error)
        for h in heads
    ]
    print_table(("run", "workflow", "status", "code", "owner", "started", "completed", "error"), rows)
    if len(runs) == limit:
        click.echo(f"There may be more: --after {runs[-1].id}", err=True)


def _filter(engine: Runtime, wanted: dict[str, str | None]) -> RunFilter:
    since, status = wanted["since"], wanted["status"]
    moment = engine.clock.now() - timedelta(seconds=seconds_of(since, what="--since")) if since else None
    return RunFilter(
        workflow=wanted["workflow"],
        status=RunStatus(status) if status else None,
        owner=wanted["owner"],
        code=wanted["code"],
        since=moment,
    )


def _key(engine: Runtime, after: str | None) -> RunKey | None:
    if after is None:
        return None
    run = _stored(engine, after)
    return RunKey(created_at=run.created_at, id=run.id)


def _stored(engine: Runtime, run_id: str) -> Run:
    run = engine.store.get_run(RunId(run_id))
    if run is None:
        raise RunNotFound(f"There is no run {run_id!r}.", run_id, hint="`flow list` shows the runs of this database.")
    return run


@click.command()
@run_option
@json_option
@click.pass_context
def show(ctx: click.Context, run_id: str, *, json_: bool) -> None:
    """Show a run with its steps and their attempts."""
    engine = runtime(ctx)
    run = _stored(engine, run_id)
    steps, attempts = engine.store.list_steps(run.id), engine.store.list_attempts(run.id)
    if json_:
        document = summary_of(run, steps, engine.codec.decode).to_dict()
        print_json(document | {"attempts": [_attempt_document(attempt) for attempt in attempts]})
        return
    for label, value in [*_facts(run), *_waits(steps)]:
        click.echo(f"{label:<10} {value}")
    print_table(("step", "attempt", "status", "where", "started", "ms", "error"), _rows(steps, attempts))


def _facts(run: Run) -> list[tuple[str, Any]]:
    facts = [
        ("run", run.id),
        ("workflow", f"{run.workflow} (version {run.version})"),
        ("status", f"{run.status}{f' [{run.code}]' if run.code else ''}"),
        ("owner", run.owner),
        ("parent", f"{run.parent.run_id}, step {run.parent.step}" if run.parent else None),
        ("started", short_time(run.created_at)),
        ("completed", short_time(run.finished_at)),
        ("due", short_time(run.due_at)),
        ("deadline", short_time(run.deadline_at)),
        ("error", run.error.message if run.error else None),
        ("input", run.input),
        ("output", run.output),
    ]
    return [(label, value) for label, value in facts if value]


def _waits(steps: Sequence[Step]) -> list[tuple[str, str]]:
    """What the run waits for at its gates."""
    return [("waits for", _gate(step)) for step in steps if step.kind in GATE and step.status is StepStatus.SUSPENDED]


def _gate(step: Step) -> str:
    words = [f"{'resume' if step.kind is StepKind.SUSPEND else step.kind} {step.task!r}"]
    if step.kind is StepKind.APPROVAL:
        policy = Policy.from_json(step.options)
        words.append(f"by {policy.approvers}{f' with scope {policy.scope}' if policy.scope else ''}")
    if step.due_at is not None:
        words.append(f"until {short_time(step.due_at)}")
    return " ".join(words)


def _rows(steps: Sequence[Step], attempts: Sequence[Attempt]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for step in steps:
        earlier: list[Step | Attempt] = [attempt for attempt in attempts if attempt.step == step.name]
        for row in [*earlier, step]:
            error = row.error.message if row.error else None
            status = "lost" if row is not step and row.status == "running" else row.status
            rows.append((step.name, row.attempt, status, row.place, short_time(row.begun_at), _took(row), error))
    return rows


def _took(row: Step | Attempt) -> str:
    if row.begun_at is None or row.settled_at is None:
        return ""
    return f"{(row.settled_at - row.begun_at).total_seconds() * _MILLISECONDS:.0f}"


def _attempt_document(attempt: Attempt) -> dict[str, Any]:
    document = {
        "stepName": attempt.step,
        "attempt": attempt.attempt,
        "status": attempt.status,
        "error": {"message": attempt.error.message} if attempt.error else None,
        "runningAt": attempt.running_at.isoformat() if attempt.running_at else None,
        "settledAt": attempt.settled_at.isoformat() if attempt.settled_at else None,
    }
    return {key: value for key, value in document.items() if value is not None}


@click.command()
@run_option
@json_option
@click.pass_context
def watch(ctx: click.Context, run_id: str, *, json_: bool) -> None:
    """Follow a run until it ends: one line for each change. Exits with 3 when it ends in another way than completed."""
    runtime(ctx)
    run = extension(ctx).runs.get(run_id)
    for frame in run.watch():
        if json_:
            click.echo(as_json(frame))
        else:
            click.echo(_line(frame))
        sys.stdout.flush()
    if run.status().status is not RunStatus.COMPLETED:
        ctx.exit(_ENDED_OTHERWISE)


def _line(frame: dict[str, Any]) -> str:
    steps = ", ".join(f"{step['stepName']} {step['status']}" for step in frame.get("steps", ()))
    words = [frame["type"], str(frame.get("status", "")), str(frame.get("reason", "")), steps]
    return " ".join("  ".join(word for word in words if word).split("\n"))
